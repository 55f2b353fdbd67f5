/* The sum grows when the SM is taken, so a wait that begins while nobody has it must not count what
 * was before; and who takes it tells a moment later.  The order of reading and writing is such that
 * what is in doubt is taken for time in which somebody had it. */
#include "device/exec/idle.h"

void tl__idle_taken(struct tl__idle *idle, uint64_t freed_ns, uint64_t now_ns)
{
    if (freed_ns != 0 && freed_ns < now_ns)
        atomic_fetch_add_explicit(&idle->total_ns, now_ns - freed_ns, memory_order_relaxed);
    /* release: who sees it sees the sum */
    atomic_store_explicit(&idle->until_ns, now_ns, memory_order_release);
}

struct tl__idle_then tl__idle_begin(const struct tl__idle *idle, const _Atomic uint64_t *freed_ns,
                                    uint64_t now_ns)
{
    uint64_t freed = atomic_load_explicit(freed_ns, memory_order_acquire);
    uint64_t until = atomic_load_explicit(&idle->until_ns, memory_order_acquire);
    bool is_to_come = freed != 0 && until < freed && freed < now_ns;
    return (struct tl__idle_then){
        .total_ns = atomic_load_explicit(&idle->total_ns, memory_order_relaxed),
        .before_ns = is_to_come ? now_ns - freed : 0};
}

uint64_t tl__idle_since(const struct tl__idle *idle, const struct tl__idle_then *then,
                        uint64_t freed_ns)
{
    uint64_t until = atomic_load_explicit(&idle->until_ns, memory_order_acquire);
    uint64_t total = atomic_load_explicit(&idle->total_ns, memory_order_relaxed);
    uint64_t grown = total > then->total_ns ? total - then->total_ns : 0;
    /* somebody has taken it again: that was behind */
    uint64_t behind = until > freed_ns ? until - freed_ns : 0;
    grown = grown > behind ? grown - behind : 0;
    return grown > then->before_ns ? grown - then->before_ns : 0;
}
