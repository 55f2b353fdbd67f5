/* Priority is a right, not a variable, and so is everything else that a job may ask for at the cost
 * of others: a rules file says who may what.  Lines are
 *
 *     user NAME | uid N | group NAME | gid N | cgroup PATH | everybody   LEVEL   [LIMIT ...]
 *
 * with # for remarks; the first line that fits counts.  A cgroup fits with all below it.  Limits
 * are
 *
 *     min-share=PERCENT  weight=N  turnaround=TIME  slo  policy
 *
 * and stand for what may be asked for at most.  What a line does not name may not be asked for,
 * except by those who have the highest level: they lack only the choice of the policy.  Whoever no
 * line fits may do everything if he is tallyd's own user or root, else nothing. */
#include "runtime/job/settings.h"
#include "runtime/tallyd/tallyd.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LINES = 10000, PATH_BYTES = 1024 };

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
    else
        return "behind the level there may be min-share=, weight=, turnaround=, slo and policy";
    return NULL;
}

/* NULL, or what is wrong. */
static const char *read_rights(struct daemon_rights *rights, char **rest)
{
    int highest;
    const char *level = strtok_r(NULL, " \t\n", rest), *problem = NULL;
    if (level == NULL || tl_settings_level(level, &highest) < 0)
        return "who is named is given a level: high, low, or a number from -100 to 100";
    *rights = highest == TL_LEVEL_MAX ? everything : nothing;
    rights->highest = highest;
    for (char *limit = strtok_r(NULL, " \t\n", rest); limit != NULL && problem == NULL;
         limit = strtok_r(NULL, " \t\n", rest))
        problem = read_limit(rights, limit);
    return problem;
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

int daemon_rules_read(struct daemon_rules **out, const char *path, bool is_optional,
                      struct tl_error *err)
{
    char line[PATH_BYTES + 128];
    int rc = 0;
    *out = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return is_optional && errno == ENOENT ? 0 : tl_error_errno(err, "the rules %s", path);
    struct daemon_rules *rules = calloc(1, sizeof *rules);
    if (rules == NULL) {
        fclose(file);
        return tl_error_set(err, -ENOMEM, "out of memory for the rules %s", path);
    }
    rules->end = &rules->first;
    for (int n = 1; rc == 0 && fgets(line, sizeof line, file) != NULL; n++) {
        const char *problem = strlen(line) == sizeof line - 1 ? "the line is too long"
                              : n > MAX_LINES                 ? "there are too many lines"
                                                              : read_line(rules, line);
        if (problem != NULL)
            rc = tl_error_set(err, -EINVAL, "%s:%d: %s", path, n, problem);
    }
    if (rc == 0 && ferror(file))
        rc = tl_error_set(err, -EIO, "%s cannot be read to its end", path);
    fclose(file);
    if (rc < 0) {
        daemon_rules_free(rules);
        return rc;
    }
    *out = rules;
    return 0;
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
