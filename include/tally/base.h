/* What every part needs and libc does not have: error texts, arenas, growing text, string slices.
 *
 * Nothing here prints, exits or keeps global state.  Everything links libc only, because it also
 * ends up in the shim, inside other people's processes. */
#ifndef TALLY_BASE_H
#define TALLY_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- version ---------------------------------------------------------------------------------- */

extern const char tl_version[]; /* e.g. "0.1.0"; it is the first line of the file VERSION */

/* --- slices ----------------------------------------------------------------------------------- */

/* A piece of somebody else's text: not terminated, not owned. */
struct tl_str {
    const char *p;
    uint32_t n;
};

#define TL_STR(literal) ((struct tl_str){(literal), sizeof(literal) - 1})
#define TL_STR_FMT "%.*s"
#define TL_STR_ARG(s) (int)(s).n, (s).p

struct tl_str tl_str_of(const char *text); /* NULL gives the empty slice */
bool tl_str_eq(struct tl_str a, struct tl_str b);
bool tl_str_is(struct tl_str a, const char *text);
bool tl_str_starts(struct tl_str a, const char *prefix);

/* --- errors ----------------------------------------------------------------------------------- */

/* Text for people, filled by whoever failed; the return code is what programs act on.  Callers that
 * do not care pass NULL.  A message says what failed, on what, and what to do about it. */
struct tl_error {
    int code; /* 0 or a negative errno value */
    char text[1016];
};

/* Fills `err` (may be NULL) and returns `code`, so that a failing function can end with `return
 * tl_error_set(...)`. */
int tl_error_set(struct tl_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with errno: adds its text and returns -errno. */
int tl_error_errno(struct tl_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- arena ------------------------------------------------------------------------------------ */

/* Memory that is freed all at once.  Not thread-safe: one arena belongs to one parse or one
 * rewrite. */
struct tl_arena {
    struct tl_arena_chunk *chunk;
    size_t bytes; /* taken from malloc so far */
    size_t limit; /* at most this many, 0 for no limit */
};

void tl_arena_init(struct tl_arena *a, size_t limit_bytes);
void tl_arena_finish(struct tl_arena *a); /* frees everything; zeroes are fine */
/* 8-aligned, uninitialised; NULL if out of memory or limit */
void *tl_arena_alloc(struct tl_arena *a, size_t bytes);
void *tl_arena_zalloc(struct tl_arena *a, size_t bytes); /* the same, zeroed */
/* A terminated copy / a formatted text that lives as long as the arena; NULL if out of memory. */
char *tl_arena_copy(struct tl_arena *a, struct tl_str text);
char *tl_arena_printf(struct tl_arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- growing text ----------------------------------------------------------------------------- */

/* A buffer that remembers that it ran out of memory, so that writers check once, at the end. */
struct tl_buf {
    char *p; /* always terminated once something was added */
    size_t n, cap;
    bool failed;
};

void tl_buf_finish(struct tl_buf *b); /* frees; zeroes are fine */
void tl_buf_add(struct tl_buf *b, const char *bytes, size_t n);
void tl_buf_puts(struct tl_buf *b, const char *text);
void tl_buf_str(struct tl_buf *b, struct tl_str text);
void tl_buf_putc(struct tl_buf *b, char c);
void tl_buf_printf(struct tl_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tl_buf_vprintf(struct tl_buf *b, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* the text, now the caller's to free; NULL if anything failed */
char *tl_buf_take(struct tl_buf *b);

/* --- processes -------------------------------------------------------------------------------- */

/* Starts a program in a session of its own, with no descriptors or signals of ours, `out` as its
 * standard output, and nothing that tells us when it ends: the process we are in is somebody
 * else's.  0 or -errno. */
int tl_start_detached(const char *program, char *const *arguments, char *const *environment,
                      int out);
/* Closes every descriptor from this one on; only system calls, so that a child that shares memory
 * may use it. */
void tl_close_from(int first);

/* --- streaming JSON --------------------------------------------------------------------------- */

/* Writes JSON as it comes, never a tree: traces are millions of events.  Integers stay integers.
 * Commas, indentation and escaping are handled here; bytes that are not UTF-8 are replaced, so that
 * the output is always valid. */
struct tl_json {
    struct tl_buf *out;
    uint32_t depth;
    uint64_t has_items; /* bit per depth: something was written at that level */
    bool after_key;
};

void tl_json_init(struct tl_json *j, struct tl_buf *out);
void tl_json_object(struct tl_json *j); /* { ... */
void tl_json_array(struct tl_json *j);  /* [ ... */
void tl_json_end_object(struct tl_json *j);
void tl_json_end_array(struct tl_json *j);
void tl_json_key(struct tl_json *j, const char *key);
void tl_json_str(struct tl_json *j, struct tl_str value);
void tl_json_int(struct tl_json *j, int64_t value);
void tl_json_uint(struct tl_json *j, uint64_t value);
void tl_json_double(struct tl_json *j, double value); /* NaN and infinities become null */
void tl_json_bool(struct tl_json *j, bool value);
void tl_json_null(struct tl_json *j);
/* A key and its value. */
void tl_json_key_str(struct tl_json *j, const char *key, const char *value);
void tl_json_key_int(struct tl_json *j, const char *key, int64_t value);
void tl_json_key_uint(struct tl_json *j, const char *key, uint64_t value);
void tl_json_key_double(struct tl_json *j, const char *key, double value);
void tl_json_key_bool(struct tl_json *j, const char *key, bool value);

#endif
