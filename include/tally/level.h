/* Levels of jobs, and how people write them.  libc only. */
#ifndef TALLY_LEVEL_H
#define TALLY_LEVEL_H

enum { TL_LEVEL_MIN = -100, TL_LEVEL_MAX = 100, TL_LEVEL_LOW = -100, TL_LEVEL_HIGH = 100 };

/* "high", "low", "-100".."100".  0 or -EINVAL. */
int tl_level_parse(const char *text, int *level);

#endif
