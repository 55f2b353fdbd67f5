"""Ray's tasks and actors under Tally: levels, and fractions of a GPU that hold.

On every node, before `ray start` or ray.init():

    export RAY_RUNTIME_ENV_PLUGINS='[{"class": "tally_ray.Plugin"}]'

Then, in the program:

    import tally_ray

    @ray.remote(**tally_ray.gpu(0.3, priority="low"))
    class Trainer: ...

    server = Server.options(**tally_ray.gpu(0.25, priority="high")).remote()

gpu(0.3) is num_gpus=0.3, by which Ray places, and a runtime_env for the plugin: 30 % of the GPU's time and 30 % of its memory, which
Tally keeps.  Nothing here is needed where a task names its own command: runtime_env={"py_executable": "tally-run --priority=low python"}.

Programs that know nothing of Tally get the same for their @ray.remote(num_gpus=0.3) if they are started with

    export RAY_RUNTIME_ENV_HOOK=tally_ray.hook
"""
import functools
import os
import shlex
import shutil
import subprocess
import sys

# What runtime_env["tally"] may have: options of tally-run of the same name.
_OPTIONS = ("priority", "share", "min_share", "max_share", "weight", "memory", "memory_request", "memory_soft", "slo", "turnaround",
            "job", "report", "device", "fail")
# And what a node makes of it: of its GPU's memory a fraction, and which tally-run.
_OURS = ("memory_fraction", "tally_run")

# Asks the driver of the node, in a process of its own, for the memory of its smallest GPU.
_ASK_MEMORY = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
def check(rc):
    if rc != 0:
        raise SystemExit(f"NVML says {rc}")
check(nvml.nvmlInit_v2())
n, least = ctypes.c_uint(), None
check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)))
for i in range(n.value):
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    check(nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(i), ctypes.byref(device)))
    check(nvml.nvmlDeviceGetMemoryInfo(device, memory))
    least = min(least or memory[0], memory[0])
if least is None:
    raise SystemExit("NVML knows no GPU")
print(least)
"""


def gpu(num_gpus, priority=None, runtime_env=None, **options):
    """Arguments for @ray.remote or .options().

    A fraction of a GPU is a share of its time and of its memory; of whole GPUs nothing is limited.  The highest level has no share:
    nothing holds it back.  Options of tally-run (share="20%", memory="4G", slo="p99:8ms" ...) go in place of that; None leaves one out.
    """
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, (int, float)) or not num_gpus > 0:
        raise ValueError(f"num_gpus={num_gpus!r}: it must be above 0")
    if num_gpus > 1 and num_gpus != int(num_gpus):
        raise ValueError(f"num_gpus={num_gpus!r}: beyond 1, Ray has whole GPUs only")
    mine = {} if priority is None else {"priority": priority}
    if num_gpus < 1:
        if str(priority) not in ("high", "100") and not {"share", "min_share", "max_share"} & set(options):
            mine["share"] = f"{num_gpus * 100:g}%"
        if "memory" not in options:
            mine["memory_fraction"] = num_gpus
    mine.update(options)
    mine = {name: value for name, value in mine.items() if value is not None}
    check(mine)
    env = dict(runtime_env or {})
    if "tally" in env:
        raise ValueError("runtime_env has 'tally' already; give gpu() what is in it")
    env["tally"] = mine
    return {"num_gpus": num_gpus, "runtime_env": env}


def check(settings):
    """Complains (ValueError) about what is no setting of Tally; values are tally-run's to judge."""
    if not isinstance(settings, dict):
        raise ValueError(f"runtime_env['tally'] must be a dictionary of options, not {settings!r}")
    for name, value in settings.items():
        if name not in _OPTIONS + _OURS:
            raise ValueError(f"runtime_env['tally'] has '{name}'; it may have {', '.join(_OPTIONS + _OURS)}")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ValueError(f"runtime_env['tally']['{name}'] is {value!r}, and must be a text or a number")
    fraction = settings.get("memory_fraction", 1)
    if not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
        raise ValueError(f"runtime_env['tally']['memory_fraction'] is {fraction!r}, and must be above 0 and at most 1")


# What a fraction decides; the rest of a job's settings holds for all of its tasks.
_LIMITS = ("share", "min_share", "max_share", "memory", "memory_fraction")
# By name, what each runtime_env of a task may have that starts its worker in a way of its own.
_OWN_START = ("tally", "py_executable", "container", "image_uri")
_defaults = {}
_is_installed = False


def _with_fraction(options):
    """The runtime_env for a task or actor with these options, if num_gpus says one; else None."""
    num_gpus, env = options.get("num_gpus"), options.get("runtime_env") or {}
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, (int, float)) or not 0 < num_gpus < 1:
        return None
    if any(env.get(name) is not None for name in _OWN_START):
        return None
    return gpu(num_gpus, runtime_env=env, **_defaults)["runtime_env"]


