/* A stand-in for the translator, so that service, cache and client are tested alone: whatever the
 * PTX says, the kernel gets code that stores what tells it apart.  tally_warp writes block[0] +
 * warp to *params; a kernel whose name begins with "refused" is not implemented, "calls" asks for
 * memcpy. */
#include "device/jit/jit.h"
#include "device/abi.h"
#include "device/jit/shelf.h"

#include <errno.h>
#include <llvm-c/Core.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tl_jit_init(struct tl_error *err)
{
    (void)err;
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    return 0;
}

static const char module[] =
    "@tally_info = constant { [14 x i32], [8 x i8] } { [14 x i32] [i32 %d, i32 %u, i32 %u, "
    "i32 %u, i32 8, i32 0, i32 0,\n"
    "    i32 0, i32 0, i32 0, i32 16, i32 1, i32 0, i32 0], [8 x i8] c\"standin\\00\" }, align 4\n"
    "declare void @%s(ptr, ptr, i64)\n"
    "define void @tally_warp(ptr %%f, i32 %%warp) nounwind {\n"
    "  %%at = getelementptr i8, ptr %%f, i64 8\n"
    "  %%params = load ptr, ptr %%at\n"
    "  %%out = load ptr, ptr %%params\n"
    "  %%v = add i32 %%warp, %u\n"
    "  store i32 %%v, ptr %%out\n"
    "  %s\n"
    "  ret void\n"
    "}\n"
    "define void @tally_blocks(ptr %%f, i32 %%first, i32 %%n) nounwind {\n"
    "  call void @tally_warp(ptr %%f, i32 0)\n"
    "  ret void\n"
    "}\n";

int tl_jit_compile(const char *text, size_t n, const char *name,
                   const struct tl_jit_options *options, struct tl_jit_object *out,
                   struct tl_error *err)
{
    struct tl_buf b = {0};
    char *message = NULL;
    (void)text;
    (void)n;
    if (strncmp(name, "refused", 7) == 0)
        return tl_error_set(err, -ENOTSUP, "kernel %s, line 3: tcgen05.mma is not implemented",
                            name);
    bool is_calling = strncmp(name, "calls", 5) == 0;
    tl_buf_printf(&b, module, TL_DEV_ABI_VERSION, options->block[0], options->block[1],
                  options->block[2], "memcpy", options->block[0],
                  is_calling ? "call void @memcpy(ptr %out, ptr %params, i64 100000)" : "");
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef m = NULL;
    LLVMMemoryBufferRef source = LLVMCreateMemoryBufferWithMemoryRangeCopy(b.p, b.n, "standin"),
                        object = NULL;
    int rc = 0;
    if (LLVMParseIRInContext(context, source, &m, &message))
        rc = tl_error_set(err, -EIO, "kernel %s: %s", name, message);
    LLVMTargetRef target = NULL;
    const char *triple = "x86_64-unknown-linux-gnu";
    if (rc == 0 && LLVMGetTargetFromTriple(triple, &target, &message))
        rc = tl_error_set(err, -EIO, "kernel %s: %s", name, message);
    if (rc == 0) {
        LLVMTargetMachineRef machine = LLVMCreateTargetMachine(target, triple, "x86-64", "",
                                                               LLVMCodeGenLevelDefault,
                                                               LLVMRelocPIC, LLVMCodeModelSmall);
        LLVMSetTarget(m, triple);
        if (LLVMTargetMachineEmitToMemoryBuffer(machine, m, LLVMObjectFile, &message, &object))
            rc = tl_error_set(err, -EIO, "kernel %s: %s", name, message);
        LLVMDisposeTargetMachine(machine);
    }
    if (rc == 0) {
        out->n = LLVMGetBufferSize(object);
        out->bytes = malloc(out->n);
        memcpy(out->bytes, LLVMGetBufferStart(object), out->n);
        out->ir = options->keep_ir ? strdup(b.p) : NULL;
        LLVMDisposeMemoryBuffer(object);
    }
    if (m != NULL)
        LLVMDisposeModule(m);
    LLVMContextDispose(context);
    LLVMDisposeMessage(message);
    tl_buf_finish(&b);
    return rc;
}

void tl_jit_object_finish(struct tl_jit_object *o)
{
    free(o->bytes);
    free(o->ir);
    *o = (struct tl_jit_object){0};
}

const char *tl_jit_host_cpu(void)
{
    return "x86-64";
}

const char *tl_jit_host_features(void)
{
    return "";
}

/* It makes no forms. */
void tl_forms_read(const struct tl_shelf *shelf)
{
    (void)shelf;
}

void tl_forms_tell(struct tl_buf *out)
{
    (void)out;
}
