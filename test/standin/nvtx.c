/* A program that names its operations with NVTX, in all the ways that there are, and launches a
 * kernel in each. */
#include <cuda.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry first() { ret; }\n.visible .entry second() { ret; }\n";
static CUfunction first, second;
static void *driver;

static void *find_function(const char *name)
{
    void *p = dlsym(driver, name);
    if (p == NULL) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return p;
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        CUresult r_ = ((__typeof__(&(name)))find_function(#name))(__VA_ARGS__);                    \
        if (r_ != CUDA_SUCCESS) {                                                                  \
            fprintf(stderr, "%s: %d\n", #name, (int)r_);                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void launch(CUfunction f, int times)
{
    for (int i = 0; i < times; i++)
        CALL(cuLaunchKernel, f, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

static void *elsewhere(void *context)
{
    CALL(cuCtxSetCurrent, context);
    launch(first, 1); /* no range is open on this thread */
    nvtxRangePushA("thread");
    launch(first, 2);
    nvtxRangePop();
    return NULL;
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    pthread_t thread;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &first, module, "first");
    CALL(cuModuleGetFunction, &second, module, "second");

    launch(first, 1);
    nvtxRangePushA("outer");
    launch(first, 3);
    nvtxRangePushW(L"inner \u00e9");
    launch(first, 4);
    launch(second, 5);
    nvtxRangePop();
    launch(second, 6);

    nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    nvtxEventAttributes_t a = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE};
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = nvtxDomainRegisterStringA(domain, "registered");
    nvtxDomainRangePushEx(domain, &a);
    launch(second, 7);
    nvtxRangePop(); /* the outer one, of another domain: this one stays */
    launch(second, 1);
    nvtxDomainRangePop(domain);

    nvtxRangeId_t id = nvtxRangeStartA("started");
    launch(second, 9);
    nvtxRangeEnd(id);
    launch(second, 1);

    /* As PyTorch and XLA name theirs. */
    nvtxRangePushA("aten::mm, seq = 7, op_id = 12, sizes = [[4, 4]]");
    launch(first, 1);
    nvtxRangePop();
    nvtxRangePushA("aten::mm, seq = 8, op_id = 13");
    launch(first, 1);
    nvtxRangePop();
    nvtxRangePushA("XlaModule:#hlo_module=m,program_id=3#");
    launch(first, 1);
    nvtxRangePushA("Thunk:#hlo_op=fusion.3#");
    launch(first, 1);
    nvtxRangePop();
    nvtxRangePop();

    pthread_create(&thread, NULL, elsewhere, context);
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        nvtxRangePushA("deep");
    for (int i = 0; i < 100; i++)
        nvtxRangePop();
    launch(second, 1);
    CALL(cuCtxSynchronize);
    return 0;
}
