/* Kernels by their handles, with a driver that is played here: those that came past the hooks, as
 * cuFFT's do, which takes them from a table of all functions of a module, are learnt by asking the
 * driver. */
#include "intercept/capture/capture.h"

#include <pthread.h>
#include <string.h>
#include <unity.h>

/* --- the driver ------------------------------------------------------------------------------- */

void *tl_real[TL_NAMES];

static struct {
    const char *name;        /* NULL: the function is not known */
    CUmodule module;         /* NULL: the module is not */
    const char *kernel_name; /* the same of what is a CUkernel */
    CUlibrary library;
    int n_names, n_modules;     /* how often it was asked */
    pthread_barrier_t *meeting; /* where those who ask wait for each other */
} real;

static CUresult get_name(const char **name, CUfunction function)
{
    (void)function;
    __atomic_fetch_add(&real.n_names, 1, __ATOMIC_RELAXED);
    if (real.meeting != NULL)
        pthread_barrier_wait(real.meeting);
    *name = real.name;
    return real.name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_module(CUmodule *module, CUfunction function)
{
    (void)function;
    __atomic_fetch_add(&real.n_modules, 1, __ATOMIC_RELAXED);
    if (real.module != NULL)
        *module = real.module;
    return real.module != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_kernel_name(const char **name, CUkernel kernel)
{
    (void)kernel;
    *name = real.kernel_name;
    return real.kernel_name != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult get_library(CUlibrary *library, CUkernel kernel)
{
    (void)kernel;
    if (real.library != NULL)
        *library = real.library;
    return real.library != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* --- images, which are only counted ----------------------------------------------------------- */

static struct tl_captured_image image, other_image;
static int refs;

struct tl_captured_image *tl_capture_ref(struct tl_captured_image *i)
{
    refs++;
    return i;
}

void tl_capture_unref(struct tl_captured_image *i)
{
    (void)i;
    refs--;
}

static char places[16]; /* their addresses are handles */
#define MODULE ((void *)&places[1])
#define LIBRARY ((void *)&places[2])
#define OTHER ((void *)&places[3])

static void load(void *owner, bool is_library, struct tl_captured_image *of)
{
    tl_capture_loaded(owner, is_library, tl_capture_ref(of));
}

/* Each test has handles of its own: kernels without an owner stay. */
static const void *new_handle(void)
{
    static char handles[64];
    static int n;
    return &handles[n++];
}

void setUp(void)
{
    tl_real[TL_NAME_cuFuncGetName] = (void *)get_name;
    tl_real[TL_NAME_cuFuncGetModule] = (void *)get_module;
    tl_real[TL_NAME_cuKernelGetName] = (void *)get_kernel_name;
    tl_real[TL_NAME_cuKernelGetLibrary] = (void *)get_library;
    memset(&real, 0, sizeof real);
    refs = 0;
}

void tearDown(void)
{
    tl_capture_unloaded(MODULE);
    tl_capture_unloaded(LIBRARY);
    tl_capture_unloaded(OTHER);
    TEST_ASSERT_EQUAL_INT(0, refs);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void a_handle_that_came_past_the_hooks_is_learnt_once(void)
{
    const void *handle = new_handle();
    load(MODULE, false, &image);
    real.name = "regular_fft";
    real.module = MODULE;
    struct tl_kernel *k = tl_kernel_of(handle);
    TEST_ASSERT_NOT_NULL(k);
    TEST_ASSERT_EQUAL_STRING("regular_fft", k->seen.name);
    TEST_ASSERT_EQUAL_PTR(handle, k->seen.handle);
    TEST_ASSERT_EQUAL_PTR(MODULE, k->seen.module);
    TEST_ASSERT_EQUAL_PTR(&image, k->seen.image);
    TEST_ASSERT_EQUAL_PTR(&k->seen, tl_capture_kernel(handle));
    TEST_ASSERT_EQUAL_PTR(k, tl_kernel_of(handle));
    TEST_ASSERT_EQUAL_INT(1, real.n_names);
    TEST_ASSERT_EQUAL_INT(1, real.n_modules);
}

static void what_the_hooks_saw_is_not_asked_for(void)
{
    const void *handle = new_handle();
    load(MODULE, false, &image);
    tl_capture_function(handle, MODULE, "seen");
    real.name = "another";
    TEST_ASSERT_EQUAL_STRING("seen", tl_kernel_of(handle)->seen.name);
    TEST_ASSERT_NULL(tl_kernel_of(NULL));
    TEST_ASSERT_EQUAL_INT(0, real.n_names);
}

static void a_librarys_module_leads_to_the_library_and_its_image(void)
{
    load(LIBRARY, true, &image);
    tl_capture_module_of(MODULE, LIBRARY);
    real.name = "vector_fft";
    real.module = MODULE;
    struct tl_kernel *k = tl_kernel_of(new_handle());
    TEST_ASSERT_EQUAL_PTR(LIBRARY, k->seen.library);
    TEST_ASSERT_EQUAL_PTR(MODULE, k->seen.module);
    TEST_ASSERT_EQUAL_PTR(&image, k->seen.image);
}

/* The driver gives the address out again for another module's. */
static void a_learnt_kernel_goes_with_its_module(void)
{
    const void *handle = new_handle();
    load(MODULE, false, &image);
    real.name = "first";
    real.module = MODULE;
    TEST_ASSERT_EQUAL_STRING("first", tl_kernel_of(handle)->seen.name);
    tl_capture_unloaded(MODULE);
    load(OTHER, false, &other_image);
    real.name = "second";
    real.module = OTHER;
    struct tl_kernel *k = tl_kernel_of(handle);
    TEST_ASSERT_EQUAL_STRING("second", k->seen.name);
    TEST_ASSERT_EQUAL_PTR(&other_image, k->seen.image);
}

/* A CUkernel is no function, and belongs to a library. */
static void a_librarys_kernel_is_learnt_as_well(void)
{
    load(LIBRARY, true, &image);
    real.kernel_name = "of_a_library";
    real.library = LIBRARY;
    struct tl_kernel *k = tl_kernel_of(new_handle());
    TEST_ASSERT_EQUAL_STRING("of_a_library", k->seen.name);
    TEST_ASSERT_FALSE(k->seen.is_nameless);
    TEST_ASSERT_EQUAL_PTR(LIBRARY, k->seen.library);
    TEST_ASSERT_NULL(k->seen.module);
    TEST_ASSERT_EQUAL_PTR(&image, k->seen.image);
}

/* Drivers before CUDA 12.3 tell no names, but of which module a function is. */
static void a_kernel_without_a_name_has_its_module_and_image(void)
{
    const void *handle = new_handle();
    load(MODULE, false, &image);
    real.module = MODULE;
    const struct tl_captured_kernel *k = tl_capture_kernel(handle);
    TEST_ASSERT_NOT_NULL(k);
    TEST_ASSERT_TRUE(k->is_nameless);
    TEST_ASSERT_EQUAL_STRING("(unknown)", k->name);
    TEST_ASSERT_EQUAL_PTR(MODULE, k->module);
    TEST_ASSERT_EQUAL_PTR(&image, k->image);
}

/* Such a kernel can be counted and timed, but there is nothing that could be rewritten. */
static void what_the_driver_does_not_know_has_no_image(void)
{
    const void *handle = new_handle();
    load(MODULE, false, &image);
    TEST_ASSERT_EQUAL_STRING("(unknown)", tl_kernel_of(handle)->seen.name);
    TEST_ASSERT_TRUE(tl_kernel_of(handle)->seen.is_nameless);
    TEST_ASSERT_NULL(tl_capture_kernel(handle));
    handle = new_handle();
    real.name = "without_module";
    real.module = NULL;
    TEST_ASSERT_EQUAL_STRING("without_module", tl_kernel_of(handle)->seen.name);
    TEST_ASSERT_NULL(tl_capture_kernel(handle));
    handle = new_handle();
    real.name = "of_a_module_that_nobody_saw";
    real.module = OTHER;
    TEST_ASSERT_EQUAL_STRING("of_a_module_that_nobody_saw", tl_kernel_of(handle)->seen.name);
    TEST_ASSERT_NULL(tl_capture_kernel(handle));
}

static void what_a_hook_sees_later_counts_more(void)
{
    const void *handle = new_handle();
    TEST_ASSERT_EQUAL_STRING("(unknown)", tl_kernel_of(handle)->seen.name);
    load(MODULE, false, &image);
    tl_capture_function(handle, MODULE, "after_all");
    TEST_ASSERT_EQUAL_STRING("after_all", tl_kernel_of(handle)->seen.name);
    TEST_ASSERT_EQUAL_PTR(&image, tl_capture_kernel(handle)->image);
}

static void *learn_one(void *handle)
{
    return tl_kernel_of(handle);
}

/* Both have asked the driver before one of them takes note. */
static void two_that_learn_at_once_have_the_same_kernel(void)
{
    enum { N = 2 };
    pthread_barrier_t meeting;
    pthread_t threads[N];
    void *found[N], *handle = (void *)(uintptr_t)new_handle();
    load(MODULE, false, &image);
    pthread_barrier_init(&meeting, NULL, N);
    real.name = "race";
    real.module = MODULE;
    real.meeting = &meeting;
    for (int i = 0; i < N; i++)
        TEST_ASSERT_EQUAL_INT(0, pthread_create(&threads[i], NULL, learn_one, handle));
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], &found[i]);
    pthread_barrier_destroy(&meeting);
    TEST_ASSERT_EQUAL_INT(2, real.n_names);
    TEST_ASSERT_NOT_NULL(found[0]);
    TEST_ASSERT_EQUAL_PTR(found[0], found[1]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_handle_that_came_past_the_hooks_is_learnt_once);
    RUN_TEST(what_the_hooks_saw_is_not_asked_for);
    RUN_TEST(a_librarys_module_leads_to_the_library_and_its_image);
    RUN_TEST(a_learnt_kernel_goes_with_its_module);
    RUN_TEST(a_librarys_kernel_is_learnt_as_well);
    RUN_TEST(a_kernel_without_a_name_has_its_module_and_image);
    RUN_TEST(what_the_driver_does_not_know_has_no_image);
    RUN_TEST(what_a_hook_sees_later_counts_more);
    RUN_TEST(two_that_learn_at_once_have_the_same_kernel);
    return UNITY_END();
}
