/* Traces of arrivals: what is accepted does not fall. */
#include "sim/trace.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct sim_samples times = {0};
    struct tl_error err = {0};
    int rc = sim_arrivals_read(&times, (struct tl_str){(const char *)data, (uint32_t)n}, "trace",
                               &err);
    if (rc < 0 && err.text[0] == 0)
        abort();
    for (size_t i = 0; i < times.n; i++)
        if (!(times.v[i] >= (i > 0 ? times.v[i - 1] : 0)) || times.v[i] > 1e18)
            abort();
    sim_samples_finish(&times);
    return 0;
}
