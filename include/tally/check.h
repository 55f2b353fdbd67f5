/* Invariants of what lives in other people's processes.
 *
 * There a mistake of ours must not end the job, so TL_CHECK is an assertion in builds with a
 * sanitizer, which all tests also run in (make san, make tsan), and nothing in others.  Programs of
 * our own say assert.  The analyzer is told the same, so that it believes them. */
#ifndef TALLY_CHECK_H
#define TALLY_CHECK_H

#include <assert.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang_analyzer__)
#define TL_CHECK(x) assert(x)
#else
#define TL_CHECK(x) ((void)sizeof((x) ? 1 : 0)) /* looked at by the compiler, and not run */
#endif

#endif
