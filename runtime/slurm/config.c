/* The configuration, which login nodes and compute nodes have alike.  Lines are
 *
 *     qos NAME | partition NAME | everybody   LEVEL   [highest=LEVEL] [memory=SIZE] [slo=pN:TIME] [LIMIT ...]
 *     qos NAME | partition NAME | everybody   off
 *     socket PATH
 *     comment yes | no | admin
 *     fail open | closed
 *
 * with # for remarks; of the first kinds the first line that fits counts.  LEVEL is what jobs have
 * that do not ask, highest= what they may ask for (LEVEL, if it is not said), memory= what they
 * have, and the most; slo= a goal for those that ask for none.  Limits are those of the rules of
 * tallyd: weight=, min-share=, turnaround=, memory-request=, slo. */
#include "runtime/slurm/plugin.h"
#include "tally/file.h"
#include "tally/level.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_LINE = 1024 };
#define BLANKS " \t\r\n"

void plugin_config_init(struct plugin_config *c)
{
    memset(c, 0, sizeof *c);
    strcpy(c->socket, "/run/tally/tallyd.sock");
    c->comment = PLUGIN_COMMENT;
    c->end = &c->first;
}

void plugin_config_finish(struct plugin_config *c)
{
    while (c->first != NULL) {
        struct plugin_class *class = c->first;
        c->first = class->next;
        free(class);
    }
    c->end = &c->first;
}

/* --- lines ------------------------------------------------------------------------------------ */

static const char *add_limit(struct plugin_class *class, const char *word)
{
    static const char *const known[] = {"weight=", "min-share=", "turnaround=", "memory-request="};
    bool is_known = strcmp(word, "slo") == 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        is_known |= strncmp(word, known[i], strlen(known[i])) == 0;
    if (!is_known)
        return "behind the level there may be highest=, memory=, slo=, slo, weight=, min-share=, "
               "turnaround= and memory-request=";
    size_t n = strlen(class->more);
    if (n + strlen(word) + 2 > sizeof class->more)
        return "there are too many limits";
    snprintf(class->more + n, sizeof class->more - n, "%s%s", n > 0 ? " " : "", word);
    return NULL;
}

static const char *read_word(struct plugin_class *class, const char *word)
{
    struct plugin_wishes *usual = &class->usual;
    if (strncmp(word, "highest=", 8) == 0)
        return tl_level_parse(word + 8, &class->highest) == 0
                   ? NULL
                   : "highest= wants high, low, or a number from -100 to 100";
    if (strncmp(word, "memory=", 7) == 0)
        return plugin_wish(usual, PLUGIN_MEMORY, word + 7, NULL) == 0
                   ? NULL
                   : "memory= wants a size such as 8G";
    if (strncmp(word, "slo=", 4) == 0)
        return plugin_wish(usual, PLUGIN_SLO, word + 4, NULL) == 0
                   ? NULL
                   : "slo= wants a percentile and a time such as p99:8ms";
    return add_limit(class, word);
}

/* NULL, or what is wrong. */
static const char *read_class(struct plugin_class *class, char **rest)
{
    int usual;
    const char *level = strtok_r(NULL, BLANKS, rest), *problem = NULL;
    if (level != NULL && strcmp(level, "off") == 0) {
        class->is_off = true;
        return strtok_r(NULL, BLANKS, rest) == NULL ? NULL : "nothing stands behind off";
    }
    if (level == NULL || tl_level_parse(level, &usual) < 0)
        return "who is named is given a level (high, low, or a number from -100 to 100) or off";
    class->highest = usual;
    (void)plugin_wish(&class->usual, PLUGIN_PRIORITY, level, NULL);
    for (const char *word = strtok_r(NULL, BLANKS, rest); word != NULL && problem == NULL;
         word = strtok_r(NULL, BLANKS, rest))
        problem = read_word(class, word);
    if (problem == NULL && class->highest < usual)
        problem = "highest= is below the level that jobs have without asking";
    return problem;
}

/* NULL, or what is wrong. */
static const char *add_class(struct plugin_config *c, enum plugin_kind kind, char **rest)
{
    struct plugin_class *class = calloc(1, sizeof *class);
    if (class == NULL)
        return "out of memory";
    const char *name = kind == PLUGIN_EVERYBODY ? "everybody" : strtok_r(NULL, BLANKS, rest);
    const char *problem = name == NULL || strlen(name) >= sizeof class->name
                              ? "a name is missing, or too long"
                              : NULL;
    if (problem == NULL) {
        class->kind = kind;
        strcpy(class->name, name);
        problem = read_class(class, rest);
    }
    if (problem != NULL) {
        free(class);
        return problem;
    }
    *c->end = class;
    c->end = &class->next;
    return NULL;
}

