/* Rules of tallyd: what is accepted gives nobody more than there is. */
#include "runtime/tallyd/tallyd.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

/* Users and groups without files: every name that begins with a letter below n is somebody. */
struct passwd *getpwnam(const char *name)
{
    static struct passwd user;
    user.pw_uid = (uid_t)name[0];
    return name[0] >= 'a' && name[0] < 'n' ? &user : NULL;
}

struct group *getgrnam(const char *name)
{
    static struct group group;
    group.gr_gid = (gid_t)name[0];
    return name[0] >= 'a' && name[0] < 'n' ? &group : NULL;
}

bool daemon_is_own(uid_t uid)
{
    return uid == 0;
}

static void expect(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct daemon_rules *rules;
    struct tl_error err = {0};
    int rc = daemon_rules_parse(&rules, (struct tl_str){(const char *)data, (uint32_t)n}, "rules",
                                &err);
    expect(rc == 0 || (rules == NULL && err.text[0] != 0));
    struct daemon_who who = {.pid = -1, .groups = {100}, .n_groups = 1};
    for (who.uid = 0; who.uid < 128 && rc == 0; who.uid += 97) {
        who.gid = who.uid + 1;
        struct daemon_rights rights = daemon_rules_rights(rules, &who);
        expect(rights.highest >= TL_LEVEL_MIN && rights.highest <= TL_LEVEL_MAX);
        expect(rights.min_permille <= 1000);
        expect(!rights.is_master || who.uid == 0);
    }
    daemon_rules_free(rules);
    return 0;
}
