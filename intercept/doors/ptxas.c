/* A stand-in for ptxas, which Triton and XLA run as a program (tally-run points TRITON_PTXAS_PATH
 * and XLA's cuda data folder at it).
 *
 *     ptxas in.ptx -o out.cubin ──► the real ptxas ──► out.cubin, and in.ptx kept under the digest of it (doors.h),
 *                                                      and of its kernels' code (tally/origin.h)
 *                               ──► no real one, or the software device: out.cubin is in.ptx itself, which a driver takes as well
 *
 * The real one is TALLY_PTXAS, else the first ptxas of PATH, CUDA_HOME/bin and /usr/local/cuda/bin
 * that is not this one. */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intercept/doors/doors.h"
#include "tally/file.h"
#include "tally/origin.h"

static const char help[] = "usage: ptxas [OPTIONS] FILE -o OUTPUT\n"
                           "\n"
                           "Tally's stand-in: runs the real ptxas and keeps the PTX beside what it "
                           "makes, in TALLY_CACHE (or ~/.cache/tally). "
                           " Where there "
                           "is\nno real one, or the job runs on Tally's software device, OUTPUT is "
                           "the PTX itself, which the driver "
                           "compiles.\n"
                           "\n"
                           "TALLY_PTXAS names the real one; else it is searched for in PATH, "
                           "CUDA_HOME/bin and /usr/local/cuda/bin.\n";

/* What frameworks read of --version where there is no real one: that of a ptxas that knows all of
 * them. */
static const char version[] =
    "ptxas: NVIDIA (R) Ptx optimizing assembler (Tally's stand-in: hands over PTX)\n"
    "Cuda compilation tools, release 13.0, V13.0.88\n";

/* --- the real one --- */

static struct stat self;

static bool is_program(const char *path, char real[PATH_MAX])
{
    struct stat st;
    return realpath(path, real) != NULL && stat(real, &st) == 0 && S_ISREG(st.st_mode) &&
           access(real, X_OK) == 0 && (st.st_ino != self.st_ino || st.st_dev != self.st_dev);
}

static bool is_in(const char *folder, size_t n, const char *below, char real[PATH_MAX])
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%.*s%s/ptxas", (int)n, folder, below);
    return n != 0 && length > 0 && (size_t)length < sizeof path && is_program(path, real);
}

static bool find_real(char real[PATH_MAX])
{
    const char *asked = secure_getenv("TALLY_PTXAS"), *path = secure_getenv("PATH"),
               *home = secure_getenv("CUDA_HOME");
    if (asked != NULL && asked[0] != '\0')
        return is_program(asked, real);
    while (path != NULL && *path != '\0') {
        size_t n = strcspn(path, ":");
        if (is_in(path, n, "", real))
            return true;
        path += n + (path[n] != '\0');
    }
    if (home != NULL && is_in(home, strlen(home), "/bin", real))
        return true;
    return is_in("/usr/local/cuda", strlen("/usr/local/cuda"), "/bin", real);
}

/* The software device, which is installed beside this program, has no use for machine code. */
static bool is_soft(void)
{
    char path[PATH_MAX], device[PATH_MAX], driver[PATH_MAX];
    const char *asked = secure_getenv("TALLY_DRIVER");
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (asked == NULL || n <= 0)
        return false;
    path[n] = '\0';
    for (int i = 0; i < 3; i++) { /* LIBRARY_FOLDER/cuda/bin/ptxas */
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    if (strlen(path) + sizeof "/device/libcuda.so.1" > sizeof path)
        return false;
    strcat(path, "/device/libcuda.so.1");
    return realpath(path, device) != NULL && realpath(asked, driver) != NULL &&
           strcmp(device, driver) == 0;
}

/* --- what it is asked for --- */

struct task {
    const char *input, *output;
    bool is_version, is_help;
    bool is_plain; /* one input, one output, nothing that leads elsewhere */
};

static struct task read_arguments(int argc, char **argv)
{
    struct task t = {.is_plain = true};
    int inputs = 0;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *equals = strchr(a, '=');
        size_t n = equals != NULL ? (size_t)(equals - a) : strlen(a);
        struct stat st;
        if ((n == 2 && memcmp(a, "-o", 2) == 0) || (n == 13 && memcmp(a, "--output-file", 13) == 0))
            t.output = equals != NULL ? equals + 1 : i + 1 < argc ? argv[++i] : NULL;
        else if (strcmp(a, "--version") == 0 || strcmp(a, "-V") == 0)
            t.is_version = true;
        else if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
            t.is_help = true;
        else if (strncmp(a, "--options-file", 14) == 0 || strncmp(a, "-optf", 5) == 0)
            t.is_plain = false;
        else if (a[0] != '-' && stat(a, &st) == 0 && S_ISREG(st.st_mode)) {
            t.input = a;
            inputs++;
        }
    }
    t.is_plain = t.is_plain && inputs == 1 && t.output != NULL;
    return t;
}

