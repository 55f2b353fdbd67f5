/* Facts for tests of decisions; facts.h has the contracts. */
#include "test/unit/runtime/effort/facts.h"

static uint64_t random_state = 0x2545F4914F6CDD1Du;

uint64_t any(uint64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % below;
}

uint64_t any_size(uint32_t bits)
{
    return any(UINT64_C(1) << any(bits + 1));
}

struct tl_eff_facts any_facts(void)
{
    struct tl_eff_facts f = {.sms = (uint32_t)any_size(9),
                             .resident = (uint32_t)any_size(6),
                             .occupancy = (uint32_t)any_size(6),
                             .runs_block_by_block = any(2) == 0,
                             .is_capless = any(4) == 0,
                             .force = any(3) == 0 ? (int)any(TL_RUNGS) : -1,
                             .finest = (enum tl_rung)any(TL_RUNGS),
                             .sm_permille = any(2) == 0 ? 0 : (uint32_t)any(1001),
                             .turnaround_ns = any_size(35),
                             .strikes = any(4) == 0 ? (uint32_t)any(4) : 0,
                             .leave_ns = any_size(36),
                             .skip_ns = any_size(36),
                             .takes_singly = any(4) == 0,
                             .is_alone = any(2) == 0,
                             .has_profile = any(8) != 0,
                             .rung = (enum tl_rung)any(TL_RUNG_WHOLE),
                             .is_chained = any(2) == 0};
    if (f.has_profile) {
        f.whole_ns = any_size(35);
        f.wave_ns = any_size(25);
    }
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++) {
        f.rungs[r].form = (enum tl_eff_form)any(4);
        f.rungs[r].held_ns = any_size(33);
        f.rungs[r].was_asked_for = any(2) == 0;
        f.rungs[r].is_slow = f.has_profile && any(3) == 0;
        f.rungs[r].n_samples = f.has_profile ? (uint32_t)any(20) : 0;
        f.rungs[r].wave_ns = f.rungs[r].n_samples > 0 ? any_size(25) : 0;
    }
    f.blocks = 1 + (uint32_t)any_size(31) % INT32_MAX;
    f.done = any(2) == 0 ? 0 : (uint32_t)any(f.blocks);
    f.launched = f.done;
    if (f.rung != TL_RUNG_PERSISTENT && f.rung != TL_RUNG_GATE && any(2) == 0)
        f.launched = f.done + (uint32_t)any(f.blocks - f.done);
    return f;
}
struct tl_eff_facts plain(void)
{
    struct tl_eff_facts f = {.sms = 100,
                             .resident = 1,
                             .force = -1,
                             .finest = TL_RUNG_PERSISTENT,
                             .turnaround_ns = 100 * US,
                             .has_profile = true,
                             .whole_ns = 10 * MS,
                             .wave_ns = 1 * MS,
                             .blocks = 1000};
    for (uint32_t r = 0; r < TL_RUNG_WHOLE; r++)
        f.rungs[r] = (struct tl_eff_rung_facts){
            .form = TL_EFF_FORM_READY, .n_samples = 12, .wave_ns = 1 * MS};
    return f;
}
