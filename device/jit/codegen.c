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
    static const char frame[] = "stack frame size (";
    struct tl_emit *e = data;
    char *text = LLVMGetDiagInfoDescription(info);
    const char *size = strstr(text, frame);
    if (size != NULL)
        e->stack_bytes += strtoull(size + strlen(frame), NULL, 10) + FRAME_EXTRA;
    else if (LLVMGetDiagInfoSeverity(info) == LLVMDSError && e->rc == 0)
        e->rc = tl_error_set(e->err, -EIO, "%s: LLVM: %s", e->name, text);
    LLVMDisposeMessage(text);
}

void tl_watch_frames(struct tl_emit *e)
{
    LLVMContextSetDiagnosticHandler(e->ctx, on_diagnostic, e);
}

/* --- machines --------------------------------------------------------------------------------- */

struct machine {
    char *cpu, *features;
    bool is_least;
    LLVMTargetMachineRef tm;
};

/* The one that was used last, while nobody has it. */
static struct tl_mutex idle_lock = TL_MUTEX_INITIALIZER;
static struct machine *idle;

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

static struct machine *swap_idle(struct machine *m)
{
    tl_mutex_lock(&idle_lock);
    struct machine *was = idle;
    idle = m;
    tl_mutex_unlock(&idle_lock);
    return was;
}

/* Takes over `features`.  NULL with e->rc set if there is none. */
static struct machine *create_machine(struct tl_emit *e, const char *cpu, char *features)
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
        m->is_least = e->options->is_least;
        if (LLVMGetTargetFromTriple(triple, &target, &message))
            e->rc = tl_error_set(e->err, -EIO, "%s: LLVM: %s", e->name, message);
        else if ((m->tm = LLVMCreateTargetMachine(target, triple, cpu, features,
                                                  m->is_least ? LLVMCodeGenLevelNone
                                                              : LLVMCodeGenLevelDefault,
                                                  LLVMRelocPIC, LLVMCodeModelSmall)) == NULL)
            e->rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    }
    LLVMDisposeMessage(message);
    LLVMDisposeMessage(triple);
    if (m != NULL && m->tm != NULL)
        return m;
    destroy_machine(m);
    return NULL;
}

/* Half precision is computed as single precision, also on CPUs that could do otherwise: with
 * AVX512-FP16, code by LLVM 19 compared with exchanged operands (setp.lt.f16 where some lanes take
 * part, as ops_test found on a Sapphire Rapids).
 *
 * Gathers of AVX2 are no faster than loads one by one on some CPUs, where LLVM therefore takes each
 * of them apart into 32 branches: thousands of blocks, in which it then spends most of its time. */
static struct machine *take_machine(struct tl_emit *e)
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
    struct machine *m = swap_idle(NULL);
    if (m != NULL && strcmp(m->cpu, cpu) == 0 && strcmp(m->features, features.p) == 0 &&
        m->is_least == o->is_least) {
        tl_buf_finish(&features);
        return m;
    }
    destroy_machine(m);
    return create_machine(e, cpu, features.p);
}

static void give_back(struct machine *m)
{
    destroy_machine(swap_idle(m));
}

/* --- code ------------------------------------------------------------------------------------- */

/* Optimises, lowers masks and makes code with a machine that is kept for the next kernel. */
int tl_generate(struct tl_emit *e, struct tl_jit_object *out)
{
    const struct tl_jit_options *o = e->options;
    char *message = NULL;
    LLVMMemoryBufferRef buffer = NULL;
    int rc = 0;
    struct machine *m = take_machine(e);
    if (m == NULL)
        return e->rc;
    char *triple = LLVMGetTargetMachineTriple(m->tm);
    LLVMSetTarget(e->mod, triple);
    LLVMDisposeMessage(triple);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(m->tm);
    LLVMSetModuleDataLayout(e->mod, layout);
    LLVMDisposeTargetData(layout);
    if (verifies && LLVMVerifyModule(e->mod, LLVMReturnStatusAction, &message))
        rc = tl_error_set(e->err, -EIO,
                          "%s: the translation is not valid IR, which is a bug of ours: %s",
                          e->name, message);
    LLVMDisposeMessage(message);
    message = NULL;
    if (rc == 0 && !o->is_least)
        rc = optimise(e, m->tm);
    if (rc == 0 && !e->has_avx512)
        tl_lower_masks(e);
    if (rc == 0 && o->keep_ir) {
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
    if (rc == 0 && e->stack_bytes > TL_DEV_MAX_STACK)
        rc = tl_error_set(e->err, -E2BIG, "%s: its code needs a stack of %llu bytes, more than %u",
                          e->name, (unsigned long long)e->stack_bytes, TL_DEV_MAX_STACK);
    if (rc == 0) {
        out->stack_bytes = (uint32_t)e->stack_bytes;
        out->n = LLVMGetBufferSize(buffer);
        out->bytes = malloc(out->n);
        if (out->bytes != NULL)
            memcpy(out->bytes, LLVMGetBufferStart(buffer), out->n);
        else
            rc = tl_error_set(e->err, -ENOMEM, "%s: out of memory", e->name);
    }
    if (buffer != NULL)
        LLVMDisposeMemoryBuffer(buffer);
    give_back(m);
    return rc;
}
