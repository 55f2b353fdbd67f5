/* libtally-nvtx.so: what NVTX's users name, for the report.
 *
 * NVTX is header-only; each library that has it asks the file named by NVTX_INJECTION64_PATH, which
 * tally-run points here, for functions to call.  Each thread has a stack of the ranges that are
 * open on it; the innermost that has a name is the operation that its launches belong to, and its
 * number is put where the interception library looks (intercept/shim/ops.c).  In a process without
 * that library it steps aside, and NVTX stays switched off.  libc only.
 *
 * A range that was started (not pushed) counts for the thread that started it.  If another one ends
 * it, the first learns that when it next opens or closes a range itself. */
#include "intercept/nvtx/nvtx.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, DOMAINS = 64, NAME_BYTES = 256, STARTED = 1024 };

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(nvtx_get_table *get_table);

static uint32_t (*op_named)(const char *name);
static uint32_t *(*op_place)(void);

struct range {
    const void *domain; /* NULL: the default one */
    uint32_t op;        /* 0: it has no name, or there were too many */
    uint64_t id;        /* of one that was started; 0: it was pushed */
};

static _Thread_local struct {
    uint32_t *place; /* NULL: nothing was opened on this thread yet */
    uint32_t n;      /* ranges in the stack */
    uint32_t beyond; /* pushed, and too deep for it */
    struct range stack[DEPTH];
} own;

/* --- names --- */

static _Atomic(const char *) domains[DOMAINS]; /* [0] is the default one */
static _Atomic uint32_t n_domains = 1;

/* As UTF-8, cut to fit. */
static void narrow(char out[NAME_BYTES], const wchar_t *wide)
{
    size_t n = 0;
    for (; wide != NULL && *wide != 0 && n + 5 < NAME_BYTES; wide++) {
        uint32_t c = (uint32_t)*wide;
        if (c < 0x80) {
            out[n++] = (char)c;
        } else if (c < 0x800) {
            out[n++] = (char)(0xc0 | c >> 6);
            out[n++] = (char)(0x80 | (c & 0x3f));
        } else if (c < 0x10000) {
            out[n++] = (char)(0xe0 | c >> 12);
            out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
            out[n++] = (char)(0x80 | (c & 0x3f));
        } else {
            out[n++] = (char)(0xf0 | (c >> 18 & 7));
            out[n++] = (char)(0x80 | (c >> 12 & 0x3f));
            out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
            out[n++] = (char)(0x80 | (c & 0x3f));
        }
    }
    out[n] = 0;
}

static const void *make_domain(const char *name)
{
    uint32_t n = atomic_fetch_add(&n_domains, 1);
    if (n >= DOMAINS)
        n = DOMAINS - 1; /* the last ones share a place, and its name */
    char *copy = strdup(name != NULL ? name : "");
    const char *none = NULL;
    if (copy != NULL && !atomic_compare_exchange_strong(&domains[n], &none, copy))
        free(copy);
    return (const void *)(uintptr_t)n;
}

/* Frameworks put numbers of calls into names, with which no two were equal.  Of PyTorch's
 * "aten::mm, seq = 7, op_id = 12" the operation is kept; of XLA's "Thunk:#hlo_op=fusion.3#" the
 * operation, and of what else it has between #s nothing. */
static void tidy(char out[NAME_BYTES], const char *name)
{
    static const char *const ends[] = {", seq = ", ", op_id = ", ":#", "#"};
    size_t n = strlen(name);
    const char *op = strstr(name, "#hlo_op=");
    if (op != NULL) {
        name = op + strlen("#hlo_op=");
        n = strcspn(name, ",#");
    } else if (name[0] != '#') {
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            const char *end = strstr(name, ends[i]);
            if (end != NULL && (size_t)(end - name) < n)
                n = (size_t)(end - name);
        }
    }
    snprintf(out, NAME_BYTES, "%.*s", (int)(n < NAME_BYTES ? n : NAME_BYTES - 1), name);
}

