/* Inside of an index, for the parser: the text and the name of the module. */
#ifndef TALLY_PTX_INDEX_H
#define TALLY_PTX_INDEX_H

#include "tally/ptx.h"
#include "tally/table.h"

struct tl_ptx_index {
    struct tl_arena arena;
    const char *text;
    uint32_t n;
    const char *name; /* for messages */
    struct tl_ptx_item *items;
    uint32_t n_items, cap_items;
    struct tl_table by_name; /* const struct tl_ptx_item, of `items` */
    struct tl_str version, target;
    uint32_t address_size; /* 0 if the module does not say */
};

#endif
