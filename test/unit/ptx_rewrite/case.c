#include "test/unit/ptx_rewrite/case.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/unit/ptx_rewrite/help.h"

struct reader {
    struct ptx_case *c;
    struct ptx_case_kernel *k; /* that the current line is for */
    char *message;
    size_t message_bytes;
    uint32_t line;
};

static bool complain(struct reader *r, const char *what, const char *about)
{
    snprintf(r->message, r->message_bytes, "line %u: %s: %s", r->line, what, about);
    return false;
}

static struct ptx_case_kernel *kernel_named(struct reader *r, const char *name, size_t n)
{
    struct ptx_case *c = r->c;
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        if (strlen(c->kernels[i].name) == n && memcmp(c->kernels[i].name, name, n) == 0)
            return &c->kernels[i];
    }
    if (c->n_kernels == PTX_CASE_KERNELS || n >= sizeof c->kernels[0].name)
        return NULL;
    memcpy(c->kernels[c->n_kernels].name, name, n);
    return &c->kernels[c->n_kernels++];
}

static int variant_named(const char *word, size_t n)
{
    for (int v = 0; v < TL_PTX_VARIANTS; v++) {
        const char *name = tl_ptx_variant_name((enum tl_ptx_variant)v);
        if (strlen(name) == n && memcmp(name, word, n) == 0)
            return v;
    }
    return -1;
}

static bool read_verdict(struct reader *r, char *words)
{
    uint32_t seen = 0;
    char *save = NULL;
    for (char *w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        char *code = strchr(w, '=');
        int v = code != NULL ? variant_named(w, (size_t)(code - w)) : -1, reason = 0;
        if (v < 0)
            return complain(r, "no such variant", w);
        code++;
        while (reason < TL_PTX_REASON_COUNT &&
               strcmp(code, tl_ptx_reason_code((enum tl_ptx_reason)reason)) != 0)
            reason++;
        if (reason == TL_PTX_REASON_COUNT)
            return complain(r, "no such reason", code);
        r->k->reasons[v] = (enum tl_ptx_reason)reason;
        seen |= 1u << v;
    }
    r->k->has_verdict = true;
    return seen == (1u << TL_PTX_VARIANTS) - 1
               ? true
               : complain(r, "a verdict is missing", "one per variant");
}

static bool read_conditions(struct reader *r, char *words)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } known[] = {{"warps-are-rows", TL_PTX_IF_WARPS_ARE_ROWS},
                 {"grid-is-line", TL_PTX_IF_GRID_IS_LINE},
                 {"one-wide-x", TL_PTX_IF_ONE_WIDE_X},
                 {"one-wide-y", TL_PTX_IF_ONE_WIDE_Y},
                 {"one-wide-z", TL_PTX_IF_ONE_WIDE_Z}};
    char *save = NULL;
    for (char *w = strtok_r(words, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        char *list = strchr(w, '='), *inner = NULL;
        int v = list != NULL ? variant_named(w, (size_t)(list - w)) : -1;
        if (v < 0)
            return complain(r, "no such variant", w);
        for (char *one = strtok_r(list + 1, "+", &inner); one != NULL;
             one = strtok_r(NULL, "+", &inner)) {
            uint32_t bit = 0;
            for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
                bit |= strcmp(one, known[i].name) == 0 ? known[i].bit : 0;
            if (bit == 0)
                return complain(r, "no such condition", one);
            r->k->conditions[v] |= bit;
        }
    }
    return true;
}

/* A number of at most `max`, with nothing behind it but `end`; moves behind that. */
static bool read_uint(const char **p, uint64_t max, char end, uint64_t *out)
{
    char *behind;
    errno = 0;
    *out = strtoull(*p, &behind, 0);
    bool ok = behind != *p && isdigit((unsigned char)**p) && *behind == end && errno == 0 &&
              *out <= max;
    *p = behind + (*behind != 0);
    return ok;
}

