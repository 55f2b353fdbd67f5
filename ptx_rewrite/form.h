/* Words to numbers and back. */
#ifndef TALLY_PTX_FORM_H
#define TALLY_PTX_FORM_H

#include "ptx_rewrite/ast.h"

enum tl_ptx_op tl_ptx_op_of(struct tl_str word); /* TL_OP_unknown if it is none */
const char *tl_ptx_op_name(enum tl_ptx_op op);
/* without the dot; TL_MOD_other if no pass asks about it */
enum tl_ptx_mod tl_ptx_mod_of(struct tl_str word);
enum tl_ptx_sreg tl_ptx_sreg_of(struct tl_str word); /* "%tid"; TL_SREG_none if it is none */

#endif
