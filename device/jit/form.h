/* Quick versions of kernels: what instructions do is done by functions over operands in memory, one
 * per form of instruction, that are compiled once and kept for all kernels to come.
 *
 *     quick.c   a kernel's instruction as a call: what the form is, what the function is given
 *     forms.c   functions that are kept, and those that are new
 *     blob.c    a compiled function as bytes that run wherever they stand */
#ifndef TALLY_DEVICE_JIT_FORM_H
#define TALLY_DEVICE_JIT_FORM_H

#include "device/jit/emit.h"
#include "tally/table.h"

enum { TL_FORM_IMMEDIATES = 4 };

/* A compiled form; never changed nor freed once it is kept. */
struct tl_form {
    struct tl_str key; /* says everything that its code depends on */
    void *code;        /* NULL: it cannot be moved, and is written in place in each kernel */
    size_t n;
    uint32_t stack_bytes; /* its frame */
    bool has_read;        /* over the bus, perhaps: see bus.c */
    bool is_told;         /* others know it: shelf.h */
    /* what was compiled, where translations are verified, if it was compiled here; else NULL */
    char *ir;
    uint64_t ir_hash; /* of that, wherever it was compiled; 0: not known */
};

/* A form that a kernel uses. */
struct tl_form_use {
    struct tl_form_use *next;
    struct tl_str key;
    const struct tl_form *form; /* NULL: it is new */
    LLVMTypeRef type;
    LLVMValueRef callee; /* in the kernel's module: declared, until its code is there */
    uint32_t number;     /* of a new one: its function is form.NUMBER */
    uint32_t stack_bytes;
    bool has_read;
    char *ir;
};

/* Of a kernel that is being translated. */
struct tl_quick {
    LLVMModuleRef mod;     /* of new forms; NULL until there is one */
    struct tl_table table; /* of uses, by key */
    struct tl_form_use *uses, **new;
    uint32_t n_new, room;
    uint8_t compiler[32]; /* what CPU the code is for */
    /* while a form is being written: its parameters in place of what the operands say */
    const struct tl_form_use *inside;
    LLVMValueRef offset;
    LLVMValueRef immediate[TL_FORM_IMMEDIATES];
    uint32_t immediate_at[TL_FORM_IMMEDIATES]; /* operands' places in the text */
    uint32_t n_immediates;
};

/* --- quick.c ---------------------------------------------------------------------------------- */
int tl_quick_init(struct tl_emit *e);
void tl_quick_finish(struct tl_emit *e);
/* Whether the current instruction has become a call. */
bool tl_quick_call(struct tl_emit *e);
/* While a form is being written: the parameter that stands for an immediate operand or the offset
 * of an address, as i64; else NULL. */
LLVMValueRef tl_form_immediate(const struct tl_emit *e, const struct tl_ptx_operand *o);
LLVMValueRef tl_form_offset(const struct tl_emit *e);

/* --- forms.c ---------------------------------------------------------------------------------- */
/* A form that is kept, or NULL. */
const struct tl_form *tl_form_find(struct tl_str key);
/* Whether more can be kept. */
bool tl_forms_have_room(void);
/* Of LLVM's text of a form; 0 for NULL. */
uint64_t tl_form_ir_hash(const char *ir);
/* Compiles and keeps the new ones, and puts the code of all into the kernel's module.  0, -EAGAIN
 * (a form has no code that can be moved: the kernel is to be compiled in another way), or as
 * tl_jit_compile. */
int tl_forms_bind(struct tl_emit *e);

/* --- blob.c ----------------------------------------------------------------------------------- */
/* The function of that name in a relocatable object, with the constants that it needs behind it,
 * malloc'ed.  0, -ENOTSUP (it refers to something else), -ENOENT, -EINVAL, -ENOMEM. */
int tl_form_blob(const void *object, size_t n, const char *name, void **code, size_t *code_n);

#endif
