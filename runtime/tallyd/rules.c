/* Priority is a right, not a variable, and so is everything else that a job may ask for at the cost
 * of others: a rules file says who may what.  Lines are
 *
 *     user NAME | uid N | group NAME | gid N | cgroup PATH | everybody   LEVEL   [LIMIT ...]
 *
 * with # for remarks; the first line that fits counts.  A cgroup fits with all below it.  Limits
 * are
 *
 *     min-share=PERCENT  weight=N  turnaround=TIME  memory-request=SIZE  slo  policy
 *
 * and stand for what may be asked for at most; memory=SIZE, which whoever asks for more or for none
 * has as his limit of device memory.  What a line does not name may not be asked for,
 * except by those who have the highest level: they lack only the choice of the policy.  Whoever no
 * line fits may do everything if he is tallyd's own user or root, else nothing. */
#include "runtime/job/settings.h"
#include "runtime/tallyd/tallyd.h"
#include "tally/file.h"
#include "tally/level.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINES = 10000, PATH_BYTES = 1024, MAX_BYTES = 16 << 20 };

enum rule_kind { BY_USER, BY_GROUP, BY_CGROUP, BY_NOTHING };

struct rule {
    struct rule *next;
    enum rule_kind kind;
    unsigned id;
    struct daemon_rights rights;
    char cgroup[PATH_BYTES];
};

struct daemon_rules {
    struct rule *first, **end;
};

/* What the policy "tally" goes by if a job does not say; see sched/levels.c. */
enum { USUAL_WEIGHT = 100, USUAL_TURNAROUND_NS = 31600 };

static const struct daemon_rights nothing = {
    .highest = TL_LEVEL_MIN,
    .weight = USUAL_WEIGHT,
    .turnaround_ns = USUAL_TURNAROUND_NS,
};
static const struct daemon_rights everything = {
    .highest = TL_LEVEL_MAX,
    .weight = UINT32_MAX,
    .min_permille = 1000,
    .turnaround_ns = UINT64_MAX,
    .memory_request = UINT64_MAX,
    .may_have_slo = true,
};

/* --- reading ---------------------------------------------------------------------------------- */

static bool read_number(const char *text, unsigned *id)
{
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    *id = (unsigned)n;
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && n < UINT32_MAX;
}

/* NULL, or what is wrong. */
static const char *read_who(struct rule *r, const char *kind, const char *name)
{
    if (strcmp(kind, "uid") == 0 || strcmp(kind, "gid") == 0) {
        r->kind = kind[0] == 'u' ? BY_USER : BY_GROUP;
        return read_number(name, &r->id) ? NULL : "that is no number";
    }
    if (strcmp(kind, "user") == 0) {
        const struct passwd *user = getpwnam(name);
        r->kind = BY_USER;
        r->id = user != NULL ? user->pw_uid : 0;
        return user != NULL ? NULL : "there is no such user";
    }
    if (strcmp(kind, "group") == 0) {
        const struct group *group = getgrnam(name);
        r->kind = BY_GROUP;
        r->id = group != NULL ? group->gr_gid : 0;
        return group != NULL ? NULL : "there is no such group";
    }
    if (strcmp(kind, "cgroup") == 0) {
        size_t n = strlen(name);
        while (n > 1 && name[n - 1] == '/')
            n--;
        r->kind = BY_CGROUP;
        if (name[0] != '/' || n >= sizeof r->cgroup)
            return "a cgroup is a path from /";
        memcpy(r->cgroup, name, n);
        return NULL;
    }
    return "a line begins with user, uid, group, gid, cgroup or everybody";
}

/* NULL, or what is wrong. */
static const char *read_limit(struct daemon_rights *rights, char *limit)
{
    char *value = strchr(limit, '=');
    if (value != NULL)
        *value++ = 0;
    if (value == NULL && strcmp(limit, "slo") == 0)
        rights->may_have_slo = true;
    else if (value == NULL && strcmp(limit, "policy") == 0)
        rights->may_choose_policy = true;
    else if (value != NULL && strcmp(limit, "min-share") == 0)
        return tl_settings_share(value, &rights->min_permille) == 0
                   ? NULL
                   : "min-share wants a part such as 20%";
    else if (value != NULL && strcmp(limit, "turnaround") == 0)
        return tl_settings_time(value, &rights->turnaround_ns) == 0
                   ? NULL
                   : "turnaround wants a time such as 100us";
    else if (value != NULL && strcmp(limit, "weight") == 0)
        return tl_settings_weight(value, &rights->weight) == 0
                   ? NULL
                   : "weight wants a number from 1 to 10000";
    else if (value != NULL && strcmp(limit, "memory") == 0)
        return tl_settings_bytes(value, &rights->memory_limit) == 0 && rights->memory_limit != 0
                   ? NULL
                   : "memory wants a size such as 8G";
    else if (value != NULL && strcmp(limit, "memory-request") == 0)
        return tl_settings_bytes(value, &rights->memory_request) == 0
                   ? NULL
                   : "memory-request wants a size such as 4G";
    else
        return "behind the level there may be min-share=, weight=, turnaround=, memory=, "
               "memory-request=, slo and policy";
    return NULL;
}

/* NULL, or what is wrong. */
static const char *read_rights(struct daemon_rights *rights, char **rest)
{
    int highest;
    const char *level = strtok_r(NULL, " \t\n", rest), *problem = NULL;
    if (level == NULL || tl_level_parse(level, &highest) < 0)
        return "who is named is given a level: high, low, or a number from -100 to 100";
    *rights = highest == TL_LEVEL_MAX ? everything : nothing;
    rights->highest = highest;
    for (char *limit = strtok_r(NULL, " \t\n", rest); limit != NULL && problem == NULL;
         limit = strtok_r(NULL, " \t\n", rest))
        problem = read_limit(rights, limit);
    return problem;
}

