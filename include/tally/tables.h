/* A GPU's machine code as its linked cubin describes it (image/tables.c): kernels, where their
 * code is, and what the tables say that a driver would go by.  The bytes are hostile; nothing
 * outside of them is read. */
#ifndef TALLY_TABLES_H
#define TALLY_TABLES_H

#include "tally/base.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tl_tables {
    const uint8_t *bytes;
    size_t n;
    const Elf64_Shdr *sections;
    uint32_t n_sections;
    const Elf64_Sym *symbols;
    uint32_t n_symbols, symtab;
    uint32_t names; /* the section with the names of sections */
};

enum { TL_TABLES_PARAMS = 512 };

/* What `.nv.info`, `.nv.info.<kernel>` and the sections of a kernel say; 0 where they do not. */
struct tl_tables_facts {
    uint32_t max_threads, shared_bytes, registers, barriers;
    uint32_t section_registers; /* beside its code, before sm_90 */
    uint32_t param_bytes;       /* of all parameters */
    uint32_t bank_base, bank_bytes;
    uint64_t bank_size; /* of the constants that parameters are put into, from 0 on */
    bool uses_ctaid_z;  /* it is said to ask for the block's z */
    uint32_t n_params;
    bool has_more_params; /* than there is room for, or one twice */
    struct {
        uint32_t offset, bytes;
    } params[TL_TABLES_PARAMS];
};

/* `bytes` must be aligned to 8, and outlive it.  0, -EINVAL. */
int tl_tables_open(struct tl_tables *e, const void *bytes, size_t n, struct tl_error *err);
/* NULL if it has none, or an empty one. */
const char *tl_tables_symbol_name(const struct tl_tables *e, uint32_t symbol);
const char *tl_tables_section_name(const struct tl_tables *e, uint32_t section);
bool tl_tables_is_kernel(const struct tl_tables *e, uint32_t symbol);
/* Whether all of its tables may be looked through once for each of so many kernels. */
bool tl_tables_is_sane(const struct tl_tables *e, uint32_t n_kernels);
/* The symbol of the kernel of that name, or n_symbols. */
uint32_t tl_tables_find(const struct tl_tables *e, struct tl_str name);
/* The code of a kernel, as long as its symbol says; NULL if that is not all in its section. */
const uint8_t *tl_tables_code(const struct tl_tables *e, uint32_t symbol, uint64_t *n);
/* Whether a segment that is loaded has all of the section. */
bool tl_tables_is_loaded(const struct tl_tables *e, uint32_t section);
/* Whether it has a second form of the code, for other GPUs of the family. */
bool tl_tables_has_second_form(const struct tl_tables *e);
void tl_tables_read(const struct tl_tables *e, uint32_t symbol, struct tl_tables_facts *f);

#endif