/* "DOMAIN: NAME", or the name alone in the default domain. */
static uint32_t op_in(const void *domain, const char *name)
{
    char text[NAME_BYTES + 64], plain[NAME_BYTES];
    uintptr_t n = (uintptr_t)domain;
    const char *prefix = n > 0 && n < DOMAINS
                             ? atomic_load_explicit(&domains[n], memory_order_relaxed)
                             : NULL;
    if (name == NULL || name[0] == 0)
        return 0;
    tidy(plain, name);
    snprintf(text, sizeof text, "%.60s%s%s", prefix != NULL ? prefix : "",
             prefix != NULL ? ": " : "", plain);
    return op_named(text);
}

static uint32_t op_in_wide(const void *domain, const wchar_t *name)
{
    char text[NAME_BYTES];
    narrow(text, name);
    return op_in(domain, text);
}

static uint32_t op_of(const void *domain, const struct nvtx_attributes *a)
{
    if (a == NULL || a->size < sizeof *a)
        return 0;
    switch (a->message_type) {
    case NVTX_MESSAGE_ASCII:
        return op_in(domain, a->message.ascii);
    case NVTX_MESSAGE_UNICODE:
        return op_in_wide(domain, a->message.unicode);
    case NVTX_MESSAGE_REGISTERED:
        return (uint32_t)(uintptr_t)a->message.registered; /* the handle is the number */
    default:
        return 0;
    }
}

/* --- the stack --- */

static _Atomic uint64_t
    /* open ones, by number; a newer one of the same place counts as the end of the older */
    started[STARTED];
static _Atomic uint64_t n_started;

static bool is_open(const struct range *r)
{
    return r->id == 0 ||
           atomic_load_explicit(&started[r->id % STARTED], memory_order_relaxed) == r->id;
}

static void tell(void)
{
    uint32_t kept = 0, op = 0;
    for (uint32_t i = 0; i < own.n; i++)
        if (is_open(&own.stack[i]))
            own.stack[kept++] = own.stack[i];
    own.n = kept;
    for (uint32_t i = kept; i > 0 && op == 0; i--)
        op = own.stack[i - 1].op;
    *own.place = op;
}

static void open_range(const void *domain, uint32_t op, uint64_t id)
{
    if (own.place == NULL)
        own.place = op_place();
    if (own.n == DEPTH) {
        own.beyond += id == 0;
        return;
    }
    own.stack[own.n++] = (struct range){domain, op, id};
    tell();
}

/* How many ranges of the domain are pushed: that is what NVTX returns as the level. */
static int level(const void *domain)
{
    int n = (int)own.beyond;
    for (uint32_t i = 0; i < own.n; i++)
        n += own.stack[i].domain == domain && own.stack[i].id == 0;
    return n;
}

static int push(const void *domain, uint32_t op)
{
    int before = level(domain);
    open_range(domain, op, 0);
    return before;
}

static int pop(const void *domain)
{
    if (own.beyond > 0) {
        own.beyond--;
        return level(domain);
    }
    for (uint32_t i = own.n; i > 0; i--) {
        if (own.stack[i - 1].domain != domain || own.stack[i - 1].id != 0)
            continue;
        memmove(&own.stack[i - 1], &own.stack[i], (own.n - i) * sizeof own.stack[0]);
        own.n--;
        tell();
        return level(domain);
    }
    return -1; /* nothing was pushed */
}

static uint64_t start(const void *domain, uint32_t op)
{
    uint64_t id = atomic_fetch_add_explicit(&n_started, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&started[id % STARTED], id, memory_order_relaxed);
    open_range(domain, op, id);
    return id;
}

static void end(uint64_t id)
{
    uint64_t there = id;
    if (id == 0)
        return;
    atomic_compare_exchange_strong_explicit(&started[id % STARTED], &there, 0, memory_order_relaxed,
                                            memory_order_relaxed);
    if (own.place != NULL)
        tell();
}

/* --- what NVTX calls --- */

static uint64_t range_start_ex(const struct nvtx_attributes *a)
{
    return start(NULL, op_of(NULL, a));
}

static uint64_t range_start_a(const char *message)
{
    return start(NULL, op_in(NULL, message));
}

static uint64_t range_start_w(const wchar_t *message)
{
    return start(NULL, op_in_wide(NULL, message));
}

static int range_push_ex(const struct nvtx_attributes *a)
{
    return push(NULL, op_of(NULL, a));
}