/* "grid=4,2,1" and what stands behind it, up to `end`. */
static bool read_numbers(const char **p, const char *key, uint32_t *out, uint32_t n, char end)
{
    size_t length = strlen(key);
    bool ok = strncmp(*p, key, length) == 0;
    for (uint32_t i = 0; ok && i < n; i++) {
        uint64_t value;
        *p += i == 0 ? length : 0;
        ok = read_uint(p, UINT32_MAX, i + 1 < n ? ',' : end, &value);
        out[i] = (uint32_t)value;
    }
    return ok;
}

static bool read_run(struct reader *r, const char *words)
{
    if (r->k->n_runs == PTX_CASE_RUNS)
        return complain(r, "too many runs", words);
    struct ptx_case_run *run = &r->k->runs[r->k->n_runs++];
    const char *p = words;
    bool ok = read_numbers(&p, "grid=", run->grid, 3, ' ') &&
              read_numbers(&p, "block=", run->block, 3, ' ') &&
              read_numbers(&p, "shared=", &run->shared, 1, 0);
    for (int i = 0; i < 3; i++)
        ok &= run->grid[i] != 0 && run->block[i] != 0;
    return ok ? true : complain(r, "not a launch", words);
}

static uint32_t bytes_of_type(const char *type)
{
    static const struct {
        const char *name;
        uint32_t bytes;
    } types[] = {{"u8", 1}, {"u16", 2}, {"u32", 4}, {"u64", 8}, {"s32", 4}, {"f32", 4}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(type, types[i].name) == 0)
            return types[i].bytes;
    }
    return 0;
}

static bool read_fill(struct reader *r, struct ptx_case_arg *a, const char *words)
{
    static const char *const names[] = {"zero", "iota", "countdown"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(words, names[i]) == 0) {
            a->fill = (enum ptx_case_fill)i;
            return true;
        }
    }
    a->fill = PTX_FILL_RANDOM;
    const char *seed = words + 7;
    return strncmp(words, "random ", 7) == 0 && read_uint(&seed, UINT64_MAX, 0, &a->value)
               ? true
               : complain(r, "no such fill", words);
}

static bool read_number(struct reader *r, struct ptx_case_arg *a, const char *word)
{
    char *end;
    if (a->type[0] == 'f') {
        float value = strtof(word, &end);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        a->value = bits;
    } else {
        a->value = a->type[0] == 's' ? (uint64_t)strtoll(word, &end, 0) : strtoull(word, &end, 0);
    }
    return end != word && *end == 0 ? true : complain(r, "not a number", word);
}

/* "1024 iota" */
static bool read_filled(struct reader *r, struct ptx_case_arg *a, const char *words)
{
    uint64_t count;
    const char *p = words;
    if (!read_uint(&p, UINT32_MAX, ' ', &count) || count == 0)
        return complain(r, "not a number of elements", words);
    a->count = (uint32_t)count;
    return read_fill(r, a, p);
}

static bool read_arg(struct reader *r, const char *words)
{
    if (r->k->n_args == PTX_CASE_ARGS)
        return complain(r, "too many arguments", words);
    struct ptx_case_arg *a = &r->k->args[r->k->n_args++];
    *a = (struct ptx_case_arg){.kind = PTX_ARG_NUMBER, .element_bytes = 1, .count = 1};
    const char *p = words;
    if (strncmp(p, "bytes ", 6) == 0) {
        a->kind = PTX_ARG_BYTES;
        return read_filled(r, a, p + 6);
    }
    if (strncmp(p, "buffer ", 7) == 0) {
        a->kind = PTX_ARG_BUFFER;
        p += 7;
    }
    size_t n = strcspn(p, " ");
    if (n < sizeof a->type)
        memcpy(a->type, p, n);
    a->element_bytes = bytes_of_type(a->type);
    if (a->element_bytes == 0 || p[n] != ' ')
        return complain(r, "not an argument", words);
    p += n + 1;
    return a->kind == PTX_ARG_BUFFER ? read_filled(r, a, p) : read_number(r, a, p);
}

