/* A small JSON reader for the files that users hand to the tools: a tree in an arena.  The writer
 * is in base.h. */
#ifndef TALLY_JSON_H
#define TALLY_JSON_H

#include "tally/base.h"

enum tl_json_kind {
    TL_JSON_NULL,
    TL_JSON_BOOL,
    TL_JSON_NUMBER,
    TL_JSON_TEXT,
    TL_JSON_ARRAY,
    TL_JSON_OBJECT
};

struct tl_json_value {
    enum tl_json_kind kind;
    struct tl_str key;           /* of a member of an object */
    double number;               /* of a number; 1 or 0 of a bool */
    struct tl_str text;          /* as written between the quotes, escapes and all */
    struct tl_json_value *first; /* of an array or object */
    struct tl_json_value *next;  /* in the array or object */
};

/* 0, -EINVAL with the line in the message, -ENOMEM. */
int tl_json_read(struct tl_json_value **out, struct tl_arena *arena, struct tl_str text,
                 struct tl_error *err);
/* The member of that name, or NULL; also NULL if `j` is NULL or no object. */
const struct tl_json_value *tl_json_get(const struct tl_json_value *j, const char *key);
/* Its number, or `otherwise` if there is no such member or it is none. */
double tl_json_number(const struct tl_json_value *j, const char *key, double otherwise);
/* The same as a whole number from 0 to `most`, to which all others are brought. */
uint64_t tl_json_whole(const struct tl_json_value *j, const char *key, uint64_t otherwise,
                       uint64_t most);
/* `value` as such a number. */
uint64_t tl_json_bounded(double value, uint64_t most);

#endif
