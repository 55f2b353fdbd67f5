/* tally-jit: the compiler service's program, and its command line for people and tests. */
#include "device/service/client.h"
#include "device/service/wire.h"
#include "device/tally-jit/server.h"
#include "device/tally-jit/worker.h"
#include "tally/file.h"
#include "tally/options.h"
#include "tally/ptx.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int complain(const struct tl_error *err)
{
    fprintf(stderr, "tally-jit: %s\n", err->text);
    return 1;
}

/* --- serving ---------------------------------------------------------------------------------- */

/* STARTED: by the driver, which has done what makes a daemon */
enum place { FOREGROUND = 1000, DAEMON, STARTED };
enum { CACHE = STARTED + 1 }; /* what the driver says with it: its own word for the folder */

/* Nothing of who started it stays: no descriptors, terminal, folder or parent. */
static int go_to_background(enum place place, struct tl_error *err)
{
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 2) < 0)
        return tl_error_errno(err, "/dev/null");
    tl_close_from(3);
    for (int i = 0; i < 2 && place == DAEMON; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return tl_error_errno(err, "fork");
        if (pid > 0) {
            /* what only forks again is not left to init, which in containers may care for nobody */
            if (i == 0)
                (void)waitpid(pid, NULL, 0);
            _exit(0);
        }
        if (i == 0)
            (void)setsid();
    }
    umask(077);
    return chdir("/") < 0 ? tl_error_errno(err, "/") : 0;
}

/* Limits, cores and scheduling are those of the job that happened to start the service, which works
 * for others too. */
static void raise_limits(void)
{
    const struct sched_param plain = {0};
    int policy = sched_getscheduler(0);
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    /* the kernel leaves out what the administrator does not allow */
    (void)sched_setaffinity(0, sizeof all, &all);
    if (getpriority(PRIO_PROCESS, 0) > 0)
        (void)setpriority(PRIO_PROCESS, 0, 0);
    if (policy == SCHED_FIFO || policy == SCHED_RR)
        (void)sched_setscheduler(0, SCHED_OTHER, &plain);
    static const int limits[] = {RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU, RLIMIT_NOFILE};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct rlimit l;
        if (getrlimit(limits[i], &l) == 0) {
            l.rlim_cur = l.rlim_max;
            (void)setrlimit(limits[i], &l);
        }
    }
}

static int serve(enum place place, const char *cache)
{
    char folder[TL_STORE_PATH];
    struct tl_error err = {0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t workers = tl_jit_number(
        "TALLY_JIT_WORKERS", cores > 0 && cores < TL_JIT_WORKERS ? (uint32_t)cores : TL_JIT_WORKERS,
        TL_JIT_WORKERS);
    struct tl_jit_server_options options = {
        .program = "/proc/self/exe",
        .cache = cache != NULL                        ? cache
                 : tl_store_folder(folder, NULL) == 0 ? folder
                                                      : "",
        .workers = workers > 0 ? workers : 1,
        .idle_seconds = tl_jit_number("TALLY_JIT_IDLE", 60, 1000000),
        .ready = place == FOREGROUND ? -1 : 1,
        .is_foreground = place == FOREGROUND};
    if (place != FOREGROUND && go_to_background(place, &err) < 0)
        return complain(&err);
    if (place != FOREGROUND)
        raise_limits();
    return tl_jit_server_run(&options, &err) < 0 ? complain(&err) : 0;
}

/* --- asking ----------------------------------------------------------------------------------- */

/* The service of this very program. */
static int ask(enum tl_jit_kind kind)
{
    static char message[TL_JIT_MESSAGE_BYTES];
    struct tl_error err = {0};
    struct sockaddr_un address;
    char id[TL_JIT_COMPILER_ID_BYTES], path[TL_STORE_PATH], cache[TL_STORE_PATH], name[64];
    if (tl_store_folder(cache, NULL) < 0)
        cache[0] = '\0';
    if (tl_jit_compiler_id("/proc/self/exe", id, &err) < 0)
        return complain(&err);
    int folder = tl_jit_runtime_folder(path, &err);
    if (folder < 0)
        return complain(&err);
    tl_jit_service_name(id, cache, ".sock", name);
    tl_jit_address(&address, folder, path, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), got_fd;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        puts("no service is running");
        return 3;
    }
    const struct tl_jit_ask a = {.magic = TL_JIT_WIRE_MAGIC,
                                 .version = TL_JIT_WIRE_VERSION,
                                 .kind = kind,
                                 .kernel_bytes = 1,
                                 .cpu_bytes = 1,
                                 .features_bytes = 1,
                                 .cache_bytes = 1};
    memcpy(message, &a, sizeof a);
    const char *text;
    int n = tl_jit_send(fd, message, sizeof a + 4, -1);
    if (n == 0)
        n = tl_jit_receive(fd, message, sizeof message, &got_fd);
    if (n <= 0 || tl_jit_answer_check(message, (size_t)n, &text, &err) < 0) {
        fprintf(stderr, "tally-jit: the service does not answer\n");
        return 1;
    }
    puts(text);
    if (kind == TL_JIT_STOP) /* who removes the cache next must not meet it there */
        while (tl_jit_receive(fd, message, sizeof message, &got_fd) > 0)
            ;
    return 0;
}

