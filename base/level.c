/* Levels as words and numbers; see the header. */
#include "tally/level.h"

#include <errno.h>
#include <string.h>

int tl_level_parse(const char *text, int *level)
{
    if (strcmp(text, "high") == 0 || strcmp(text, "low") == 0) {
        *level = text[0] == 'h' ? TL_LEVEL_HIGH : TL_LEVEL_LOW;
        return 0;
    }
    int sign = text[0] == '-' ? -1 : 1, n = 0;
    const char *digits = text + (text[0] == '-' || text[0] == '+'), *p = digits;
    for (; *p >= '0' && *p <= '9' && n <= TL_LEVEL_MAX; p++)
        n = 10 * n + (*p - '0');
    if (p == digits || *p != '\0' || n > TL_LEVEL_MAX)
        return -EINVAL;
    *level = sign * n;
    return 0;
}
