/* What kernels ask of their process, other than barriers: printf, assert, malloc, the clock,
 * textures, faults.
 *
 * Pointers come from kernels and may be wrong: they are followed only with the engine's in_kernel
 * set, so that a signal becomes the kernel's fault, and never while a lock is held. */
#include "device/exec/internal.h"
#include "tally/clock.h"
#include "tally/lock.h"

#include <stdio.h>
#include <string.h>

#define OUT_LIMIT ((size_t)1 << 20) /* CUDA's default buffer for printf */
#define FORMAT_LIMIT 4096
#define STRING_LIMIT 65536
#define FIELD_LIMIT 500 /* width and precision: snprintf is given a buffer for these */

/* --- reading kernel memory -------------------------------------------------------------------- */

/* Not checked by sanitizers: what is wrong here is the kernel's fault, and a signal tells. */
__attribute__((noinline, no_sanitize_address, no_sanitize_thread)) static void
read_kernel(struct tl__engine *e, void *to, const void *from, size_t n)
{
    volatile const uint8_t *p = from;
    uint8_t *q = to;
    tl__engine_leave_call(e);
    for (size_t i = 0; i < n; i++)
        q[i] = p[i];
    tl__engine_enter_call(e);
}

/* Bytes before the terminator, at most `limit`. */
__attribute__((noinline, no_sanitize_address, no_sanitize_thread)) static size_t
kernel_strlen(struct tl__engine *e, const char *text, size_t limit)
{
    volatile const char *p = text;
    size_t n = 0;
    tl__engine_leave_call(e);
    while (n < limit && p[n] != '\0')
        n++;
    tl__engine_enter_call(e);
    return n;
}

/* A terminated copy of at most size - 1 bytes. */
static void copy_text(struct tl__engine *e, char *to, size_t size, const char *from)
{
    size_t n = 0;
    if (from != NULL) {
        n = kernel_strlen(e, from, size - 1);
        read_kernel(e, to, from, n);
    }
    to[n] = '\0';
}

/* --- printf ----------------------------------------------------------------------------------- */

void tl__out_init(struct tl__out *o, bool is_error)
{
    memset(o, 0, sizeof *o);
    o->is_error = is_error;
    tl_mutex_init(&o->lock);
}

void tl__out_finish(struct tl__out *o)
{
    tl_buf_finish(&o->text);
    tl_mutex_destroy(&o->lock);
}

void tl__out_flush(struct tl__out *o)
{
    tl_mutex_lock(&o->lock);
    struct tl_buf text = o->text;
    o->text = (struct tl_buf){0};
    tl_mutex_unlock(&o->lock);
    if (text.n > 0) {
        FILE *file = o->is_error ? stderr : stdout;
        fwrite(text.p, 1, text.n, file);
        fflush(file);
    }
    tl_buf_finish(&text);
}

static void out_add(struct tl__out *o, const char *text, size_t n)
{
    tl_mutex_lock(&o->lock);
    tl_buf_add(&o->text, text, n);
    bool is_full = o->text.n >= OUT_LIMIT;
    tl_mutex_unlock(&o->lock);
    if (is_full)
        tl__out_flush(o);
}

/* The packed arguments: each at its natural alignment. */
struct arguments {
    const uint8_t *base;
    size_t at;
    int32_t n; /* taken so far */
};

static uint64_t take(struct tl__engine *e, struct arguments *a, size_t bytes)
{
    uint64_t value = 0;
    a->at = (a->at + bytes - 1) & ~(bytes - 1);
    read_kernel(e, &value, a->base + a->at, bytes);
    a->at += bytes;
    a->n++;
    return value;
}

static int32_t take_int(struct tl__engine *e, struct arguments *a)
{
    return (int32_t)(uint32_t)take(e, a, 4);
}

static const void *take_pointer(struct tl__engine *e, struct arguments *a)
{
    uint64_t bits = take(e, a, 8);
    const void *p;
    memcpy(&p, &bits, sizeof p);
    return p;
}