/* --- compiling here --------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *n, struct tl_error *err)
{
    char *text;
    int rc = tl_file_read(path, SIZE_MAX, &text, n);
    if (rc < 0)
        tl_error_set(err, rc, "%s: %s", path, strerror(-rc));
    return text;
}

static int write_file(const char *path, const void *bytes, size_t n, struct tl_error *err)
{
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return tl_error_errno(err, "%s", path);
    bool is_bad = fwrite(bytes, 1, n, f) != n;
    if (fclose(f) != 0 || is_bad)
        return tl_error_errno(err, "%s", path);
    return 0;
}

/* The name of the only entry, for the caller to free. */
static char *only_entry(const char *ptx, size_t n, const char *path, struct tl_error *err)
{
    struct tl_ptx_index *ix;
    char *name = NULL;
    if (tl_ptx_index_create(&ix, ptx, n, path, err) < 0)
        return NULL;
    uint32_t entries = 0;
    for (uint32_t i = 0; i < tl_ptx_index_count(ix); i++) {
        const struct tl_ptx_item *item = tl_ptx_index_item(ix, i);
        if (item->kind != TL_PTX_ITEM_ENTRY || item->body == 0)
            continue;
        if (entries++ == 0)
            name = strndup(item->name.p, item->name.n);
    }
    tl_ptx_index_destroy(ix);
    if (entries == 1)
        return name;
    free(name);
    tl_error_set(err, -EINVAL, "%s has %u kernels; name one with --kernel", path, entries);
    return NULL;
}

struct command {
    const char *in, *out, *ir, *kernel;
    struct tl_jit_options options;
    bool is_get;
};

/* As the driver does it, with this program as the service. */
static int get(const char *ptx, size_t n, const struct command *c, struct tl_error *err)
{
    char path[TL_STORE_PATH + 100];
    char *self = realpath("/proc/self/exe", NULL);
    if (self != NULL)
        (void)setenv("TALLY_JIT", self, 1);
    free(self);
    bool is_quick;
    int rc = c->options.is_quick
                 ? tl_jit_client_get_soon(ptx, n, c->kernel, c->options.block, path, sizeof path,
                                          &is_quick, err)
                 : tl_jit_client_get(ptx, n, c->kernel, c->options.block, path, sizeof path, err);
    if (rc == 0 && err->text[0] != '\0')
        (void)complain(err);
    if (rc == 0)
        puts(path);
    return rc;
}

/* tally-jit compile: PTX from a file to an object, or to where a cache has it.  The exit status. */
static int compile(struct command *c)
{
    struct tl_error err = {0};
    void *object = NULL;
    char *ir = NULL, *name = NULL;
    size_t n = 0, object_n = 0;
    char *ptx = read_file(c->in, &n, &err);
    int rc = ptx == NULL ? err.code : 0;
    if (rc == 0 && c->kernel == NULL) {
        name = only_entry(ptx, n, c->in, &err);
        c->kernel = name;
        rc = name == NULL ? err.code : 0;
    }
    if (rc == 0 && c->is_get) {
        rc = get(ptx, n, c, &err);
        goto out;
    }
    if (rc == 0)
        rc = tl_jit_init(&err);
    if (rc == 0) {
        c->options.keep_ir = c->ir != NULL;
        rc = tl_jit_build(ptx, n, c->kernel, &c->options, &object, &object_n, &ir, &err);
    }
    /* The text is most wanted when the rest fails. */
    if (c->ir != NULL && ir != NULL)
        rc = write_file(c->ir, ir, strlen(ir), rc == 0 ? &err : NULL) < 0 && rc == 0 ? err.code
                                                                                     : rc;
    if (rc == 0)
        rc = write_file(c->out, object, object_n, &err);
out:
    free(object);
    free(ir);
    free(name);
    free(ptx);
    return rc < 0 ? complain(&err) : 0;
}

