/* In a child: machine code for the device at hand, and gates in front of it (docs/gate.md). */
#ifndef TALLY_RUNTIME_DOCTOR_MACHINE_H
#define TALLY_RUNTIME_DOCTOR_MACHINE_H

#include "runtime/doctor/bench.h"
#include "tally/cubin.h"

struct tl_doc_machine {
    uint32_t arch;
    struct tl_cubin_compiler *ptxas; /* NULL: there is none, and the driver's linker compiles */
    struct tl_cubin_compiler linker;
    char identity[128]; /* of the linker */
    struct tl_cubin_gates *gates;
    bool has_store;
    struct tl_store store;
};

/* Finds a compiler for the current context's device.  0, -ENOTSUP (gates are not known for such a
 * device), another negative errno value; with a message. */
int tl_doc_machine_make(struct tl_doc_machine *m, struct tl_error *err);
void tl_doc_machine_free(struct tl_doc_machine *m);
const char *tl_doc_machine_compiler(const struct tl_doc_machine *m); /* in words */

/* Compiles a kernel, gates it in a module of its own or as a twin, and loads both forms.  0,
 * -ENODATA (it has variables, so only twins are right), -EPERM (it cannot be gated), -EIO (the
 * driver does not load it), another negative errno value; with a message.  The forms are to be
 * freed anyway. */
int tl_doc_machine_forms(struct tl_doc_machine *m, const struct tl_doc_kernel *k, bool is_twin,
                         struct tl_doc_form *original, struct tl_doc_form *form,
                         struct tl_error *err);

#endif
