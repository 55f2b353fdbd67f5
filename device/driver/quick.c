/* Quick versions: most kernels of a test suite run once or twice, on little data, and there it is
 * compiling that takes time.  So a kernel that is in no cache is compiled quickly first, and well
 * only when it has run for a good part of the time that this takes.
 *
 * A thread of ours looks after launches of quick versions while there are any.  It has good ones
 * made by the compiler service, behind all that somebody waits for, and puts them in place: later
 * launches have them, and launches under way go on with them from the next blocks on, so that one
 * long launch does not stay slow.  Nobody waits for it. */
#include "device/driver/quick.h"
#include "device/driver/handle.h"
#include "device/driver/log.h"
#include "device/driver/module.h"
#include "tally/check.h"
#include "tally/clock.h"
#include "tally/thread.h"

#include "device/exec/exec.h"
#include "device/service/client.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    QUICK_BYTES = 1 << 10,    /* of PTX: what is shorter is compiled well at once */
    PRICE_NS = 2000000,       /* of compiling anything well, and ... */
    PRICE_PER_BYTE_NS = 5000, /* ... 0.15 ms per instruction of 30 bytes */
    LOOK_NS = 20000000, /* how often launches are looked at, and at first what was asked for */
    MOST_ASKS = 3, /* then the quick version stays: there may be no room to keep the good one */
};

static const uint64_t look_most_ns = 5000000000, /* ... and at last */
    ask_again_ns = 3000000000; /* the service may have had too much to do, or be another by now */

/* A good version that was asked for. */
struct asked {
    struct asked *next;
    struct tl_drv_code *code; /* the quick one; NULL: nobody wants it any more */
    char *text;
    size_t n;
    char *kernel;
    uint32_t block[3];
    uint64_t look_ns, wait_ns;
    uint64_t ask_ns; /* when to ask again */
    uint32_t n_asks;
};

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct tl_drv_quick_run *runs TL_GUARDED_BY(lock);
static struct asked *all_asked TL_GUARDED_BY(lock);
static bool has_thread TL_GUARDED_BY(lock), is_waiting TL_GUARDED_BY(lock);

/* TALLY_JIT_QUICK: 0 is never, and `all`, for tests, all kernels, and they stay so. */
enum wish { NEVER, MOST, ALWAYS };

static enum wish wish(void)
{
    const char *text = secure_getenv("TALLY_JIT_QUICK");
    if (text == NULL)
        return MOST;
    return strcmp(text, "0") == 0 ? NEVER : strcmp(text, "all") == 0 ? ALWAYS : MOST;
}

bool tl_drv_quick_is_wanted(size_t ptx_bytes)
{
    enum wish w = wish();
    return w == ALWAYS || (w == MOST && ptx_bytes >= QUICK_BYTES);
}