struct directive {
    char flags[8];
    int32_t width, precision; /* -1: none */
    bool is_long;             /* 8-byte integer */
    int size;                 /* -1 h, -2 hh */
    char conversion;
};

/* Reads what follows a '%'; returns where it ends, or NULL if the format ends inside. */
static const char *parse(struct tl__engine *e, struct arguments *a, const char *p,
                         struct directive *d)
{
    memset(d, 0, sizeof *d);
    d->width = d->precision = -1;
    size_t n = 0;
    while (*p != '\0' && strchr("-+ #0", *p) != NULL) {
        if (n < sizeof d->flags - 2)
            d->flags[n++] = *p;
        p++;
    }
    int32_t *field = &d->width;
    for (;;) {
        if (*p == '*') {
            int32_t v = take_int(e, a);
            if (v < 0 && field == &d->width) {
                d->flags[n++] = '-';
                v = v == INT32_MIN ? 0 : -v;
            }
            *field = v < 0 ? -1 : v;
            p++;
        } else {
            int32_t v = -1;
            while (*p >= '0' && *p <= '9') {
                v = (v < 0 ? 0 : v) * 10 + (*p++ - '0');
                v = v > FIELD_LIMIT ? FIELD_LIMIT : v;
            }
            *field = field == &d->precision && v < 0 ? 0 : v;
        }
        if (*field > FIELD_LIMIT)
            *field = FIELD_LIMIT;
        if (*p != '.' || field == &d->precision)
            break;
        field = &d->precision;
        p++;
    }
    for (; *p != '\0' && strchr("hlLqjzt", *p) != NULL; p++) {
        if (*p == 'h')
            d->size--;
        else if (*p != 'L')
            d->is_long = true;
    }
    d->conversion = *p;
    return *p == '\0' ? NULL : p + 1;
}

/* Adds a string of the kernel's, which may be anywhere: it is read piece by piece, so that a bad
 * address is the kernel's fault. */
static void put_string(struct tl__engine *e, struct tl_buf *out, const char *s,
                       const struct directive *d)
{
    char piece[256];
    size_t width = d->width < 0 ? 0 : (size_t)d->width;
    size_t most = d->precision >= 0 ? (size_t)d->precision : STRING_LIMIT;
    size_t left = s == NULL ? 0 : kernel_strlen(e, s, most);
    size_t pad = width > left ? width - left : 0;
    bool is_left = strchr(d->flags, '-') != NULL;
    if (!is_left)
        tl_buf_printf(out, "%*s", (int)pad, "");
    while (left > 0) {
        size_t part = left < sizeof piece ? left : sizeof piece;
        read_kernel(e, piece, s, part);
        tl_buf_add(out, piece, part);
        s += part;
        left -= part;
    }
    if (is_left)
        tl_buf_printf(out, "%*s", (int)pad, "");
}