const char *daemon_rights_parse(struct daemon_rights *rights, char *text)
{
    char *rest = text;
    return read_rights(rights, &rest);
}

/* NULL, or what is wrong with the line. */
static const char *read_line(struct daemon_rules *rules, char *line)
{
    char *rest = line, *hash = strchr(line, '#');
    if (hash != NULL)
        *hash = 0;
    const char *kind = strtok_r(line, " \t\n", &rest);
    if (kind == NULL)
        return NULL;
    struct rule *r = calloc(1, sizeof *r);
    if (r == NULL)
        return "out of memory";
    *rules->end = r;
    rules->end = &r->next;
    r->kind = BY_NOTHING;
    if (strcmp(kind, "everybody") != 0) {
        const char *name = strtok_r(NULL, " \t\n", &rest);
        const char *problem = name != NULL ? read_who(r, kind, name) : "a name is missing";
        if (problem != NULL)
            return problem;
    }
    return read_rights(&r->rights, &rest);
}

int daemon_rules_parse(struct daemon_rules **out, struct tl_str text, const char *path,
                       struct tl_error *err)
{
    char line[PATH_BYTES + 128];
    int rc = 0;
    *out = NULL;
    struct daemon_rules *rules = calloc(1, sizeof *rules);
    if (rules == NULL)
        return tl_error_set(err, -ENOMEM, "out of memory for the rules %s", path);
    rules->end = &rules->first;
    uint32_t at = 0;
    for (int n = 1; rc == 0 && at < text.n; n++) {
        const char *end = memchr(text.p + at, '\n', text.n - at);
        size_t bytes = end != NULL ? (size_t)(end - text.p) - at : text.n - at;
        const char *problem = bytes >= sizeof line                    ? "the line is too long"
                              : n > MAX_LINES                         ? "there are too many lines"
                              : memchr(text.p + at, 0, bytes) != NULL ? "a byte of it is zero"
                                                                      : NULL;
        if (problem == NULL) {
            memcpy(line, text.p + at, bytes);
            line[bytes] = 0;
            problem = read_line(rules, line);
        }
        if (problem != NULL)
            rc = tl_error_set(err, -EINVAL, "%s:%d: %s", path, n, problem);
        at += (uint32_t)bytes + 1;
    }
    if (rc < 0) {
        daemon_rules_free(rules);
        return rc;
    }
    *out = rules;
    return 0;
}

int daemon_rules_read(struct daemon_rules **out, const char *path, bool is_optional,
                      struct tl_error *err)
{
    char *text;
    size_t n;
    *out = NULL;
    int rc = tl_file_read(path, MAX_BYTES, &text, &n);
    if (rc == -EFBIG)
        return tl_error_set(err, rc, "the rules %s are more than %d MB", path, MAX_BYTES >> 20);
    if (rc < 0)
        return is_optional && rc == -ENOENT
                   ? 0
                   : tl_error_set(err, rc, "the rules %s: %s", path, strerror(-rc));
    rc = daemon_rules_parse(out, (struct tl_str){text, (uint32_t)n}, path, err);
    free(text);
    return rc;
}

void daemon_rules_free(struct daemon_rules *r)
{
    while (r != NULL && r->first != NULL) {
        struct rule *rule = r->first;
        r->first = rule->next;
        free(rule);
    }
    free(r);
}

/* --- asking ----------------------------------------------------------------------------------- */

static bool is_in_group(const struct daemon_who *who, gid_t gid)
{
    for (uint32_t i = 0; i < who->n_groups; i++)
        if (who->groups[i] == gid)
            return true;
    return who->gid == gid;
}

/* Whether one of the process's cgroups is that one or below it.  A line of /proc/PID/cgroup is
 * ID:CONTROLLERS:PATH. */
static bool is_in_cgroup(pid_t pid, const char *cgroup)
{
    char path[64], line[PATH_BYTES + 128];
    size_t n = strlen(cgroup);
    bool is_in = false;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && !is_in && fgets(line, sizeof line, file) != NULL) {
        const char *controllers = strchr(line, ':'),
                   *at = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (at != NULL && strncmp(at + 1, cgroup, n) == 0)
            is_in = n == 1 || at[1 + n] == '/' || at[1 + n] == '\n';
    }
    if (file != NULL)
        fclose(file);
    return is_in;
}

static bool fits(const struct rule *r, const struct daemon_who *who)
{
    switch (r->kind) {
    case BY_USER:
        return who->uid == r->id;
    case BY_GROUP:
        return is_in_group(who, r->id);
    case BY_CGROUP:
        return is_in_cgroup(who->pid, r->cgroup);
    case BY_NOTHING:
        return true;
    }
    return false;
}

struct daemon_rights daemon_rules_rights(const struct daemon_rules *r, const struct daemon_who *who)
{
    bool is_own = daemon_is_own(who->uid);
    const struct rule *rule = r != NULL ? r->first : NULL;
    while (rule != NULL && !fits(rule, who))
        rule = rule->next;
    struct daemon_rights rights = rule != NULL ? rule->rights : is_own ? everything : nothing;
    rights.is_master = is_own && rights.highest == TL_LEVEL_MAX;
    rights.may_choose_policy |= rights.is_master;
    return rights;
}