static bool read_ptxas(struct reader *r, const char *words)
{
    if (strncmp(words, "no, because ", 12) == 0) {
        r->c->ptxas_refuses = true;
        return true;
    }
    snprintf(r->c->ptxas_options, sizeof r->c->ptxas_options, "%s", words);
    return words[0] == '-' ? true : complain(r, "neither options nor 'no, because'", words);
}

static bool read_line(struct reader *r, char *line)
{
    r->k = kernel_named(r, "", 0);
    if (strncmp(line, "kernel ", 7) == 0 && strchr(line, ':') != NULL) {
        char *colon = strchr(line, ':');
        r->k = kernel_named(r, line + 7, (size_t)(colon - line - 7));
        line = colon + 1 + strspn(colon + 1, " ");
    }
    if (r->k == NULL)
        return complain(r, "too many kernels", line);
    if (strncmp(line, "verdict: ", 9) == 0)
        return read_verdict(r, line + 9);
    if (strncmp(line, "conditions: ", 12) == 0)
        return read_conditions(r, line + 12);
    if (strncmp(line, "run: ", 5) == 0)
        return read_run(r, line + 5);
    if (strncmp(line, "arg: ", 5) == 0)
        return read_arg(r, line + 5);
    if (strncmp(line, "ptxas: ", 7) == 0)
        return read_ptxas(r, line + 7);
    return true; /* words for people */
}

bool ptx_case_read(struct ptx_case *c, const char *path, char *message, size_t message_bytes)
{
    struct reader r = {.c = c, .message = message, .message_bytes = message_bytes};
    size_t length = strlen(path);
    *c = (struct ptx_case){0};
    c->text = ptx_read_file(path, &c->n);
    if (c->text == NULL)
        return complain(&r, "cannot read", path);
    c->is_cuda = length > 3 && strcmp(path + length - 3, ".cu") == 0;
    for (const char *p = c->text; p[0] == '/' && p[1] == '/'; p++) {
        char line[256];
        size_t n = strcspn(p, "\n");
        r.line++;
        snprintf(line, sizeof line, "%.*s", (int)(n < 3 ? 0 : n - 3), p + 3);
        if (!read_line(&r, line))
            return false;
        p += n;
        if (*p == 0)
            break;
    }
    return r.line > 1 ? true : complain(&r, "no annotations", path);
}

void ptx_case_finish(struct ptx_case *c)
{
    free(c->text);
    *c = (struct ptx_case){0};
}

const struct ptx_case_kernel *ptx_case_kernel_of(const struct ptx_case *c, struct tl_str kernel)
{
    const struct ptx_case_kernel *for_all = NULL;
    for (uint32_t i = 0; i < c->n_kernels; i++) {
        if (tl_str_is(kernel, c->kernels[i].name))
            return &c->kernels[i];
        if (c->kernels[i].name[0] == 0)
            for_all = &c->kernels[i];
    }
    return for_all;
}

/* --- arguments ----------------------------------------------------------------------------- */

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