static char *read_file(const char *path, size_t *n)
{
    char *bytes;
    (void)tl_file_read(path, SIZE_MAX, &bytes, n);
    return bytes;
}

/* The output is the input, with the NUL that a driver ends at. */
static int hand_over(const struct task *t)
{
    size_t n = 0;
    char *ptx = t->is_plain ? read_file(t->input, &n) : NULL;
    if (ptx == NULL) {
        fprintf(stderr, "ptxas (Tally's stand-in): needs one input file and -o, and there is no "
                        "real ptxas to hand the rest to\n");
        return 1;
    }
    FILE *f = fopen(t->output, "we");
    bool is_written = f != NULL && fwrite(ptx, 1, n + 1, f) == n + 1;
    if (f == NULL || fclose(f) != 0 || !is_written) {
        fprintf(stderr, "ptxas (Tally's stand-in): %s: %s\n", t->output, strerror(errno));
        is_written = false;
    }
    free(ptx);
    return is_written ? 0 : 1;
}

/* For the software device, which then knows the kernels by their code, wherever it stands. */
static void keep_origin(const void *code, size_t n, const char *ptx, size_t ptx_n)
{
    char path[TL_STORE_PATH];
    struct tl_store store;
    if (tl_store_folder(path, NULL) < 0 ||
        tl_store_open(&store, path, tl_store_limit_mb(), NULL) < 0)
        return;
    (void)tl_origin_keep(&store, code, n, ptx, ptx_n, NULL);
    tl_store_close(&store);
}

static int run_real(const char *real, char **argv, const struct task *t)
{
    /* without anything to keep, it takes this process's place */
    pid_t child = t->is_plain ? fork() : 0;
    if (child == 0) {
        argv[0] = (char *)real; /* NOLINT: execv changes nothing */
        execv(real, argv);
        fprintf(stderr, "ptxas (Tally's stand-in): %s: %s\n", real, strerror(errno));
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) {
        fprintf(stderr, "ptxas (Tally's stand-in): %s\n", strerror(errno));
        return 1;
    }
    if (WIFSIGNALED(status))
        return 128 + WTERMSIG(status);
    if (WEXITSTATUS(status) == 0) {
        size_t n = 0, ptx_n = 0;
        char *code = read_file(t->output, &n), *ptx = read_file(t->input, &ptx_n);
        if (code != NULL && ptx != NULL) {
            tl_doors_keep(code, n, ptx, ptx_n);
            keep_origin(code, n, ptx, ptx_n);
        }
        free(code);
        free(ptx);
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    char real[PATH_MAX];
    struct task t = read_arguments(argc, argv);
    if (stat("/proc/self/exe", &self) != 0)
        self.st_ino = 0;
    bool has_real = find_real(real) && !is_soft();
    if (t.is_help && !has_real) {
        fputs(help, stdout);
        return 0;
    }
    if (t.is_version && !has_real) {
        fputs(version, stdout);
        return 0;
    }
    return has_real ? run_real(real, argv, &t) : hand_over(&t);
}
