/* Error texts: who failed tells people what and why; the code is for programs.  They quote files,
 * images and messages that may be hostile, and end on terminals and in logs: what those would obey
 * is taken out here, once for all. */
#include "tally/base.h"
#include "tally/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int tl_error_set(struct tl_error *err, int code, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        tl_text_clean(err->text, strlen(err->text), true);
        err->code = code;
    }
    return code;
}

int tl_error_errno(struct tl_error *err, const char *format, ...)
{
    int saved = errno;
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        int n = vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        if (n >= 0 && (size_t)n < sizeof err->text)
            snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", strerror(saved));
        tl_text_clean(err->text, strlen(err->text), true);
        err->code = -saved;
    }
    return -saved;
}