/* X or X,Y or X,Y,Z */
static bool parse_block(const char *text, uint32_t block[3])
{
    uint64_t threads = 1;
    block[0] = block[1] = block[2] = 1;
    for (int i = 0; i < 3; i++) {
        char *end;
        unsigned long n = strtoul(text, &end, 10);
        threads *= n <= 1024 ? n : 0;
        if (end == text || threads == 0)
            return false;
        block[i] = (uint32_t)n;
        text = end + 1;
        if (*end == '\0')
            return threads <= 1024;
        if (*end != ',')
            return false;
    }
    return false;
}

/* --- options ---------------------------------------------------------------------------------- */

enum { KERNEL = 256, BLOCK, IR, CPU, FEATURES, QUICK };

static const struct argp_option compile_table[] = {
    {"kernel", KERNEL, "NAME", 0, "The kernel, if there are several", 0},
    {"block", BLOCK, "X,Y,Z", 0, "Threads of a block; 256,1,1 if not said", 0},
    {"quick", QUICK, NULL, 0, "In little time, for slower code with equal results", 0},
    {"output", 'o', "FILE", 0, "Where to write the shared object", 0},
    {"ir", IR, "FILE", 0, "Also write LLVM's text form", 0},
    {"cpu", CPU, "CPU", 0, "Compile for another CPU, in LLVM's words", 0},
    {"features", FEATURES, "LIST", 0, "Its features, in LLVM's words", 0},
    {0},
};

/* The same without what the service decides. */
static const struct argp_option get_table[] = {
    {"kernel", KERNEL, "NAME", 0, "The kernel, if there are several", 0},
    {"block", BLOCK, "X,Y,Z", 0, "Threads of a block; 256,1,1 if not said", 0},
    {"quick", QUICK, NULL, 0, "A quick version will do, if there is no other", 0},
    {0},
};

