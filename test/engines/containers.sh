#!/usr/bin/env bash
# Containers of the real podman, in a Debian that debootstrap made: two of them share the software device by priority, limits of
# memory hold, one that is killed leaves nothing, and an image of musl is refused; as root, and rootless.
set -euo pipefail
# shellcheck source=test/integration/needs.inc
. test/integration/needs.inc
build=$(realpath "${TALLY_BUILD:-build}")
need_built "$build/bin/tally-run" "$build/lib/tally/container-check" "$build/workloads/jobs/serve" "$build/workloads/jobs/train"
need_plain "$build/lib/tally/libcuda.so.1"
need_cc
for program in podman crun; do
    command -v $program >/dev/null || skip "no $program (scripts/setup --with-engines)"
done
[ "$(id -u)" = 0 ] || skip "takes root: it makes a root by debootstrap and a namespace for /etc/cdi and control groups"

# In a mount namespace, so that nothing is left: /etc/cdi is the test's own, and /sys/fs/cgroup is cgroup2 alone, since crun refuses
# machines that have both kinds (hybrid).  Podman would join a namespace that an earlier one left in its folder.
if [ -z "${IN_NAMESPACE:-}" ]; then
    status=0
    root=$PWD/build/engines/root
    [ -d "$root" ] || scripts/fresh --keep="$root" true >"$TMPDIR/root.log" 2>&1 || status=$?
    [ $status = 0 ] || skip "no root to run containers in: $(tail -n 1 "$TMPDIR/root.log")"
    IN_NAMESPACE=yes root=$root exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
        bash "$0"
