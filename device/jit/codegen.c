/* What LLVM does with a translated module: optimises it and makes machine code.  Machines are kept
 * between kernels, because to describe a processor takes LLVM longer than to compile a small kernel
 * for it. */
#include "device/jit/jit.h"

#include <errno.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/abi.h"
#include "device/jit/emit.h"
#include "device/jit/form.h"
#include "device/jit/function.h"
#include "tally/lock.h"

enum {
    /* bytes of a call that are not in what LLVM calls the frame: return address, saved registers */
    FRAME_EXTRA = 256,
};

/* --- the host --------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *host_cpu, *host_features;
static bool verifies; /* what was translated, before LLVM sees it: all tests do */

/* LLVM's options are the process's; they are set once, before anything is compiled. */
static void init_once(void)
{
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    /* Processors that run code out of order gain nothing from LLVM's schedulers, which take a third
     * of the time of large kernels.  The other passes are for what such code does not have (calls
     * of libc's functions, comparisons of memory), or find little in it that the optimiser has
     * left: no kernel of the bench runs slower without them. */
    static const char *const options[] = {
        "tally-jit",
        "-enable-misched=false",
        "-disable-post-ra",
        "-disable-machine-sink",
        "-disable-machine-licm",
        "-disable-machine-cse",
        "-disable-machine-dce",
        "-disable-lsr",
        "-disable-cgp",
        "-disable-copyprop",
        "-disable-peephole",
        "-disable-early-ifcvt",
        "-disable-mergeicmps",
        "-disable-constant-hoisting",
        "-disable-partial-libcall-inlining",
        "-disable-x86-domain-reassignment",
        "-enable-shrink-wrap=false",
        "-x86-cmov-converter=false",
        "-fast-isel=false", /* it knows no vectors, and leaves them one by one to the other */
    };
    LLVMParseCommandLineOptions(sizeof options / sizeof options[0], options, NULL);
    LLVMInitializeX86AsmParser(); /* of the few instructions that are written out, see float.c */
    host_cpu = LLVMGetHostCPUName();
    host_features = LLVMGetHostCPUFeatures();
    const char *verify = secure_getenv("TALLY_JIT_VERIFY");
    verifies = verify != NULL && strcmp(verify, "0") != 0;
}

int tl_jit_init(struct tl_error *err)
{
    pthread_once(&once, init_once);
    return host_cpu != NULL && host_features != NULL
               ? 0
               : tl_error_set(err, -EIO, "LLVM does not know this CPU");
}

bool tl_jit_verifies(void)
{
    return verifies;
}

const char *tl_jit_host_cpu(void)
{
    return host_cpu;
}

const char *tl_jit_host_features(void)
{
    return host_features;
}

/* --- optimising ------------------------------------------------------------------------------- */

static int optimise(struct tl_emit *e, LLVMTargetMachineRef tm)
{
    /* No vectorisers: the code is vectors already.  See docs/device.md for how the list was
     * chosen. */
    static const char passes[] = "function(mem2reg),always-inline,function(early-cse<memssa>,"
                                 "simplifycfg,instcombine<no-verify-fixpoint>,"
                                 "loop-mssa(licm),early-cse<memssa>,simplifycfg)";
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error = LLVMRunPasses(e->mod, passes, tm, options);
    LLVMDisposePassBuilderOptions(options);
    if (error == NULL)
        return 0;
    char *message = LLVMGetErrorMessage(error);
    int rc = tl_error_set(e->err, -EIO, "%s: LLVM: %s", e->name, message);
    LLVMDisposeErrorMessage(message);
    return rc;
}

