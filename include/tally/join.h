/* Several PTX modules become one, as a linker would make one program of them: what one declares and
 * another defines meets by name. */
#ifndef TALLY_JOIN_H
#define TALLY_JOIN_H

#include "tally/ptx.h"

struct tl_ptx_part {
    const struct tl_ptx_index *index;
    /* comes in only if it defines what those that are in only declare, as an archive's members do;
     * where two that came in so define the same, the first counts */
    bool is_library;
    bool is_in; /* set by tl_ptx_join */
};

/* One text of all that is in, for the newest version and target among them, without declarations of
 * what another one defines and without second weak definitions.  A name that is only a text's own
 * and that another one has as well becomes NAME$partNUMBER, wherever it stands in its text, and a
 * library's own NAME$libraryNUMBER: so the same parts in the same order always give the same names,
 * whatever libraries are among them.  Bodies are copied and, but for texts with such names, not
 * read.
 *
 * Kernels get a limit of `max_registers` if that is not 0.  The text is the caller's to
 * free.  0; -EEXIST (two define a name for others to use, which the message has), -EINVAL (they do
 * not fit together otherwise, or none is in), -EFBIG (2 GiB and more), -ENOMEM. */
int tl_ptx_join(struct tl_ptx_part *parts, uint32_t n, uint32_t max_registers, char **text,
                size_t *n_text, struct tl_error *err);

#endif
