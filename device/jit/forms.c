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
#include "device/jit/shelf.h"
#include "tally/hash.h"
#include "tally/lock.h"

/* As much as a process keeps; who has more kinds of instructions has the rest in place. */
enum { MAX_FORMS = 20000, MAX_KEPT = 64 << 20 };

static struct tl_mutex lock = TL_MUTEX_INITIALIZER;
static struct tl_table kept TL_GUARDED_BY(lock);
static size_t kept_bytes TL_GUARDED_BY(lock);
static const struct tl_shelf *shelf TL_GUARDED_BY(lock); /* NULL: there is none */
static uint64_t shelf_at TL_GUARDED_BY(lock);            /* bytes of it that were read */

/* --- the shelf -------------------------------------------------------------------------------- */

void tl_forms_read(const struct tl_shelf *s)
{
    tl_mutex_lock(&lock);
    shelf = s;
    shelf_at = 0;
    tl_mutex_unlock(&lock);
}

/* Takes over an entry, whose key and code stay where they are. */
static void take_entry(const struct tl_shelf_entry *e) TL_REQUIRES(lock)
{
    struct tl_str key = tl_shelf_key(e);
    void **place = tl_table_get(&kept, key) == NULL ? tl_table_place(&kept, key) : NULL;
    struct tl_form *form = place != NULL ? calloc(1, sizeof *form) : NULL;
    if (form == NULL)
        return;
    *form = (struct tl_form){.key = key,
                             .code = e->has_code ? (void *)(uintptr_t)(key.p + key.n) : NULL,
                             .n = e->code_n,
                             .stack_bytes = e->stack_bytes,
                             .has_read = e->has_read != 0,
                             .is_told = true,
                             .ir_hash = e->ir_hash};
    *place = form;
    kept_bytes += sizeof *form;
}

/* What was put there since. */
static void read_shelf(void) TL_REQUIRES(lock)
{
    uint64_t n = shelf != NULL ? atomic_load_explicit(&shelf->n, memory_order_acquire) : 0;
    while (shelf_at < n && n <= TL_SHELF_BYTES - TL_SHELF_HEAD) {
        const struct tl_shelf_entry *e = tl_shelf_entry_at(
            (const char *)shelf + TL_SHELF_HEAD + shelf_at, n - shelf_at);
        if (e == NULL) {
            shelf = NULL;
            return;
        }
        take_entry(e);
        shelf_at += e->bytes;
    }
}

void tl_forms_tell(struct tl_buf *out)
{
    static const char zeroes[TL_SHELF_ALIGN];
    uint32_t at = 0;
    struct tl_form *form;
    tl_mutex_lock(&lock);
    while ((form = tl_table_next(&kept, &at)) != NULL) {
        size_t n = sizeof(struct tl_shelf_entry) + form->key.n + form->n;
        size_t bytes = (n + TL_SHELF_ALIGN - 1) / TL_SHELF_ALIGN * TL_SHELF_ALIGN;
        struct tl_shelf_entry e = {.bytes = (uint32_t)bytes,
                                   .key_n = form->key.n,
                                   .code_n = (uint32_t)form->n,
                                   .stack_bytes = form->stack_bytes,
                                   .ir_hash = form->ir_hash,
                                   .has_read = form->has_read,
                                   .has_code = form->code != NULL};
        if (form->is_told || bytes > TL_SHELF_BYTES - TL_SHELF_HEAD)
            continue;
        form->is_told = true;
        tl_buf_add(out, (const char *)&e, sizeof e);
        tl_buf_add(out, form->key.p, form->key.n);
        if (form->n > 0)
            tl_buf_add(out, form->code, form->n);
        tl_buf_add(out, zeroes, bytes - n);
    }
    tl_mutex_unlock(&lock);
}

/* --- those that are kept ---------------------------------------------------------------------- */

const struct tl_form *tl_form_find(struct tl_str key)
{
    tl_mutex_lock(&lock);
    const struct tl_form *form = tl_table_get(&kept, key);
    if (form == NULL && shelf != NULL) {
        read_shelf();
        form = tl_table_get(&kept, key);
    }
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

uint64_t tl_form_ir_hash(const char *ir)
{
    return ir != NULL ? tl_hash_64(ir, strlen(ir)) | 1 : 0;
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
                             .ir = use->ir,
                             .ir_hash = tl_form_ir_hash(use->ir)};
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
