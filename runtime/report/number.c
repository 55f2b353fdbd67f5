/* Names for people of what records number. */
#include "runtime/report/report.h"

#include <stdio.h>

struct tl_text tl_text_level(int level)
{
    struct tl_text t;
    if (level >= TL_LEVEL_HIGH)
        snprintf(t.s, sizeof t.s, "high");
    else if (level <= TL_LEVEL_LOW)
        snprintf(t.s, sizeof t.s, "low");
    else
        snprintf(t.s, sizeof t.s, "%d", level);
    return t;
}

const char *tl_copy_name(enum tl_record_copy c)
{
    static const char *const names[] = {"to device", "from device", "on device", "set"};
    return (unsigned)c < TL_COPIES ? names[c] : "?";
}

const char *tl_span_name(enum tl_record_span s)
{
    static const char *const names[] = {"run", "wait", "copy", "request", "compile"};
    return (unsigned)s < TL_SPANS ? names[s] : "?";
}
