/* Names of kernels for people.  C++ names are demangled; names of Triton (add_kernel_0d1d2d), XLA
 * (loop_fusion_3) and C are kept as they are. */
#include "runtime/report/report.h"

#include <errno.h>
#include <string.h>

/* Skips a bracketed stretch backwards: `end` is just behind its closing bracket; returns where the
 * opening one is. */
static size_t opening(const char *text, size_t end)
{
    int depth = 0;
    for (size_t i = end; i > 0; i--) {
        char c = text[i - 1];
        if (c == ')' || c == ']' || c == '}' || (c == '>' && (i < 2 || text[i - 2] != '-')))
            depth++;
        else if (c == '(' || c == '[' || c == '{' || c == '<')
            depth--;
        if (depth == 0)
            return i - 1;
    }
    return end;
}

/* Without parameters behind and the return type in front. */
static char *shorten(struct tl_arena *arena, const char *full)
{
    /* Behind the parameters there is at most " const" or " [clone .x]". */
    const char *close = strrchr(full, ')');
    size_t end = strlen(full);
    if (close != NULL && strchr(close, '>') == NULL &&
        opening(full, (size_t)(close - full) + 1) > 0)
        end = opening(full, (size_t)(close - full) + 1);
    /* The return type ends at the last blank that is in no bracket. */
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < end; i++) {
        char c = full[i];
        if (c == '(' || c == '[' || c == '{' || c == '<')
            depth++;
        else if ((c == ')' || c == ']' || c == '}' || c == '>') && depth > 0)
            depth--;
        else if (c == ' ' && depth == 0)
            begin = i + 1;
    }
    return tl_arena_copy(arena, (struct tl_str){full + begin, (uint32_t)(end - begin)});
}

int tl_report_name(struct tl_report_kernel *k, struct tl_arena *arena)
{
    char *full = strncmp(k->name, "_Z", 2) == 0 ? tl_demangle(arena, k->name) : NULL;
    k->full = full != NULL ? full : k->name;
    k->brief = full != NULL ? shorten(arena, full) : k->name;
    return k->brief != NULL ? 0 : -ENOMEM;
}
