/* For programs that want to tell Tally where their requests begin and end.  Everything is in this
 * header: the functions are looked for at run time, so that a program works the same, at the cost
 * of nothing, where there is no Tally.
 *
 *     tally_request r = tally_mark_begin();
 *     serve(client);
 *     tally_mark_end(r);
 *
 * Requests may overlap and may end in another thread than they began.  Link with -ldl where libc is
 * older than glibc 2.34. */
#ifndef TALLY_MARK_H
#define TALLY_MARK_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t tally_request; /* 0 without Tally */

static inline void *tally_mark_function(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

/* A request of this program's user begins now. */
static inline tally_request tally_mark_begin(void)
{
    static uint64_t (*function)(void);
    static int was_looked_for;
    if (!was_looked_for) {
        *(void **)&function = tally_mark_function("tally_request_begin");
        was_looked_for = 1;
    }
    return function != NULL ? function() : 0;
}

/* That request is answered. */
static inline void tally_mark_end(tally_request request)
{
    static void (*function)(uint64_t);
    static int was_looked_for;
    if (!was_looked_for) {
        *(void **)&function = tally_mark_function("tally_request_end");
        was_looked_for = 1;
    }
    if (function != NULL)
        function(request);
}

/* A step of training, or whatever else the program counts, has ended. */
static inline void tally_mark_iteration(void)
{
    static void (*function)(void);
    static int was_looked_for;
    if (!was_looked_for) {
        *(void **)&function = tally_mark_function("tally_iteration");
        was_looked_for = 1;
    }
    if (function != NULL)
        function();
}

#endif
