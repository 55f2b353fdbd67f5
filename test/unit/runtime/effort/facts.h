/* Facts that tests of decisions (runtime/effort/plan.h) are put to. */
#ifndef TALLY_TEST_UNIT_RUNTIME_EFFORT_FACTS_H
#define TALLY_TEST_UNIT_RUNTIME_EFFORT_FACTS_H

#include <stdint.h>

#include "runtime/effort/plan.h"

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)

enum { ROUNDS = 200000 };

/* A number below that one, the same ones in every run. */
uint64_t any(uint64_t below);
/* Of any order of magnitude up to 2^bits, 0 among them. */
uint64_t any_size(uint32_t bits);
/* Whatever may be known of a device, a kernel and a launch that has blocks left. */
struct tl_eff_facts any_facts(void);
/* A kernel of a thousand blocks and 10 ms on 100 SMs with one block each, with somebody above and a
 * budget of 100 us. */
struct tl_eff_facts plain(void);

#endif
