/* The lock of the best-effort part. */
#include "runtime/effort/lock.h"

struct tl_eff_mutex tl_eff_mutex = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void tl_eff_lock_start(void)
{
    pthread_mutex_init(&tl_eff_mutex.mutex, NULL);
    tl_eff_note_owner(false);
}