static double take_double(struct tl__engine *e, struct arguments *a)
{
    uint64_t bits = take(e, a, 8);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Adds one formatted argument.  The formats are composed here of checked pieces, hence the
 * pragma. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void put(struct tl__engine *e, struct tl_buf *out, struct arguments *a,
                const struct directive *d)
{
    char format[24], text[1024];
    int n = 0;
    bool has_precision = d->precision >= 0;
    int w = d->width < 0 ? 0 : d->width;
#define PUT(suffix, value)                                                                         \
    (snprintf(format, sizeof format, "%%%s*%s" suffix "%c", d->flags, has_precision ? ".*" : "",   \
              d->conversion),                                                                      \
     has_precision ? snprintf(text, sizeof text, format, w, d->precision, value)                   \
                   : snprintf(text, sizeof text, format, w, value))
    switch (d->conversion) {
    case 'd':
    case 'i': {
        int64_t v = d->is_long ? (int64_t)take(e, a, 8) : take_int(e, a);
        v = d->is_long ? v : d->size == -1 ? (int16_t)v : d->size <= -2 ? (int8_t)v : v;
        n = PUT("ll", (long long)v);
        break;
    }
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
        uint64_t v = take(e, a, d->is_long ? 8 : 4);
        v = d->is_long ? v : d->size == -1 ? (uint16_t)v : d->size <= -2 ? (uint8_t)v : v;
        n = PUT("ll", (unsigned long long)v);
        break;
    }
    case 'c':
        n = PUT("", (int)take_int(e, a));
        break;
    case 'a':
    case 'A':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        n = PUT("", take_double(e, a));
        break;
    case 'p':
        n = PUT("", take_pointer(e, a));
        break;
    case 's':
        put_string(e, out, take_pointer(e, a), d);
        return;
    case '%':
        tl_buf_putc(out, '%');
        return;
    default: /* as it stands, like CUDA; nothing is taken */
        tl_buf_putc(out, '%');
        tl_buf_putc(out, d->conversion);
        return;
    }
#undef PUT
    if (n > 0)
        tl_buf_add(out, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}
#pragma GCC diagnostic pop

/* Returns the number of arguments, as CUDA's printf does, or -1 without a format. */
static int32_t call_vprintf(struct tl_dev_frame *f, const char *format, const void *arguments)
{
    struct tl__engine *e = tl__engine_of(f);
    tl__engine_enter_call(e);
    int32_t result = -1;
    if (format != NULL) {
        char text[FORMAT_LIMIT];
        copy_text(e, text, sizeof text, format);
        struct tl_buf *out = &e->scratch; /* survives a fault in here, so nothing leaks */
        out->n = 0;
        out->failed = false;
        struct arguments a = {arguments, 0, 0};
        for (const char *p = text; p != NULL && *p != '\0';) {
            size_t plain = strcspn(p, "%");
            tl_buf_add(out, p, plain);
            p += plain;
            if (*p == '%') {
                struct directive d;
                p = parse(e, &a, p + 1, &d);
                if (p != NULL)
                    put(e, out, &a, &d);
            }
        }
        if (!out->failed && e->env->device != NULL)
            out_add(tl__device_out(e->env->device, false), out->p, out->n);
        result = a.n;
    }
    tl__engine_leave_call(e);
    return result;
}

/* --- faults ----------------------------------------------------------------------------------- */

__attribute__((noreturn)) static void call_fault(struct tl_dev_frame *f, uint32_t warp,
                                                 uint32_t what, uint64_t detail)
{
    struct tl__engine *e = tl__engine_of(f);
    if (what == TL_DEV_FAULT_NONE)
        what = TL_DEV_FAULT_TRAP;
    tl__engine_fault(e, warp, what, detail, "%s (%#llx)", tl_exec_fault_name(what),
                     (unsigned long long)detail);
}

__attribute__((noreturn)) static void call_assertfail(struct tl_dev_frame *f, uint32_t warp,
                                                      uint32_t lane, const char *message,
                                                      const char *file, uint32_t line,
                                                      const char *function)
{
    struct tl__engine *e = tl__engine_of(f);
    tl__engine_enter_call(e);
    char what[256], where[256], who[256], text[1024];
    copy_text(e, what, sizeof what, message);
    copy_text(e, where, sizeof where, file);
    copy_text(e, who, sizeof who, function);
    const uint32_t *block = e->object->info->block;
    uint32_t thread = warp * TL_DEV_WARP + lane;
    /* To stderr, at the next synchronisation, as CUDA does. */
    int n = snprintf(text, sizeof text,
                     "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                     where, line, who, f->ctaid[0], f->ctaid[1], f->ctaid[2], thread % block[0],
                     thread / block[0] % block[1], thread / (block[0] * block[1]), what);
    if (e->env->device != NULL && n > 0)
        out_add(tl__device_out(e->env->device, true), text,
                (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    tl__engine_fault(e, warp, TL_DEV_FAULT_ASSERT, line, "%.60s:%u: assertion `%.80s` failed",
                     where, line, what);
}

/* --- the rest --------------------------------------------------------------------------------- */

static void *call_malloc(struct tl_dev_frame *f, uint64_t bytes)
{
    struct tl__engine *e = tl__engine_of(f);
    tl__engine_enter_call(e);
    struct tl__heap *heap = e->env->device != NULL ? tl__device_heap(e->env->device) : NULL;
    void *p = heap != NULL ? tl__heap_alloc(heap, bytes) : NULL;
    tl__engine_leave_call(e);
    return p;
}

static void call_free(struct tl_dev_frame *f, void *p)
{
    struct tl__engine *e = tl__engine_of(f);
    tl__engine_enter_call(e);
    struct tl__heap *heap = e->env->device != NULL ? tl__device_heap(e->env->device) : NULL;
    if (p != NULL && (heap == NULL || tl__heap_free(heap, p) < 0))
        tl__engine_fault(e, 0, TL_DEV_FAULT_ADDRESS, (uintptr_t)p,
                         "free of %p, which malloc did not give", p);
    tl__engine_leave_call(e);
}

static uint64_t call_globaltimer(void)
{
    return tl_clock_of(CLOCK_REALTIME);
}

static uint64_t call_rebase(struct tl_dev_frame *f, uint32_t warp, uint32_t base, uint32_t lanes,
                            const int64_t offset[32], uint32_t is_signed)
{
    uint64_t found = base;
    bool is_found = false;
    for (uint32_t i = 0; i < 32; i++) {
        if ((lanes >> i & 1) == 0)
            continue;
        uint32_t narrow = base + (uint32_t)offset[i];
        uint64_t wide = (is_signed != 0 ? (uint64_t)(int32_t)narrow : narrow) - (uint64_t)offset[i];
        if (is_found && wide != found)
            f->calls->fault(f, warp, TL_DEV_FAULT_LANE_WRAP, base);
        found = wide;
        is_found = true;
    }
    return found;
}

static void call_tex(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_float,
                     const uint32_t *coords, uint32_t result[4])
{
    (void)kind, (void)is_float, (void)coords, (void)result;
    tl__engine_fault(tl__engine_of(f), 0, TL_DEV_FAULT_TRAP, handle, "textures are not there");
}

static void call_surf(struct tl_dev_frame *f, uint64_t handle, uint32_t kind, uint32_t is_store,
                      const int32_t coords[4], uint32_t bytes, uint32_t clamp, uint32_t data[4])
{
    (void)kind, (void)is_store, (void)coords, (void)bytes, (void)clamp, (void)data;
    tl__engine_fault(tl__engine_of(f), 0, TL_DEV_FAULT_TRAP, handle, "surfaces are not there");
}

static uint64_t call_runtime(struct tl_dev_frame *f, uint32_t thread, uint32_t what,
                             const uint64_t args[7])
{
    struct tl__engine *e = tl__engine_of(f);
    struct tl_exec_launch *l = e->run->launch;
    uint64_t block = f->ctaid[0] +
                     (uint64_t)f->grid[0] * (f->ctaid[1] + (uint64_t)f->grid[1] * f->ctaid[2]);
    if (l->runtime == NULL)
        tl__engine_fault(e, 0, TL_DEV_FAULT_TRAP, what, "the device runtime is not there");
    tl__engine_enter_call(e);
    uint64_t answer = l->runtime(l, block, thread, what, args);
    tl__engine_leave_call(e);
    return answer;
}

const struct tl_dev_calls tl__exec_calls = {
    .barrier = tl__call_barrier,
    .yield = tl__call_yield,
    .fault = call_fault,
    .vprintf = call_vprintf,
    .assertfail = call_assertfail,
    .malloc = call_malloc,
    .free = call_free,
    .globaltimer = call_globaltimer,
    .tex = call_tex,
    .surf = call_surf,
    .rebase = call_rebase,
    .reach = tl__call_reach,
    .settle = tl__call_settle,
    .tensor = tl__call_tensor,
    .tensor_replace = tl__call_tensor_replace,
    .sleep = tl__call_sleep,
    .runtime = call_runtime,
};
