/* Stacks that can be left and entered again: one per warp, so that a warp that waits at a barrier
 * costs a switch and not a thread.  x86-64 System V.  The switch itself is tl__fiber_hop in
 * device/exec/internal.h.  MXCSR and the x87 control word are not switched: all warps of a kernel
 * use the same, and the engine sets them once per run.
 *
 * Sanitizers are told of every switch when the build has them; the cost is theirs. */
#include "device/exec/internal.h"
#include "tally/check.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if TL_EXEC_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif TL_EXEC_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifndef __x86_64__
#error "fibers are written for x86-64; port tl__fiber_hop, tl__jump and tl__begin"
#endif

/* A frame may be larger than a page, so a page would not catch every overflow. */
#define GUARD_BYTES ((size_t)64 << 10)

void tl__jump(void *to) __attribute__((noreturn));
void tl__begin(void);

/* clang-format off */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl tl__jump\n"
        ".hidden tl__jump\n"
        ".type tl__jump,@function\n"
        "tl__jump:\n"
        ".cfi_startproc\n"
        "    movq %rdi, %rsp\n"
        "    popq %rcx\n"
        "    jmp *%rcx\n"
        ".cfi_endproc\n"
        ".size tl__jump,.-tl__jump\n"

        /* Where a new stack begins; tl__fiber_reset has put the fiber and the function there.  An undefined return
         * address ends backtraces here. */
        ".p2align 4\n"
        ".globl tl__begin\n"
        ".hidden tl__begin\n"
        ".type tl__begin,@function\n"
        "tl__begin:\n"
        ".cfi_startproc\n"
        ".cfi_undefined rip\n"
        "    popq %rdi\n"
        "    popq %rax\n"
        "    callq *%rax\n"
        "    ud2\n"
        ".cfi_endproc\n"
        ".size tl__begin,.-tl__begin\n");
/* clang-format on */

#if TL_EXEC_ASAN
/* ASan is told when a switch begins and when it is over, and ends the process if another begins in
 * between: a signal that would leave the fiber waits for that long. */
static _Thread_local volatile sig_atomic_t is_switching, deferred;

static void arrive(void *fake)
{
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
    is_switching = 0;
    if (deferred != 0) {
        int number = deferred;
        deferred = 0;
        raise(number);
    }
}

bool tl__fiber_defers(int number)
{
    if (is_switching)
        deferred = number;
    return is_switching;
}
#endif

static void begin(struct tl__fiber *f)
{
#if TL_EXEC_ASAN
    arrive(NULL);
#endif
    f->entry(f);
    __builtin_trap(); /* an entry that returned has nowhere to go */
}

void tl__fiber_reset(struct tl__fiber *f)
{
    TL_CHECK(f->map != NULL); /* a thread's own stack cannot begin again */
    uint8_t *top = f->map + f->map_bytes - f->stagger_bytes;
#if TL_EXEC_ASAN
    /* Frames that were left for good never took back what they poisoned. */
    __asan_unpoison_memory_region(f->map + f->guard_bytes, f->map_bytes - f->guard_bytes);
    f->stack_low = f->map + f->guard_bytes;
    f->stack_bytes = f->map_bytes - f->guard_bytes;
    f->sanitizer = NULL;
#elif TL_EXEC_TSAN
    if (f->sanitizer != NULL)
        __tsan_destroy_fiber(f->sanitizer);
    f->sanitizer = __tsan_create_fiber(0);
#endif
    /* Popped in this order: where to go, and there the two that tl__begin wants; then the stack is
     * 16-aligned, as before a call. */
    uint64_t *sp = (uint64_t *)(top - 40);
    sp[0] = (uint64_t)(uintptr_t)tl__begin;
    sp[1] = (uint64_t)(uintptr_t)f;
    sp[2] = (uint64_t)(uintptr_t)begin;
    sp[3] = sp[4] = 0;
    f->sp = sp;
    f->next = NULL;
    f->waiting = 0;
}

int tl__fiber_init(struct tl__fiber *f, size_t stack_bytes, uint32_t number,
                   void (*entry)(struct tl__fiber *))
{
    memset(f, 0, sizeof *f);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    f->guard_bytes = GUARD_BYTES;
    f->map_bytes = GUARD_BYTES + (stack_bytes + page - 1) / page * page + page;
    void *map = mmap(NULL, f->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    if (mprotect(map, GUARD_BYTES, PROT_NONE) < 0) {
        munmap(map, f->map_bytes);
        return -ENOMEM;
    }
    f->map = map;
    f->entry = entry;
    /* 17 lines apart: 64 neighbours have their tops in different cache sets, and a kernel's hot
     * frame is some lines. */
    f->stagger_bytes = number * 17 * 64 % 4096;
    tl__fiber_reset(f);
    return 0;
}

void tl__fiber_finish(struct tl__fiber *f)
{
    if (f->map == NULL)
        return;
#if TL_EXEC_ASAN
    __asan_unpoison_memory_region(f->map + f->guard_bytes, f->map_bytes - f->guard_bytes);
#elif TL_EXEC_TSAN
    if (f->sanitizer != NULL)
        __tsan_destroy_fiber(f->sanitizer);
#endif
    munmap(f->map, f->map_bytes);
    memset(f, 0, sizeof *f);
}

void tl__fiber_init_thread(struct tl__fiber *f)
{
    memset(f, 0, sizeof *f);
#if TL_EXEC_ASAN
    pthread_attr_t attr;
    if (pthread_getattr_np(pthread_self(), &attr) == 0) {
        void *low = NULL;
        pthread_attr_getstack(&attr, &low, &f->stack_bytes);
        f->stack_low = low;
        pthread_attr_destroy(&attr);
    }
#elif TL_EXEC_TSAN
    f->sanitizer = __tsan_get_current_fiber();
#endif
}

void tl__fiber_finish_thread(struct tl__fiber *f)
{
    memset(f, 0, sizeof *f);
}

void tl__fiber_switch(struct tl__fiber *from, struct tl__fiber *to)
{
#if TL_EXEC_ASAN
    void *fake = NULL;
    is_switching = 1;
    __sanitizer_start_switch_fiber(&fake, to->stack_low, to->stack_bytes);
    tl__fiber_hop(from, to);
    arrive(fake);
#else
#if TL_EXEC_TSAN
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    tl__fiber_hop(from, to);
#endif
}

__attribute__((no_sanitize_address)) void tl__fiber_leave(struct tl__fiber *to)
{
#if TL_EXEC_ASAN
    is_switching = 1;
    __sanitizer_start_switch_fiber(NULL, to->stack_low, to->stack_bytes);
#elif TL_EXEC_TSAN
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    tl__jump(to->sp);
}

bool tl__fiber_is_guard(const struct tl__fiber *f, const void *address)
{
    const uint8_t *p = address;
    return f->map != NULL && p >= f->map && p < f->map + f->guard_bytes;
}