static int range_push_a(const char *message)
{
    return push(NULL, op_in(NULL, message));
}

static int range_push_w(const wchar_t *message)
{
    return push(NULL, op_in_wide(NULL, message));
}

static int range_pop(void)
{
    return pop(NULL);
}

static uint64_t domain_range_start_ex(const void *domain, const struct nvtx_attributes *a)
{
    return start(domain, op_of(domain, a));
}

static void domain_range_end(const void *domain, uint64_t id)
{
    (void)domain;
    end(id);
}

static int domain_range_push_ex(const void *domain, const struct nvtx_attributes *a)
{
    return push(domain, op_of(domain, a));
}

static int domain_range_pop(const void *domain)
{
    return pop(domain);
}

static const void *domain_register_string_a(const void *domain, const char *string)
{
    return (const void *)(uintptr_t)op_in(domain, string);
}

static const void *domain_register_string_w(const void *domain, const wchar_t *string)
{
    return (const void *)(uintptr_t)op_in_wide(domain, string);
}

static const void *domain_create_a(const char *name)
{
    return make_domain(name);
}

static const void *domain_create_w(const wchar_t *name)
{
    char text[NAME_BYTES];
    narrow(text, name);
    return make_domain(text);
}

struct entry {
    unsigned number;
    nvtx_function *function;
};

/* clang-format off */
#define ENTRY(number, f) {number, (nvtx_function *)(void *)(f)}
static const struct entry core[] = {
    ENTRY(NVTX_RANGE_START_EX, range_start_ex), ENTRY(NVTX_RANGE_START_A, range_start_a), ENTRY(NVTX_RANGE_START_W, range_start_w),
    ENTRY(NVTX_RANGE_END, end), ENTRY(NVTX_RANGE_PUSH_EX, range_push_ex), ENTRY(NVTX_RANGE_PUSH_A, range_push_a),
    ENTRY(NVTX_RANGE_PUSH_W, range_push_w), ENTRY(NVTX_RANGE_POP, range_pop),
};
static const struct entry core2[] = {
    ENTRY(NVTX_DOMAIN_RANGE_START_EX, domain_range_start_ex), ENTRY(NVTX_DOMAIN_RANGE_END, domain_range_end),
    ENTRY(NVTX_DOMAIN_RANGE_PUSH_EX, domain_range_push_ex), ENTRY(NVTX_DOMAIN_RANGE_POP, domain_range_pop),
    ENTRY(NVTX_DOMAIN_REGISTER_STRING_A, domain_register_string_a), ENTRY(NVTX_DOMAIN_REGISTER_STRING_W, domain_register_string_w),
    ENTRY(NVTX_DOMAIN_CREATE_A, domain_create_a), ENTRY(NVTX_DOMAIN_CREATE_W, domain_create_w),
};
/* clang-format on */

static bool fill(const struct nvtx_callbacks *callbacks, int module, const struct entry *entries,
                 size_t count)
{
    nvtx_function ***table = NULL;
    unsigned n = 0;
    if (callbacks->table(module, &table, &n) == 0 || table == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        if (entries[i].number < n && table[entries[i].number] != NULL)
            *table[entries[i].number] = entries[i].function;
    return true;
}

/* Called once by every copy of NVTX in the process.  Nonzero: it shall call what was filled in. */
int InitializeInjectionNvtx2(nvtx_get_table *get_table)
{
    void *named = dlsym(RTLD_DEFAULT, "tally_op_named"),
         *place = dlsym(RTLD_DEFAULT, "tally_op_place");
    if (named == NULL || place == NULL || get_table == NULL)
        return 0;
    memcpy(&op_named, &named, sizeof op_named);
    memcpy(&op_place, &place, sizeof op_place);
    const struct nvtx_callbacks *callbacks = get_table(NVTX_TABLE_CALLBACKS);
    if (callbacks == NULL || callbacks->bytes < sizeof *callbacks)
        return 0;
    bool is_core = fill(callbacks, NVTX_MODULE_CORE, core, sizeof core / sizeof core[0]);
    bool is_core2 = fill(callbacks, NVTX_MODULE_CORE2, core2, sizeof core2 / sizeof core2[0]);
    return is_core || is_core2;
}