def _wrap(owner, parse, inform):
    """Puts itself before the one function that all ways to start a task, or an actor, lead to."""
    real = owner._remote

    @functools.wraps(real)
    def _remote(self, *args, **options):
        env = _with_fraction(options)
        if env is not None:
            options["runtime_env"] = parse(env)
            if "serialized_runtime_env_info" in options:  # of tasks, which have theirs made before
                options["serialized_runtime_env_info"] = inform(options["runtime_env"], is_job_runtime_env=False, serialize=True)
        return real(self, *args, **options)

    owner._remote = _remote


def install(**defaults):
    """From now on num_gpus=0.3, of whatever task or actor this process starts, is gpu(0.3, **defaults)."""
    global _is_installed, _defaults
    check({name: value for name, value in defaults.items() if value is not None})
    _defaults = defaults
    if _is_installed:
        return
    try:
        import ray.actor
        import ray.remote_function as of_tasks
        parse, inform = of_tasks.parse_runtime_env_for_task_or_actor, of_tasks.get_runtime_env_info
        owners = of_tasks.RemoteFunction, ray.actor.ActorClass
        if not all(callable(owner.__dict__["_remote"]) for owner in owners):
            raise AttributeError("_remote")
    except (ImportError, AttributeError, KeyError) as error:
        raise RuntimeError(f"this Ray is built otherwise ({error!r}): use tally_ray.gpu(0.3) in place of num_gpus=0.3") from error
    for owner in owners:
        _wrap(owner, parse, inform)
    _is_installed = True


def hook(runtime_env):
    """For RAY_RUNTIME_ENV_HOOK: Ray calls it in ray.init().  What runtime_env["tally"] of the whole job says of levels and the like holds
    for its tasks; workers do the same for the tasks that they start, at their own level."""
    env = dict(runtime_env or {})
    check(env.get("tally", {}))
    install(**{name: value for name, value in env.get("tally", {}).items() if name not in _LIMITS})
    env.setdefault("worker_process_setup_hook", "tally_ray.install_in_worker")
    return env


def install_in_worker():
    """For worker_process_setup_hook."""
    install(priority=os.environ.get("TALLY_PRIORITY"))


def _find_tally_run(settings):
    """Where this node has it: named, in PATH, or beside Python, where the wheel puts it."""
    named = settings.get("tally_run")
    beside = os.path.join(os.path.dirname(sys.executable), "tally-run")
    found = shutil.which(named or "tally-run") or (beside if named is None and os.access(beside, os.X_OK) else None)
    if found is None:
        raise RuntimeError(f"this node has no {named or 'tally-run in PATH'}; install Tally there, or name it: tally_run='/path/tally-run'")
    return found


def _run(command, **more):
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=600, **more)
    if answer.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} ...: {answer.stderr.strip().splitlines()[-1:] or answer.returncode}")
    return answer.stdout


def command(settings, python):
    """The command line that stands in front of a worker's arguments: tally-run with its options, and Python, as bash takes it.

    Called on the node where the worker starts; options that tally-run does not take are an error here, not in the worker."""
    check(settings)
    tally_run = _find_tally_run(settings)
    options = [f"--{name.replace('_', '-')}={settings[name]}" for name in _OPTIONS if name in settings]
    if "memory_fraction" in settings and "memory" not in settings:
        device = [o for o in options if o.startswith("--device=")]
        memory = int(_run([tally_run, "-q", *device, sys.executable, "-c", _ASK_MEMORY], env={**os.environ, "TALLY_OFF": "1"}))
        options.append(f"--memory={int(memory * settings['memory_fraction'])}")
    _run([tally_run, "-q", *options, "true"], env={**os.environ, "TALLY_OFF": "1"})
    return " ".join([shlex.quote(tally_run), "-q", *map(shlex.quote, options), python])


try:
    from ray._private.runtime_env.plugin import RuntimeEnvPlugin as _Base
except ImportError:  # gpu() and check() work without Ray
    _Base = object


class Plugin(_Base):
    """Starts workers whose runtime_env has 'tally' by tally-run; behind the plugins that choose a Python."""

    name = "tally"
    priority = 90

    @staticmethod
    def validate(runtime_env_dict):
        """Ray calls it before a worker is started."""
        check(runtime_env_dict.get("tally", {}))

    def modify_context(self, uris, runtime_env, context, logger):
        """Ray calls it on the node, once for each runtime_env."""
        settings = runtime_env.get("tally")
        if settings is not None:
            context.py_executable = command(settings, context.py_executable)
            logger.info("tally: %s", context.py_executable)