/* LLVM tells the size of a frame in a warning only, see tl_new_function. */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *data)
{
    static const char frame[] = "stack frame size (", form[] = "'form.";
    struct tl_emit *e = data;
    char *text = LLVMGetDiagInfoDescription(info);
    const char *size = strstr(text, frame), *of = strstr(text, form);
    uint64_t bytes = size != NULL ? strtoull(size + strlen(frame), NULL, 10) + FRAME_EXTRA : 0;
    unsigned long number = of != NULL ? strtoul(of + strlen(form), NULL, 10) : 0;
    if (size != NULL && of != NULL && e->quick != NULL && number < e->quick->n_new)
        e->quick->new[number]->stack_bytes = (uint32_t)bytes;
    else if (size != NULL)
        e->stack_bytes += bytes;
    else if (LLVMGetDiagInfoSeverity(info) == LLVMDSError && e->rc == 0)
        e->rc = tl_error_set(e->err, -EIO, "%s: LLVM: %s", e->name, text);
    LLVMDisposeMessage(text);
}

void tl_watch_frames(struct tl_emit *e)
{
    LLVMContextSetDiagnosticHandler(e->ctx, on_diagnostic, e);
}

/* --- machines --------------------------------------------------------------------------------- */

/* How code is made: with much of LLVM, with little, and of calls and scalars without looking at a
 * block as a whole. */
enum way { WELL, LEAST, QUICKLY, WAYS };

struct machine {
    char *cpu, *features;
    enum way way;
    LLVMTargetMachineRef tm;
};

/* Those that were used last, while nobody has them. */
static struct tl_mutex idle_lock = TL_MUTEX_INITIALIZER;
static struct machine *idle[WAYS];

static void destroy_machine(struct machine *m)
{
    if (m == NULL)
        return;
    if (m->tm != NULL)
        LLVMDisposeTargetMachine(m->tm);
    free(m->cpu);
    free(m->features);
    free(m);
}

static struct machine *swap_idle(enum way way, struct machine *m)
{
    tl_mutex_lock(&idle_lock);
    struct machine *was = idle[way];
    idle[way] = m;
    tl_mutex_unlock(&idle_lock);
    return was;
}

/* Takes over `features`.  NULL with e->rc set if there is none. */
static struct machine *create_machine(struct tl_emit *e, enum way way, const char *cpu,
                                      char *features)
{
    struct machine *m = calloc(1, sizeof *m);
    LLVMTargetRef target;
    char *message = NULL, *triple = LLVMGetDefaultTargetTriple();
    if (m != NULL)
        m->cpu = strdup(cpu);
    if (m == NULL || m->cpu == NULL) {
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        free(features);
    } else {
        m->features = features;
        m->way = way;
        if (LLVMGetTargetFromTriple(triple, &target, &message))
            e->rc = tl_error_set(e->err, -EIO, "%s: LLVM: %s", e->name, message);
        else if ((m->tm = LLVMCreateTargetMachine(target, triple, cpu, features,
                                                  way == WELL ? LLVMCodeGenLevelDefault
                                                              : LLVMCodeGenLevelNone,
                                                  LLVMRelocPIC, LLVMCodeModelSmall)) == NULL)
            e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    }
    LLVMDisposeMessage(message);
    LLVMDisposeMessage(triple);
    if (m != NULL && m->tm != NULL) {
        LLVMSetTargetMachineFastISel(m->tm, way == QUICKLY);
        return m;
    }
    destroy_machine(m);
    return NULL;
}

/* Half precision is computed as single precision, also on CPUs that could do otherwise: with
 * AVX512-FP16, code by LLVM 19 compared with exchanged operands (setp.lt.f16 where some lanes take
 * part, as ops_test found on a Sapphire Rapids).
 *
 * Gathers of AVX2 are no faster than loads one by one on some CPUs, where LLVM therefore takes each
 * of them apart into 32 branches: thousands of blocks, in which it then spends most of its time. */
static struct machine *take_machine(struct tl_emit *e, enum way way)
{
    const struct tl_jit_options *o = e->options;
    const char *cpu = o->cpu != NULL ? o->cpu : host_cpu;
    struct tl_buf features = {0};
    tl_buf_puts(&features, o->features != NULL ? o->features : host_features);
    tl_buf_puts(&features, features.n != 0 ? ",-avx512fp16" : "-avx512fp16");
    if (o->is_plain)
        tl_buf_puts(&features, ",-avx512f");
    if (!e->has_avx512)
        tl_buf_puts(&features, ",+fast-gather");
    tl_buf_putc(&features, '\0');
    if (features.failed) {
        tl_buf_finish(&features);
        e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
        return NULL;
    }
    struct machine *m = swap_idle(way, NULL);
    if (m != NULL && strcmp(m->cpu, cpu) == 0 && strcmp(m->features, features.p) == 0) {
        tl_buf_finish(&features);
        return m;
    }
    destroy_machine(m);
    return create_machine(e, way, cpu, features.p);
}