uint64_t tl_drv_quick_price_ns(size_t ptx_bytes)
{
    return wish() == ALWAYS ? UINT64_MAX : PRICE_NS + (uint64_t)ptx_bytes * PRICE_PER_BYTE_NS;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void free_asked(struct asked *a)
{
    free(a->text);
    free(a->kernel);
    free(a);
}

/* Asks if it is time to, each time for longer.  False: there is no hope. */
static bool ask(struct asked *a)
{
    uint64_t now = tl_clock_ns();
    if (now < a->ask_ns)
        return true;
    if (a->n_asks == MOST_ASKS ||
        tl_jit_client_improve(a->text, a->n, a->kernel, a->block) == -ENOENT)
        return false;
    a->ask_ns = now + (ask_again_ns << (4 * a->n_asks++)); /* 3 s, 48 s, 13 min */
    return true;
}

/* Copies what is needed to ask, as a module may be unloaded meanwhile. */
static void want_good(struct tl_drv_code *code) TL_REQUIRES(lock)
{
    const struct CUfunc_st *f = code->function;
    struct asked *a = calloc(1, sizeof *a);
    uint64_t left_out;
    code->is_asked = true;
    if (a == NULL)
        return;
    a->kernel = strdup(f->info->name);
    if (a->kernel == NULL || tl_drv_code_text(f, &a->text, &a->n, &left_out, NULL) < 0) {
        free_asked(a);
        return;
    }
    a->code = code;
    a->wait_ns = LOOK_NS;
    memcpy(a->block, code->block, sizeof a->block);
    a->next = all_asked;
    all_asked = a;
}

static bool has_earned_it(const struct tl_drv_code *code, uint64_t more_ns) TL_REQUIRES(lock)
{
    return !code->is_asked && code->used_ns + more_ns >= code->price_ns / 2;
}

static void look_at_runs(void) TL_REQUIRES(lock)
{
    for (struct tl_drv_quick_run *r = runs; r != NULL; r = r->next)
        if (has_earned_it(r->code, tl_exec_running_ns(r->device, r->launch)))
            want_good(r->code);
}

/* --- putting in place ------------------------------------------------------------------------- */

/* The good one, with the variables of the quick one: they are those of the same kernel, in the same
 * order.  NULL: that is not so, or there is no memory. */
static struct tl_drv_code *make_good(const struct tl_drv_code *quick, struct tl_exec_object *object)
{
    uint32_t n = tl_exec_object_info(object)->n_variables;
    struct tl_drv_code *good = calloc(1, sizeof *good);
    uint64_t *variables = calloc(n + 1, sizeof *variables);
    if (good == NULL || variables == NULL || !tl_exec_object_is_like(object, quick->object)) {
        free(good);
        free(variables);
        return NULL;
    }
    memcpy(variables, quick->variables, n * sizeof *variables);
    *good = (struct tl_drv_code){
        .function = quick->function, .object = tl_exec_object_ref(object), .variables = variables};
    memcpy(good->block, quick->block, sizeof good->block);
    return good;
}

/* False: the function is being compiled for another block size just now. */
TL_UNCHECKED static bool put_in_place(struct asked *a, struct tl_exec_object *object)
{
    struct tl_drv_code *quick = a->code;
    struct CUfunc_st *f = quick->function;
    if (pthread_mutex_trylock(&f->code_lock.m) != 0)
        return false;
    struct tl_drv_code *good = make_good(quick, object);
    if (good != NULL) {
        quick->good = good; /* launches that are under way still have the other */
        good->next = f->code;
        f->code = good;
        tl_drv_log("kernel %s: from now on as it was compiled well", a->kernel);
    }
    tl_mutex_unlock(&f->code_lock);
    for (struct tl_drv_quick_run *r = runs; r != NULL && good != NULL; r = r->next)
        if (r->code == quick)
            (void)tl_exec_replace(r->device, r->launch, object);
    return true;
}

/* Looks whether it is there, without the lock: that reads files.  It is in no list meanwhile.
 * Whether it is done with. */
static bool look_after(struct asked *a) TL_REQUIRES(lock)
{
    char path[PATH_MAX];
    struct tl_exec_object *object = NULL;
    if (a->code == NULL)
        return true;
    tl_mutex_unlock(&lock);
    bool is_hopeless = !ask(a);
    int rc = tl_jit_client_improved(a->text, a->n, a->kernel, a->block, path, sizeof path);
    if (rc == 0)
        rc = tl_exec_object_open(&object, path, NULL);
    tl_mutex_lock(&lock);
    bool is_done = a->code == NULL || (rc == 0 ? put_in_place(a, object) : is_hopeless);
    /* The last reference closes the library: who holds the loader's lock may wait for ours. */
    tl_mutex_unlock(&lock);
    tl_exec_object_unref(object);
    tl_mutex_lock(&lock);
    a->wait_ns = a->wait_ns < look_most_ns ? a->wait_ns + a->wait_ns / 2 : look_most_ns;
    a->look_ns = tl_clock_ns() + a->wait_ns;
    return is_done;
}

/* Each in turn whose time has come.  What is looked after stays where forget() finds it. */
static void look_at_asked(void) TL_REQUIRES(lock)
{
    for (struct asked **at = &all_asked; *at != NULL;) {
        struct asked *a = *at;
        bool is_done = a->code == NULL || (tl_clock_ns() >= a->look_ns && look_after(a));
        /* only this thread takes any out; others put new ones in front */
        for (at = &all_asked; *at != a;)
            at = &(*at)->next;
        if (is_done) {
            *at = a->next;
            free_asked(a);
        } else {
            at = &a->next;
        }
    }
}

/* --- the thread ------------------------------------------------------------------------------- */

static void *look_after_all(void *is_of_worker)
{
    struct timespec until;
    tl_exec_stay_aside(is_of_worker != NULL);
    tl_mutex_lock(&lock);
    for (;;) {
        bool was_idle = runs == NULL && all_asked == NULL;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000 + was_idle;
        until.tv_nsec %= 1000000000;
        is_waiting = was_idle;
        if (was_idle)
            (void)tl_mutex_wait_until(&lock, &changed, &until);
        else
            while (tl_mutex_wait_until(&lock, &changed, &until) == 0)
                ;
        is_waiting = false;
        if (was_idle && runs == NULL && all_asked == NULL)
            break;
        look_at_runs();
        look_at_asked();
    }
    has_thread = false;
    tl_mutex_unlock(&lock);
    return NULL;
}

struct tl_drv_code *tl_drv_quick_begin(struct tl_drv_quick_run *r)
{
    static const struct tl_thread_kind kind = {.name = "tally-quick"};
    struct tl_drv_code *code = r->code;
    if (code->price_ns == UINT64_MAX)
        return code;
    tl_mutex_lock(&lock);
    if (code->good != NULL) {
        code = code->good;
        r->code = NULL;
        tl_mutex_unlock(&lock);
        return code;
    }
    /* Many short launches may never be met by who looks now and then. */
    if (has_earned_it(r->code, 0))
        want_good(r->code);
    r->next = runs;
    r->at = &runs;
    if (runs != NULL)
        runs->at = &r->next;
    runs = r;
    if (!has_thread)
        has_thread = tl_thread_start(NULL, &kind, look_after_all,
                                     tl_exec_is_worker() ? &runs : NULL) == 0;
    else if (is_waiting)
        pthread_cond_signal(&changed);
    tl_mutex_unlock(&lock);
    return code;
}

void tl_drv_quick_end(struct tl_drv_quick_run *r, uint64_t ns)
{
    if (r->code == NULL)
        return;
    tl_mutex_lock(&lock);
    r->code->used_ns += ns;
    if (r->at != NULL) {
        *r->at = r->next;
        if (r->next != NULL)
            r->next->at = r->at;
        r->at = NULL;
    }
    tl_mutex_unlock(&lock);
}

void tl_drv_quick_forget(const struct CUfunc_st *f)
{
    tl_mutex_lock(&lock);
    for (struct asked *a = all_asked; a != NULL; a = a->next)
        if (a->code != NULL && a->code->function == f)
            a->code = NULL;
    tl_mutex_unlock(&lock);
}
