/* The lock of the best-effort part. */
#include "runtime/effort/lock.h"

struct tl_mutex tl_eff_mutex = TL_MUTEX_INITIALIZER;
#ifdef TL_EFF_CHECKED
_Atomic uintptr_t tl_eff_owner;
#endif

void tl_eff_lock_start(void)
{
    tl_mutex_init(&tl_eff_mutex);
    tl_eff_note_owner(false);
}
