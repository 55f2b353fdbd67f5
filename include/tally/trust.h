/* Whom a path leads past.  libc only. */
#ifndef TALLY_TRUST_H
#define TALLY_TRUST_H

#include "tally/base.h"

#include <sys/types.h>

/* Whether that user is one whom this user namespace does not know, as root of the machine is in a
 * container that somebody else than root runs.  False outside of such namespaces. */
bool tl_trust_is_outside(uid_t uid);

/* Whether nobody but this user and root can make the path lead elsewhere, or could have: every
 * folder on the way belongs to one of them, and others may not write to it unless it is sticky, as
 * /tmp is; and so does every link.  Within a user namespace, owners whom it does not know are taken
 * for root; in a container, volumes of root's may be everybody's to write.  What is behind the
 * first name that is missing counts as good.
 *
 * 0; -EPERM with a message that names the folder; another negative errno value. */
int tl_trust_path(const char *path, struct tl_error *err);

#endif