fi
scratch=$(mktemp -d /tmp/tally-containers.XXXXXX) # short: paths of sockets
umount -R /sys/fs/cgroup 2>/dev/null || :
mount -t cgroup2 none /sys/fs/cgroup || skip "cgroup2 cannot be mounted here"
mkdir -p /etc/cdi "$scratch"/{cdi,run,jobs,store,runroot}
mount --bind "$scratch/cdi" /etc/cdi
export TALLY_SOCKET=$scratch/run/tallyd.sock TALLY_DEVICE_NAME=tally-containers-$$ TALLY_CACHE=$scratch/cache XDG_RUNTIME_DIR=$scratch/xdg
export TALLY_JIT_IDLE=600 TALLY_LOG=error
mkdir -m 700 "$XDG_RUNTIME_DIR"
# shellcheck disable=SC2317 # called by the trap
finish() {
    local status=$?
    [ ${#options[@]} = 0 ] || podman "${options[@]}" rm --all --force --time=0 >/dev/null 2>&1 || :
    kill "$daemon" "$compiler" 2>/dev/null || :
    rm -f "/dev/shm/$TALLY_DEVICE_NAME".*
    [ $status = 0 ] || [ $status = 77 ] || tail -n 20 "$scratch"/*.log
    cd /
    umount /etc/cdi || :
    rm -rf --one-file-system "$scratch"
}
daemon='' compiler='' options=()
trap finish EXIT
fail() {
    echo "FAIL: $*"
    exit 1
}
await() { # WHAT COMMAND...: until it is so
    local what=$1 until=$((SECONDS + 60))
    shift
    while [ $SECONDS -lt $until ]; do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "$what does not come about"
}

"$build/bin/tallyd" --idle=0 --log=info 2>"$scratch/tallyd.log" &
daemon=$!
await "tallyd" "$build/bin/tally" ps
"$build/bin/tally-jit" --foreground 2>"$scratch/jit.log" &
compiler=$!
"$build/bin/tally" cdi generate --device=soft --class=small=low,memory=256M >"$scratch/cdi.log"

# A program that says what it sees of the device, and how much it gets.
cat >"$scratch/see.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = (int (*)(void *))dlsym(cuda, "cuCtxSetCurrent");
    int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(cuda, "cuMemGetInfo_v2");
    int (*alloc)(void **, size_t) = (int (*)(void **, size_t))dlsym(cuda, "cuMemAlloc_v2");
    void *context, *memory;
    size_t free = 0, total = 0, mb = 0;
    if (init(0) || retain(&context, 0) || current(context) || info(&free, &total))
        return 1;
    while (mb < 4096 && alloc(&memory, (size_t)16 << 20) == 0)
        mb += 16;
    printf("total %zu got %zu\n", total >> 20, mb);
    fflush(stdout);
    if (argc > 1)
        pause();
    return 0;
}
C
cc -O1 -o "$scratch/jobs/see" "$scratch/see.c" -ldl
cp "$build/workloads/jobs/serve" "$build/workloads/jobs/train" "$scratch/jobs/"

# Limits of processes are said because this machine may not let them be raised; there are no control groups, since crun would want to
# raise the limit of locked memory for them.
options=(--root "$scratch/store" --runroot "$scratch/runroot" --storage-driver=vfs --runtime crun --cgroup-manager=cgroupfs --events-backend=none)
container() { # DEVICE ROOT COMMAND...
    local device=$1 root=$2
    shift 2
    podman "${options[@]}" run --rm --network=none --cgroups=disabled --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 \
        --log-driver=none -e TALLY_DEVICE_NAME -e TALLY_DEVICE_MEM=1G -e TALLY_LOG "${more[@]}" \
        -v "$scratch/jobs:/jobs" --device "tally.dev/gpu=$device" --rootfs "$root" "$@"
}
more=()
jobs() { "$build/bin/tally" ps --json; }
field() { # NAME LEVEL: of the jobs of that level
    jobs | python3 -c '
import json, sys
for c in json.load(sys.stdin)["clients"]:
    if c["level"] == int(sys.argv[2]):
        print(c[sys.argv[1]])' "$1" "$2"
}
count() { jobs | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["clients"]))'; }
is() { [ "$("${@:2}")" = "$1" ]; }

# --- the shell of the image works, and what it starts is managed

# shellcheck disable=SC2016 # the container's shell is meant
said=$(container high "$root" /bin/sh -c 'echo "$TALLY_PRIORITY ${#TALLY_TREE} $(/opt/tally/bin/tally-run --version | cut -d" " -f1)"' 2>"$scratch/shell.log") ||
    fail "a shell does not start"
[ "$said" = "high 32 tally-run" ] || fail "the container's shell says: $said"
more=(-e TALLY_PRIORITY=high)
# shellcheck disable=SC2016
[ "$(container low "$root" /bin/sh -c 'echo $TALLY_PRIORITY')" = low ] || fail "-e changes the level"
more=()

# --- two containers share the device by priority

more=(--name tally-trainer)
container low "$root" /jobs/train --kind=coarse --seconds=600 >"$scratch/train.log" 2>&1 &
low=$! more=()
is_working() { [ "$(field launches -100 || :)" -gt 20 ]; }
await "the trainer's work" is_working
container high "$root" /jobs/serve --model=mlp --rate=20 --seconds=6 --latencies=/jobs/latencies >"$scratch/serve.log" 2>&1 ||
    fail "the server failed"
[ "$(wc -l <"$scratch/jobs/latencies")" -gt 50 ] || fail "the server answered $(wc -l <"$scratch/jobs/latencies") requests"
preemptions=$(field preemptions -100)
[ "$preemptions" -gt 0 ] || fail "the trainer never gave way: $preemptions preemptions"
echo "the server's $(wc -l <"$scratch/jobs/latencies") requests made the trainer give way $preemptions times"

# --- limits of memory, by variable and by class; what a container holds is free when it is killed

more=(-e TALLY_MEMORY=512M)
[ "$(container low "$root" /jobs/see)" = "total 512 got 512" ] || fail "TALLY_MEMORY=512M: $(container low "$root" /jobs/see)"
more=()
[ "$(container small "$root" /jobs/see)" = "total 256 got 256" ] || fail "the class 'small'"
podman "${options[@]}" kill --signal=TERM tally-trainer >/dev/null
wait "$low" || :
await "the trainer's end" is 0 count
before=$(container low "$root" /jobs/see)
more=(--name tally-holder)
container low "$root" /jobs/see hold >"$scratch/holder.log" 2>&1 &
holder=$!
await "the holder" is 1 count
await "what it holds" grep -q got "$scratch/holder.log"
more=()
[ "$(container high "$root" /jobs/see | sed 's/.*got //')" -lt "${before#*got }" ] || fail "nothing was held"
podman "${options[@]}" kill --signal=KILL tally-holder >/dev/null
wait "$holder" || :
await "the holder's end" is 0 count
[ "$(container low "$root" /jobs/see)" = "$before" ] || fail "a dead container holds memory"
! grep -F "$scratch/" /proc/mounts | grep -vF " /etc/cdi " || fail "mounts are left"
[ -z "$(podman "${options[@]}" ps --all --quiet)" ] || fail "containers are left"

# --- an image of musl

mkdir -p "$scratch"/musl/{bin,lib,proc,dev,etc,tmp,run,sys}
cp /bin/busybox "$scratch/musl/bin/sh"
cp /bin/busybox "$scratch/musl/lib/ld-musl-x86_64.so.1"
status=0
container high "$scratch/musl" /bin/sh -c 'echo started' >"$scratch/musl.log" 2>&1 || status=$?
[ $status != 0 ] || fail "an image of musl is not refused"
grep -q 'an-image-built-on-musl' "$scratch/musl.log" || fail "it is not said why an image of musl is refused"
! grep -q started "$scratch/musl.log" || fail "an image of musl was started"
sed -n '/built-on-musl/s/^/refused: /p' "$scratch/musl.log"

# --- rootless: an ordinary user with a tallyd of his own

user=64321
as_user() { setpriv --reuid=$user --regid=$user --clear-groups env HOME="$scratch/home" "$@"; }
kill "$daemon" "$compiler"
wait "$daemon" "$compiler" || :
mkdir -m 700 "$scratch/home" "$scratch/xdg2"
mkdir "$scratch/run2"
chown $user:$user "$scratch"/{home,xdg2,run2,cdi}
chmod 755 "$scratch" "$scratch/jobs"
export TALLY_SOCKET=$scratch/run2/tallyd.sock TALLY_CACHE=$scratch/home/cache XDG_RUNTIME_DIR=$scratch/xdg2 TALLY_DEVICE_NAME=$TALLY_DEVICE_NAME-2
as_user unshare --user --map-root-user true 2>/dev/null || skip "all but the rootless part: users may make no namespaces here"
as_user test -x "$build/bin/tally" -a -x "$root/bin" || skip "all but the rootless part: ordinary users may not enter $build"
as_user "$build/bin/tallyd" --idle=0 --log=info 2>"$scratch/tallyd2.log" &
daemon=$!
await "the user's tallyd" as_user "$build/bin/tally" ps
as_user "$build/bin/tally-jit" --foreground 2>"$scratch/jit2.log" &
compiler=$!
as_user "$build/bin/tally" cdi generate --device=soft >"$scratch/cdi2.log"
rootless() { # DEVICE COMMAND...
    local device=$1
    shift
    as_user podman --root "$scratch/home/store" --runroot "$scratch/home/runroot" --storage-driver=vfs --runtime crun --cgroup-manager=cgroupfs \
        --events-backend=none run --rm --network=none --cgroups=disabled --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --log-driver=none \
        -e TALLY_DEVICE_NAME -e TALLY_DEVICE_MEM=1G -e TALLY_LOG -e TALLY_MEMORY=128M -v "$scratch/jobs:/jobs" \
        --device "tally.dev/gpu=$device" --rootfs "$scratch/own" "$@"
}
# A root that is the user's own: the runtime makes the places for what it brings in.
cp -a "$root" "$scratch/own"
chown -R $user:$user "$scratch/own"
said=$(rootless low /jobs/see 2>"$scratch/rootless.log") || fail "rootless"
[ "$said" = "total 128 got 128" ] || fail "rootless: $said"
grep -q 'see.* joined at level -100' "$scratch/tallyd2.log" || fail "a rootless container does not join"
echo "rootless: $said"
