/* A small JSON reader for the files that users hand to the tool: a tree in an arena. */
#ifndef TALLY_JSON_H
#define TALLY_JSON_H

#include "tally/base.h"

enum cli_json_kind {
    CLI_JSON_NULL,
    CLI_JSON_BOOL,
    CLI_JSON_NUMBER,
    CLI_JSON_TEXT,
    CLI_JSON_ARRAY,
    CLI_JSON_OBJECT
};

struct cli_json {
    enum cli_json_kind kind;
    struct tl_str key;      /* of a member of an object */
    double number;          /* of a number; 1 or 0 of a bool */
    struct tl_str text;     /* as written between the quotes, escapes and all */
    struct cli_json *first; /* of an array or object */
    struct cli_json *next;  /* in the array or object */
};

/* 0, -EINVAL with the line in the message, -ENOMEM. */
int cli_json_read(struct cli_json **out, struct tl_arena *arena, struct tl_str text,
                  struct tl_error *err);
/* The member of that name, or NULL; also NULL if `j` is NULL or no object. */
const struct cli_json *cli_json_get(const struct cli_json *j, const char *key);
/* Its number, or `otherwise` if there is no such member or it is none. */
double cli_json_number(const struct cli_json *j, const char *key, double otherwise);

#endif