static void give_back(struct machine *m)
{
    destroy_machine(swap_idle(m->way, m));
}

/* --- code ------------------------------------------------------------------------------------- */

static void set_target(struct tl_emit *e, LLVMTargetMachineRef tm)
{
    char *triple = LLVMGetTargetMachineTriple(tm);
    LLVMSetTarget(e->mod, triple);
    LLVMDisposeMessage(triple);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(tm);
    LLVMSetModuleDataLayout(e->mod, layout);
    LLVMDisposeTargetData(layout);
}

static int copy_object(struct tl_emit *e, LLVMMemoryBufferRef buffer, struct tl_jit_object *out)
{
    out->n = LLVMGetBufferSize(buffer);
    out->bytes = malloc(out->n);
    if (out->bytes == NULL)
        return tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    memcpy(out->bytes, LLVMGetBufferStart(buffer), out->n);
    return 0;
}

/* Optimises, lowers masks and makes code of e->mod with a machine that is kept for the next
 * kernel. */
static int generate(struct tl_emit *e, enum way way, struct tl_jit_object *out)
{
    char *message = NULL;
    LLVMMemoryBufferRef buffer = NULL;
    int rc = 0;
    struct machine *m = take_machine(e, way);
    if (m == NULL)
        return e->rc;
    set_target(e, m->tm);
    if (verifies && LLVMVerifyModule(e->mod, LLVMReturnStatusAction, &message))
        rc = tl_error_set(e->err, -EIO,
                          "%s: the translation is not valid IR, which is a bug of ours: %s",
                          e->name, message);
    LLVMDisposeMessage(message);
    message = NULL;
    if (rc == 0 && way == WELL)
        rc = optimise(e, m->tm);
    if (rc == 0 && !e->has_avx512)
        tl_lower_masks(e);
    if (rc == 0 && e->options->keep_ir && out->ir == NULL) {
        char *ir = LLVMPrintModuleToString(e->mod);
        out->ir = ir != NULL ? strdup(ir) : NULL;
        LLVMDisposeMessage(ir);
    }
    if (rc == 0 &&
        LLVMTargetMachineEmitToMemoryBuffer(m->tm, e->mod, LLVMObjectFile, &message, &buffer)) {
        rc = tl_error_set(e->err, -EIO, "%s: LLVM: %s", e->name, message);
        LLVMDisposeMessage(message);
    }
    if (rc == 0)
        rc = e->rc;
    if (rc == 0)
        rc = copy_object(e, buffer, out);
    if (buffer != NULL)
        LLVMDisposeMemoryBuffer(buffer);
    give_back(m);
    return rc;
}

int tl_generate(struct tl_emit *e, struct tl_jit_object *out)
{
    int rc = generate(e, e->quick != NULL ? QUICKLY : e->options->is_least ? LEAST : WELL, out);
    if (rc == 0 && e->stack_bytes > TL_DEV_MAX_STACK)
        rc = tl_error_set(e->err, -E2BIG, "%s: its code needs a stack of %llu bytes, more than %u",
                          e->name, (unsigned long long)e->stack_bytes, TL_DEV_MAX_STACK);
    if (rc == 0)
        out->stack_bytes = (uint32_t)e->stack_bytes;
    return rc;
}

int tl_generate_forms(struct tl_emit *e, struct tl_jit_object *out)
{
    LLVMModuleRef kernel = e->mod;
    e->mod = e->quick->mod;
    int rc = generate(e, WELL, out);
    e->mod = kernel;
    return rc;
}
