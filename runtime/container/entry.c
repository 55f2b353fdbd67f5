/* libtally-entry.so: in a container that was given a device of tally.dev/gpu, whatever program
 * begins is begun again under tally-run.
 *
 * A CDI file (`tally cdi generate`) can add variables and files to a container, not change its
 * command, and variables alone do not do what tally-run does: lists that the image has set
 * (LD_PRELOAD, LD_LIBRARY_PATH) would be replaced, the container would have no ledger of memory,
 * and a preload would break programs of another libc.  So /etc/ld.so.preload, which only glibc
 * reads, names this library; before the program's own code runs it calls execve with tally-run and
 * the same arguments.  What tally-run then starts has TALLY_TREE in its environment, as all that
 * follows from it, and is left alone.
 *
 * It is loaded into everything, and whatever goes wrong here, the program goes on.  It needs no
 * newer libc than 2.17 has (test/integration/cdi.sh). */
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 4096, PATH_BYTES = 4096 };

/* Both through the system call: the functions of that name are as new as the libc that this was
 * compiled with. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return syscall(SYS_newfstatat, AT_FDCWD, a, &x, 0) == 0 &&
           syscall(SYS_newfstatat, AT_FDCWD, b, &y, 0) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* The path by which this program was begun, so that execve with it does the same: what a virtual
 * environment's python is goes by the link's own name.  For a script it is the interpreter. */
static const char *own_path(const char *name, char *memory)
{
    const char *said = (const char *)getauxval(AT_EXECFN);
    if (strchr(name, '/') != NULL && is_same_file(name, "/proc/self/exe"))
        return name;
    if (said != NULL && is_same_file(said, "/proc/self/exe"))
        return said;
    ssize_t n = readlink("/proc/self/exe", memory, PATH_BYTES - 1);
    if (n <= 0)
        return NULL;
    memory[n] = 0;
    return memory;
}

/* glibc calls the functions of .init_array with what main gets. */
static void __attribute__((constructor)) begin_again(int argc, char **argv, char **envp)
{
    static char *arguments[MOST_ARGUMENTS + 4];
    static char memory[PATH_BYTES];
    static char quiet[] = "--quiet", end[] = "--";
    char *run = secure_getenv("TALLY_CONTAINER"), *tree = secure_getenv("TALLY_TREE");
    if (run == NULL || run[0] != '/' || (tree != NULL && tree[0] != 0) || argc < 1 ||
        argc > MOST_ARGUMENTS || is_same_file(run, "/proc/self/exe"))
        return;
    const char *path = own_path(argv[0], memory);
    if (path == NULL || access(run, X_OK) < 0)
        return;
    arguments[0] = run;
    arguments[1] = quiet;
    arguments[2] = end;
    arguments[3] = (char *)path;
    for (int i = 1; i < argc; i++)
        arguments[3 + i] = argv[i];
    arguments[3 + argc] = NULL;
    (void)execve(run, arguments, envp);
}