static const char *read_setting(struct plugin_config *c, const char *name, const char *value)
{
    static const char *const comments[] = {"no", "yes", "admin"};
    if (strcmp(name, "socket") == 0) {
        if (value[0] != '/' || strlen(value) >= sizeof c->socket)
            return "a socket is " TL_SOCKET_PATH_IS;
        strcpy(c->socket, value);
        return NULL;
    }
    if (strcmp(name, "fail") == 0) {
        c->is_closed = strcmp(value, "closed") == 0;
        return c->is_closed || strcmp(value, "open") == 0 ? NULL : "fail is open or closed";
    }
    if (strcmp(name, "comment") == 0)
        for (int i = 0; i < 3; i++)
            if (strcmp(value, comments[i]) == 0) {
                c->comment = (enum plugin_comment)i;
                return NULL;
            }
    return strcmp(name, "comment") == 0 ? "comment is yes, no or admin"
                                        : "a line begins with qos, partition, everybody, socket, "
                                          "comment or fail";
}

/* NULL, or what is wrong with the line. */
static const char *read_line(struct plugin_config *c, char *line)
{
    char *rest = NULL, *hash = strchr(line, '#');
    if (hash != NULL)
        *hash = 0;
    const char *word = strtok_r(line, BLANKS, &rest);
    if (word == NULL)
        return NULL;
    if (strcmp(word, "qos") == 0)
        return add_class(c, PLUGIN_QOS, &rest);
    if (strcmp(word, "partition") == 0)
        return add_class(c, PLUGIN_PARTITION, &rest);
    if (strcmp(word, "everybody") == 0)
        return add_class(c, PLUGIN_EVERYBODY, &rest);
    const char *value = strtok_r(NULL, BLANKS, &rest);
    const char *problem = read_setting(c, word, value != NULL ? value : "");
    if (problem == NULL && strtok_r(NULL, BLANKS, &rest) != NULL)
        problem = "there is more on the line than belongs there";
    return problem;
}

/* --- files ------------------------------------------------------------------------------------ */

int plugin_config_parse(struct plugin_config *c, const char *text, const char *path,
                        struct tl_error *err)
{
    char line[MAX_LINE];
    for (int n = 1; *text != 0; n++) {
        size_t bytes = strcspn(text, "\n");
        const char *problem = bytes >= sizeof line ? "the line is too long" : NULL;
        if (problem == NULL) {
            memcpy(line, text, bytes);
            line[bytes] = 0;
            problem = read_line(c, line);
        }
        if (problem != NULL)
            return tl_error_set(err, -EINVAL, "%s:%d: %s", path, n, problem);
        text += bytes + (text[bytes] == '\n');
    }
    return 0;
}

int plugin_config_read(struct plugin_config *c, int argc, char **argv, struct tl_error *err)
{
    const char *path = PLUGIN_CONFIG;
    bool is_named = false;
    char *text;
    size_t n;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "config=", 7) == 0) {
            path = argv[i] + 7;
            is_named = true;
        } else if (strncmp(argv[i], "prefix=", 7) == 0 && argv[i][7] == '/' &&
                   strlen(argv[i] + 7) < sizeof c->prefix) {
            strcpy(c->prefix, argv[i] + 7);
        } else {
            return tl_error_set(err, -EINVAL,
                                "plugstack.conf: '%s': there may be config=PATH and prefix=DIR",
                                argv[i]);
        }
    }
    int rc = tl_file_read(path, MAX_BYTES, &text, &n);
    if (rc == -ENOENT && !is_named)
        return 0;
    if (rc < 0)
        return tl_error_set(err, rc, "%s: %s", path, strerror(-rc));
    rc = plugin_config_parse(c, text, path, err);
    free(text);
    return rc;
}

/* --- asking ----------------------------------------------------------------------------------- */

const struct plugin_class *plugin_find(const struct plugin_config *c, const char *partition,
                                       const char *qos)
{
    for (const struct plugin_class *class = c->first; class != NULL; class = class->next) {
        const char *is = class->kind == PLUGIN_QOS         ? qos
                         : class->kind == PLUGIN_PARTITION ? partition
                                                           : class->name;
        if (is != NULL && strcmp(is, class->name) == 0)
            return class;
    }
    return NULL;
}
