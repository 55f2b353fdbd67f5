/* Compiled forms: those of the process, which all quick versions share, and those that a kernel is
 * the first to have.
 *
 * New ones are compiled together, well, as a module of their own.  Their code is then bytes, which
 * go as constants into the modules of kernels that call them, so that an object is complete in
 * itself. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/jit/form.h"
#include "device/jit/function.h"
#include "tally/lock.h"

/* As much as a process keeps; who has more kinds of instructions has the rest in place. */
enum { MAX_FORMS = 20000, MAX_KEPT = 64 << 20 };

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct tl_table kept TL_GUARDED_BY(lock);
static size_t kept_bytes TL_GUARDED_BY(lock);

const struct tl_form *tl_form_find(struct tl_str key)
{
    tl_mutex_lock(&lock);
    const struct tl_form *form = tl_table_get(&kept, key);
    tl_mutex_unlock(&lock);
    return form;
}

bool tl_forms_have_room(void)
{
    tl_mutex_lock(&lock);
    bool has_room = kept.n < MAX_FORMS && kept_bytes < MAX_KEPT;
    tl_mutex_unlock(&lock);
    return has_room;
}

/* Keeps it, unless another thread has one like it by now; that which is kept. */
static const struct tl_form *keep(struct tl_form *form)
{
    tl_mutex_lock(&lock);
    void **place = tl_table_place(&kept, form->key);
    const struct tl_form *other = place != NULL ? *place : NULL;
    if (place != NULL && other == NULL) {
        *place = form;
        kept_bytes += sizeof *form + form->key.n + form->n;
    }
    tl_mutex_unlock(&lock);
    if (place != NULL && other == NULL)
        return form;
    free((char *)(uintptr_t)form->key.p);
    free(form->code);
    free(form->ir);
    free(form);
    return other;
}

/* The compiled code of a new form, kept.  0, -EAGAIN if it cannot be moved, -ENOMEM, -EIO. */
static int take_over(struct tl_emit *e, struct tl_form_use *use, const struct tl_jit_object *o)
{
    char name[32];
    struct tl_form *form = calloc(1, sizeof *form);
    char *key = malloc(use->key.n + 1);
    if (form == NULL || key == NULL) {
        free(form);
        free(key);
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    }
    memcpy(key, use->key.p, use->key.n);
    *form = (struct tl_form){.key = {key, use->key.n},
                             .stack_bytes = use->stack_bytes,
                             .has_read = use->has_read,
                             .ir = use->ir};
    use->ir = NULL;
    snprintf(name, sizeof name, "form.%u", use->number);
    int rc = tl_form_blob(o->bytes, o->n, name, &form->code, &form->n);
    if (rc < 0 && rc != -ENOTSUP) {
        free(key);
        free(form->ir);
        free(form);
        return tl_error_set(e->err, rc == -ENOMEM ? rc : -EIO, "%s: the code of a form: %s",
                            e->name, strerror(-rc));
    }
    use->form = keep(form);
    if (use->form == NULL)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    return use->form->code != NULL ? 0 : -EAGAIN;
}

/* A constant of the module with the code takes the place of the declared function. */
static void put_code(struct tl_emit *e, const struct tl_form_use *use)
{
    const struct tl_form *form = use->form;
    LLVMValueRef bytes = LLVMConstStringInContext2(e->ctx, form->code, form->n, true);
    LLVMValueRef global = LLVMAddGlobal(e->mod, LLVMTypeOf(bytes), "form");
    LLVMSetInitializer(global, bytes);
    LLVMSetGlobalConstant(global, true);
    LLVMSetLinkage(global, LLVMInternalLinkage);
    LLVMSetAlignment(global, 64);
    LLVMReplaceAllUsesWith(use->callee, global);
    LLVMDeleteFunction(use->callee);
}

int tl_forms_bind(struct tl_emit *e)
{
    struct tl_quick *q = e->quick;
    uint32_t most = 0;
    int rc = 0;
    if (q->n_new > 0) {
        struct tl_jit_object object = {0};
        rc = tl_generate_forms(e, &object);
        for (uint32_t i = 0; i < q->n_new && (rc == 0 || rc == -EAGAIN); i++) {
            int taken = take_over(e, q->new[i], &object);
            rc = taken < 0 ? taken : rc;
        }
        tl_jit_object_finish(&object);
    }
    for (const struct tl_form_use *use = q->uses; use != NULL && rc == 0; use = use->next) {
        put_code(e, use);
        most = use->form->stack_bytes > most ? use->form->stack_bytes : most;
    }
    e->stack_bytes += most;
    return rc;
}