/* argp's parser of the options of `compile`. */
static error_t parse_compile(int key, char *arg, struct argp_state *state)
{
    struct command *c = state->input;
    switch (key) {
    case KERNEL:
        c->kernel = arg;
        return 0;
    case BLOCK:
        if (!parse_block(arg, c->options.block))
            argp_error(state, "--block=%s: not X,Y,Z with at most 1024 threads", arg);
        return 0;
    case QUICK:
        c->options.is_quick = true;
        return 0;
    case 'o':
        c->out = arg;
        return 0;
    case IR:
        c->ir = arg;
        return 0;
    case CPU:
        c->options.cpu = arg;
        return 0;
    case FEATURES:
        c->options.features = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (c->in != NULL)
            argp_error(state, "one file at a time; what is '%s'?", arg);
        c->in = arg;
        return 0;
    case ARGP_KEY_END:
        if (c->in == NULL)
            argp_error(state, "no PTX file is given");
        if (c->out == NULL && !c->is_get)
            argp_error(state, "say where to write the object: -o OUT.so");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int compile_command(int argc, char **argv)
{
    static const struct argp compile_argp = {
        compile_table, parse_compile, "IN.ptx", "Compiles one kernel into a shared object.",
        NULL,          NULL,          NULL};
    static const struct argp get_argp = {
        get_table,
        parse_compile,
        "IN.ptx",
        "Has the service compile a kernel, as a program's launch would, and prints "
        "where the object is.",
        NULL,
        NULL,
        NULL};
    struct command c = {.options.block = {256, 1, 1}, .is_get = strcmp(argv[0], "get") == 0};
    argv[0] = c.is_get ? "tally-jit get" : "tally-jit compile"; /* for its messages */
    tl_options_parse(NULL, c.is_get ? &get_argp : &compile_argp, argc, argv, 0, NULL, &c);
    return compile(&c);
}

#ifndef TL_LLVM_VERSION
#define TL_LLVM_VERSION "?"
#endif

/* The version of LLVM is in the text, so that another one gives the program another build id. */
static int tell_version(void)
{
    struct tl_error err = {0};
    char id[TL_JIT_COMPILER_ID_BYTES];
    if (tl_jit_compiler_id("/proc/self/exe", id, &err) < 0)
        return complain(&err);
    printf("tally-jit %s, made for LLVM %s, build %s\n", tl_version, TL_LLVM_VERSION, id);
    return 0;
}

static const struct argp_option option_table[] = {
    {"foreground", FOREGROUND, NULL, 0, "Serve here, and tell on standard error what happens", 0},
    {"daemon", DAEMON, NULL, 0,
     "Serve in the background; standard output gets one byte when it does", 0},
    {"started", STARTED, NULL, OPTION_HIDDEN, NULL, 0},
    {"cache", CACHE, "FOLDER", OPTION_HIDDEN, NULL, 0},
    {0},
};

static const struct {
    const char *name, *summary;
} commands[] = {
    {"compile", "compile one kernel into a shared object"},
    {"get", "have the service compile a kernel, as a launch would, and print where the object is"},
    {"status", "what the running service has done"},
    {"stop", "end the running service when it has finished what somebody waits for"},
};

struct question {
    enum place place;  /* 0: none was asked for */
    const char *cache; /* NULL: as the environment says */
    char **command;
    int n; /* words of it */
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct question *q = state->input;
    switch (key) {
    case FOREGROUND:
    case DAEMON:
    case STARTED:
        q->place = (enum place)key;
        return 0;
    case CACHE:
        q->cache = arg;
        return 0;
    case ARGP_KEY_ARG: /* from here on everything is the command's */
        for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
            if (strcmp(arg, commands[i].name) == 0)
                q->command = state->argv + state->next - 1;
        if (q->command == NULL)
            argp_error(state, "there is no command '%s'; there are compile, get, status and stop",
                       arg);
        q->n = state->argc - state->next + 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_END:
        if ((q->command != NULL) == (q->place != 0))
            argp_error(state, "say either a command or --foreground or --daemon");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    option_table,
    parse_option,
    "compile IN.ptx -o OUT.so\n"
    "get IN.ptx\n"
    "status\n"
    "stop\n"
    "--foreground\n"
    "--daemon",
    "Compiles PTX kernels for the CPU.  The software CUDA device starts it as a service when it "
    "needs it; nobody has "
    "to.  It keeps what it compiled in TALLY_CACHE (or XDG_CACHE_HOME/tally, or ~/.cache/tally), "
    "and ends when it has "
    "had nothing to do for a while.\v"
    "tally-jit compile --help and tally-jit get --help tell their options.\n\n"
    "Environment: TALLY_JIT_WORKERS (default: cores), TALLY_JIT_IDLE (60 seconds), "
    "TALLY_JIT_SECONDS (of CPU time per "
    "kernel, 120), TALLY_JIT_MEMORY_MB (per worker, 4096), TALLY_JIT_VERIFY (1: check what is "
    "given to LLVM), "
    "TALLY_CACHE_MB (2048).",
    NULL,
    NULL,
    NULL};

int main(int argc, char **argv)
{
    struct question q = {0};
    if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
        return tell_version();
    if (argc == 2 && strcmp(argv[1], "--print-options") == 0)
        for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
            tl_options_print_command(commands[i].name, commands[i].summary);
    argp_err_exit_status = 2;
    tl_options_parse("tally-jit", &argp, argc, argv, ARGP_IN_ORDER, NULL, &q);
    if (q.command == NULL)
        return serve(q.place, q.cache);
    if (strcmp(q.command[0], "compile") == 0 || strcmp(q.command[0], "get") == 0)
        return compile_command(q.n, q.command);
    if (q.n > 1) {
        fprintf(stderr, "tally-jit: %s takes nothing behind it\n", q.command[0]);
        return 2;
    }
    return ask(strcmp(q.command[0], "status") == 0 ? TL_JIT_STATUS : TL_JIT_STOP);
}
