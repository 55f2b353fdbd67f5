"""JAX asks the driver only if there is a file /dev/nvidia0, and computes on the CPU otherwise.  It gets one in a mount namespace of its own."""
import subprocess

NVIDIA0 = """
folder=$(mktemp -d)
for file in null zero random urandom full tty; do touch "$folder/$file"; mount --bind "/dev/$file" "$folder/$file"; done
mkdir "$folder/shm"; mount --bind /dev/shm "$folder/shm"; ln -s /proc/self/fd "$folder/fd"
touch "$folder/nvidia0"; mount --rbind "$folder" /dev
exec "$@"
"""


def missing():
    """Why there can be none here, or None."""
    done = subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False)
    return "no mount namespace can be made here, and JAX wants a /dev/nvidia0" if done.returncode else None


def wrap(command):
    """The command that runs another with it."""
    return ["unshare", "-m", "bash", "-c", NVIDIA0, "nvidia0", *command]