static uint64_t element(const struct ptx_case_arg *a, uint32_t i, uint64_t *state)
{
    bool is_float = a->type[0] == 'f';
    float f = (float)i;
    uint32_t bits;
    switch (a->fill) {
    case PTX_FILL_ZERO:
        return 0;
    case PTX_FILL_COUNTDOWN:
        return i == 0 ? 0 : i - 1;
    case PTX_FILL_IOTA:
        if (!is_float)
            return i;
        break;
    case PTX_FILL_RANDOM: {
        uint64_t z = splitmix(state);
        if (!is_float)
            return z;
        f = (float)(z >> 40) / 16777216.0f;
        break;
    }
    }
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

uint32_t ptx_case_arg_bytes(const struct ptx_case_arg *a)
{
    return a->kind == PTX_ARG_NUMBER ? a->element_bytes
                                     : a->count * (a->kind == PTX_ARG_BYTES ? 1 : a->element_bytes);
}

void ptx_case_fill(const struct ptx_case_arg *a, void *to)
{
    uint64_t state = a->value;
    uint32_t size = a->kind == PTX_ARG_BYTES ? 1 : a->element_bytes;
    for (uint32_t i = 0; i < a->count; i++) {
        uint64_t v = element(a, i, &state);
        memcpy((uint8_t *)to + (size_t)i * size, &v, size);
    }
}

/* --- programs ------------------------------------------------------------------------------ */

pid_t ptx_start(char *const argv[], const char *output)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    if (argv[0] == NULL || posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int rc = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 ? pid : -1;
}

/* Where the result of a compilation is kept: under TALLY_BUILD, because nvcc takes its time. */
static void compiled_path(char *out, size_t n, const char *path)
{
    static const char *const levels[] = {"", "/test", "/test/cases"};
    const char *build = getenv("TALLY_BUILD"), *name = strrchr(path, '/');
    char folder[4096];
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        snprintf(folder, sizeof folder, "%s%s", build != NULL && build[0] != 0 ? build : "build",
                 levels[i]);
        (void)mkdir(folder, 0777); /* it is there mostly; if it cannot be made, nvcc will say so */
    }
    snprintf(out, n, "%s/%s.ptx", folder, name != NULL ? name + 1 : path);
}

static bool is_newer(const char *path, const char *than)
{
    struct stat a, b;
    return stat(path, &a) == 0 && stat(than, &b) == 0 && a.st_mtime > b.st_mtime;
}

bool ptx_case_compile(struct ptx_case *c, const char *path)
{
    const char *nvcc = ptx_cuda_tool("NVCC", "nvcc");
    char program[4096], option[] = "-ptx", arch[] = "-arch=sm_90", to[] = "-o", in[4400], out[4400],
                        kept[4352];
    compiled_path(kept, sizeof kept, path);
    free(c->text);
    c->text = NULL;
    if (!is_newer(kept, path)) {
        if (nvcc == NULL)
            return false;
        snprintf(program, sizeof program, "%s", nvcc);
        snprintf(in, sizeof in, "%s", path);
        snprintf(out, sizeof out, "%s.%ld", kept, (long)getpid());
        char *argv[] = {program, option, arch, in, to, out, NULL};
        pid_t pid = ptx_start(argv, "/dev/null");
        int status = -1;
        if (pid <= 0 || waitpid(pid, &status, 0) != pid || status != 0 || rename(out, kept) != 0) {
            unlink(out);
            return false;
        }
    }
    c->text = ptx_read_file(kept, &c->n);
    return c->text != NULL;
}

static int is_case(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return (n > 4 && strcmp(d->d_name + n - 4, ".ptx") == 0) ||
           (n > 3 && strcmp(d->d_name + n - 3, ".cu") == 0);
}

uint32_t ptx_case_names(char ***names)
{
    struct dirent **found = NULL;
    int n = scandir(ptx_cases_folder(), &found, is_case, alphasort);
    *names = n > 0 ? calloc((size_t)n, sizeof(char *)) : NULL;
    for (int i = 0; i < n; i++) {
        if (*names != NULL)
            (*names)[i] = strdup(found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return *names != NULL ? (uint32_t)n : 0;
}

void ptx_case_names_free(char **names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

const char *ptx_cases_folder(void)
{
    const char *folder = getenv("TALLY_CASES");
    return folder != NULL && folder[0] != 0 ? folder : "test/cases";
}

const char *ptx_cuda_tool(const char *variable, const char *name)
{
    static char found[4096];
    const char *given = getenv(variable), *path = getenv("PATH");
    if (given != NULL && given[0] != 0)
        return given;
    char folders[16384];
    snprintf(folders, sizeof folders, "%s:/usr/local/cuda/bin:build/tools/cuda/bin",
             path != NULL ? path : "");
    char *save = NULL;
    for (char *f = strtok_r(folders, ":", &save); f != NULL; f = strtok_r(NULL, ":", &save)) {
        int n = snprintf(found, sizeof found, "%s/%s", f, name);
        if (n > 0 && (size_t)n < sizeof found && access(found, X_OK) == 0)
            return found;
    }
    return NULL;
}
