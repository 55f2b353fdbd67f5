/* Machine code for the device at hand, gated; see the header. */
#include "runtime/doctor/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/job/qualified.h"
#include "tally/origin.h"

/* --- compilers -------------------------------------------------------------------------------- */

static const struct tl_cubin_compiler *compiler_of(const struct tl_doc_machine *m)
{
    return m->ptxas != NULL ? m->ptxas : &m->linker;
}

const char *tl_doc_machine_compiler(const struct tl_doc_machine *m)
{
    return m->ptxas != NULL ? "ptxas" : "the driver's linker";
}

/* The driver's linker, which compiles PTX for the device of the current context. */
static int link_text(void *data, const char *ptx, uint32_t arch, void **cubin, size_t *n,
                     struct tl_error *err)
{
    static const char magic[] = "\x7f"
                                "ELF";
    const struct tl_doc_driver *d = &tl_doc_driver;
    CUlinkState state = NULL;
    void *image = NULL, *copy = NULL;
    (void)data, (void)arch;
    if (d->cuLinkCreate_v2 == NULL || d->cuLinkAddData_v2 == NULL || d->cuLinkComplete == NULL ||
        d->cuLinkDestroy == NULL)
        return tl_error_set(err, -ENOENT, "there is no ptxas, and the driver has no linker");
    CUresult r = d->cuLinkCreate_v2(0, NULL, NULL, &state);
    if (r == CUDA_SUCCESS)
        r = d->cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)ptx, strlen(ptx) + 1, "doctor", 0,
                                NULL, NULL);
    if (r == CUDA_SUCCESS)
        r = d->cuLinkComplete(state, &image, n);
    bool is_code = r == CUDA_SUCCESS && *n > sizeof magic && memcmp(image, magic, 4) == 0;
    if (is_code)
        copy = malloc(*n);
    if (copy != NULL)
        memcpy(copy, image, *n);
    if (state != NULL)
        d->cuLinkDestroy(state);
    *cubin = copy;
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EIO, "there is no ptxas, and the driver's linker fails: %s",
                            tl_doc_error(r));
    if (!is_code)
        return tl_error_set(err, -ENOENT,
                            "there is no ptxas, and the driver's linker makes no machine code");
    return copy != NULL ? 0 : tl_error_set(err, -ENOMEM, "no memory for a cubin");
}

static void use_linker(struct tl_doc_machine *m)
{
    char module[64];
    int version = 0;
    tl_doc_driver.cuDriverGetVersion(&version);
    tl_qualified_driver(module, sizeof module);
    snprintf(m->identity, sizeof m->identity, "driver %d %s", version, module);
    m->linker = (struct tl_cubin_compiler){link_text, NULL, m->identity};
}

int tl_doc_machine_make(struct tl_doc_machine *m, struct tl_error *err)
{
    char folder[TL_STORE_PATH];
    CUdevice device;
    int major = 0, minor = 0;
    *m = (struct tl_doc_machine){0};
    CUresult r = tl_doc_driver.cuCtxGetDevice(&device);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                               device);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                               device);
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EIO, "the driver does not tell its architecture: %s",
                            tl_doc_error(r));
    m->arch = (uint32_t)(10 * major + minor);
    if (!tl_cubin_knows_arch(m->arch))
        return tl_error_set(err, -ENOTSUP, "gates for sm_%u have not been checked", m->arch);
    if (tl_cubin_ptxas_create(&m->ptxas, NULL, NULL) < 0)
        use_linker(m);
    /* Kept for the next time, and for the jobs that will use them. */
    m->has_store = tl_store_folder(folder, NULL) == 0 &&
                   tl_store_open(&m->store, folder, tl_store_limit_mb(), NULL) == 0;
    return tl_cubin_gates_create(&m->gates, compiler_of(m), m->has_store ? &m->store : NULL, err);
}

void tl_doc_machine_free(struct tl_doc_machine *m)
{
    tl_cubin_gates_destroy(m->gates);
    tl_cubin_ptxas_destroy(m->ptxas);
    if (m->has_store)
        tl_store_close(&m->store);
    *m = (struct tl_doc_machine){0};
}

/* --- forms ------------------------------------------------------------------------------------ */

static int load(const void *cubin, struct tl_doc_form *f, const char *what, struct tl_error *err)
{
    CUresult r = tl_doc_driver.cuModuleLoadData(&f->module, cubin);
    if (r == CUDA_SUCCESS)
        r = tl_doc_driver.cuModuleGetFunction(&f->function, f->module, f->kernel->name);
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EIO, "the driver does not load %s: %s", what, tl_doc_error(r));
    return tl_doc_form_measure(f, err);
}

/* The twin of a kernel, in the same module. */
static int find_twin(const struct tl_doc_form *original, struct tl_doc_form *f,
                     struct tl_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s" TL_CUBIN_TWIN_SUFFIX, f->kernel->name);
    CUresult r = tl_doc_driver.cuModuleGetFunction(&f->function, original->module, name);
    if (r != CUDA_SUCCESS)
        return tl_error_set(err, -EIO, "the driver does not find the twin: %s", tl_doc_error(r));
    return tl_doc_form_measure(f, err);
}

static int gate_and_load(struct tl_doc_machine *m, const void *cubin, const struct tl_cubin *c,
                         bool is_twin, struct tl_doc_form *original, struct tl_doc_form *form,
                         struct tl_error *err)
{
    struct tl_cubin_gated gated = {0};
    struct tl_str name = tl_str_of(form->kernel->name);
    const struct tl_cubin_entry *e = tl_cubin_find(c, name);
    if (e == NULL)
        return tl_error_set(err, -ENOENT, "the compiler has left it out");
    if (e->wants_twin && !is_twin)
        return tl_error_set(err, -ENODATA, "its module has variables");
    int rc = tl_cubin_gate(c, &(struct tl_cubin_options){.kernel = name, .is_twin = is_twin},
                           m->gates, &gated, err);
    if (rc < 0)
        return rc;
    form->gate_offset = e->gate_offset;
    rc = load(is_twin ? gated.bytes : cubin, original,
              is_twin ? "it with its twin" : "its machine code", err);
    if (rc == 0)
        rc = is_twin ? find_twin(original, form, err) : load(gated.bytes, form, "it gated", err);
    tl_cubin_gated_finish(&gated);
    return rc;
}

int tl_doc_machine_forms(struct tl_doc_machine *m, const struct tl_doc_kernel *k, bool is_twin,
                         struct tl_doc_form *original, struct tl_doc_form *form,
                         struct tl_error *err)
{
    const struct tl_cubin_compiler *compiler = compiler_of(m);
    struct tl_cubin *c = NULL;
    void *cubin = NULL;
    size_t n = 0;
    *original = (struct tl_doc_form){
        .kernel = k, .variant = TL_DOC_ORIGINAL, .shared_bytes = k->shared_bytes};
    *form = (struct tl_doc_form){
        .kernel = k, .variant = TL_DOC_GATED, .shared_bytes = k->shared_bytes};
    int rc = compiler->compile(compiler->data, k->text, m->arch, &cubin, &n, err);
    /* A GPU runs it whatever is kept here; the software device then knows what it was made of. */
    if (rc == 0 && m->has_store)
        (void)tl_origin_keep(&m->store, cubin, n, k->text, strlen(k->text), NULL);
    if (rc == 0)
        rc = tl_cubin_open(&c, cubin, n, err);
    if (rc == 0)
        rc = gate_and_load(m, cubin, c, is_twin, original, form, err);
    tl_cubin_close(c);
    free(cubin);
    return rc;
}
