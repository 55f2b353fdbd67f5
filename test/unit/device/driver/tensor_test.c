/* Tensor maps and copies by them: what may be encoded, and boxes of random shapes, places, steps
 * and swizzles, loaded, stored and reduced, by maps of the driver and by maps that kernels make,
 * against a reference that goes element by element. */
#include "test/unit/device/driver/help.h"
#include "test/unit/device/driver/tensor_reference.h"

enum { SHARED = 16384, GLOBAL = 1 << 18, RUNS = 30 };

static uint64_t seed = 20261118;
static CUdeviceptr global, image, maps;
static uint8_t before_global[GLOBAL], before_image[SHARED];
static uint8_t want_global[GLOBAL], want_image[SHARED], got_global[GLOBAL], got_image[SHARED];

static void fill_randomly(uint8_t *p, size_t n, bool is_calm)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)tensor_next(&seed);
        if (is_calm && i % 2 == 1)
            p[i] &= 0xbf; /* no NaN, whichever of the types it is read as */
    }
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* All kernels have these parameters, bring the image to shared memory, do their one thing in the
 * first thread and bring shared memory back. */
#define BEGIN                                                                                      \
    ".version 8.6\n.target sm_90a\n.address_size 64\n"                                             \
    ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 pimage, .param .u64 pmap,\n"     \
    "    .param .u32 c0, .param .u32 c1, .param .u32 c2, .param .u32 c3, .param .u32 c4,\n"        \
    "    .param .u32 pat, .param .u32 pbytes)\n{\n"                                                \
    ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %d<20>;\n"                                      \
    ".shared .align 1024 .b8 box[16384]; .shared .align 128 .b8 made[128];\n"                      \
    ".shared .align 8 .b64 object;\n"                                                              \
    "ld.param.u64 %d2, [pimage]; ld.param.u64 %d3, [pmap]; ld.param.u32 %r0, [c0];\n"              \
    "ld.param.u32 %r1, [c1]; ld.param.u32 %r2, [c2]; ld.param.u32 %r3, [c3];\n"                    \
    "ld.param.u32 %r4, [c4]; ld.param.u32 %r5, [pat]; ld.param.u32 %r6, [pbytes];\n"               \
    "mov.b64 %d1, map; cvta.param.u64 %d1, %d1;\n"                                                 \
    "mov.u32 %r10, %tid.x; shl.b32 %r11, %r10, 2; mov.u32 %r12, box; add.u32 %r13, %r12, %r11;\n"  \
    "cvt.u64.u32 %d4, %r11; add.u64 %d4, %d2, %d4; mov.u64 %d5, %d4; mov.u32 %r14, %r13;\n"        \
    "mov.u32 %r15, 0;\n"                                                                           \
    "$in: ld.global.u32 %r16, [%d5]; st.shared.u32 [%r14], %r16; add.u64 %d5, %d5, 128;\n"         \
    "add.u32 %r14, %r14, 128; add.u32 %r15, %r15, 128; setp.lt.u32 %p1, %r15, 16384;\n"            \
    "@%p1 bra $in;\n"                                                                              \
    "add.u32 %r17, %r12, %r5; mov.u32 %r18, object; setp.ne.u32 %p2, %r10, 0;\n"                   \
    "mov.u32 %r19, made; mov.u32 %r20, 0; add.u32 %r21, %r19, %r11; setp.lt.u32 %p3, %r10, 32;\n"  \
    "@%p3 st.shared.u32 [%r21], %r20;\n"                                                           \
    "fence.proxy.async; bar.sync 0;\n"
#define END                                                                                        \
    "bar.sync 0;\n"                                                                                \
    "mov.u32 %r15, 0;\n"                                                                           \
    "$out: ld.shared.u32 %r16, [%r13]; st.global.u32 [%d4], %r16; add.u64 %d4, %d4, 128;\n"        \
    "add.u32 %r13, %r13, 128; add.u32 %r15, %r15, 128; setp.lt.u32 %p1, %r15, 16384;\n"            \
    "@%p1 bra $out;\n"                                                                             \
    "ret;\n}\n"

static const char *const places[] = {"",
                                     "{%r0}",
                                     "{%r0, %r1}",
                                     "{%r0, %r1, %r2}",
                                     "{%r0, %r1, %r2, %r3}",
                                     "{%r0, %r1, %r2, %r3, %r4}"};

static CUfunction load_text(const char *text)
{
    CUmodule m;
    CUfunction f;
    OK(CALL(cuModuleLoadData)(&m, text));
    OK(CALL(cuModuleGetFunction)(&f, m, "k"));
    return f;
}

/* The instructions of one thread for a copy whose map's address is in `map`. */
static int put_copy(char *text, size_t room, const char *what, uint32_t rank, const char *map,
                    bool is_cluster)
{
    if (strcmp(what, "load") == 0)
        return snprintf(text, room,
                        "@%%p2 bra $ready;\n"
                        "mbarrier.init.shared.b64 [%%r18], 1;\n"
                        "mbarrier.arrive.expect_tx.shared.b64 _, [%%r18], %%r6;\n"
                        "cp.async.bulk.tensor.%ud.%s.global%s.mbarrier::complete_tx::bytes "
                        "[%%r17], [%s, %s], [%%r18];\n"
                        "$ready: bar.sync 0;\n"
                        "$wait: mbarrier.try_wait.parity.shared.b64 %%p4, [%%r18], 0;\n"
                        "@!%%p4 bra $wait;\n",
                        rank, is_cluster ? "shared::cluster" : "shared::cta",
                        rank > 3 ? "" : ".tile", map, places[rank]);
    bool is_store = strcmp(what, "store") == 0;
    return snprintf(text, room,
                    "@%%p2 bra $ready;\n"
                    "cp%s.async.bulk.tensor.%ud.global.shared::cta%s%s.tile.bulk_group [%s, %s], "
                    "[%%r17];\n"
                    "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n"
                    "$ready: bar.sync 0;\n",
                    is_store ? "" : ".reduce", rank, is_store ? "" : ".", is_store ? "" : what, map,
                    places[rank]);
}

static CUfunction kernel(const char *what, uint32_t rank)
{
    char text[8192];
    int n = snprintf(text, sizeof text, "%s", BEGIN);
    n += put_copy(text + n, sizeof text - (size_t)n, what, rank, "%d1", rank % 2 == 0);
    snprintf(text + n, sizeof text - (size_t)n, "%s", END);
    return load_text(text);
}

/* --- running ---------------------------------------------------------------------------------- */

static CUresult encode(CUtensorMap *map, const struct tensor_case *c)
{
    return CALL(cuTensorMapEncodeTiled)(
        map, (CUtensorMapDataType)c->driver_type, c->rank, (void *)(uintptr_t)global, c->dim,
        c->stride + 1, c->box, c->step, CU_TENSOR_MAP_INTERLEAVE_NONE,
        (CUtensorMapSwizzle)c->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        c->fills_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                     : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUresult launch(CUfunction f, const struct tensor_case *c, CUtensorMap *map)
{
    uint32_t bytes = tensor_elements(c) * c->bytes;
    int32_t at[5];
    memcpy(at, c->at, sizeof at);
    uint32_t shared_at = c->shared_at;
    void *args[] = {map, &image, &maps, &at[0], &at[1], &at[2], &at[3], &at[4], &shared_at, &bytes};
    OK(CALL(cuMemcpyHtoD_v2)(global, before_global, GLOBAL));
    OK(CALL(cuMemcpyHtoD_v2)(image, before_image, SHARED));
    OK(CALL(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    return CALL(cuCtxSynchronize)();
}

static void check(CUfunction f, const struct tensor_case *c, const char *what, CUtensorMap *map)
{
    char said[200];
    OK(launch(f, c, map));
    OK(CALL(cuMemcpyDtoH_v2)(got_global, global, GLOBAL));
    OK(CALL(cuMemcpyDtoH_v2)(got_image, image, SHARED));
    memcpy(want_global, before_global, GLOBAL);
    memcpy(want_image, before_image, SHARED);
    tensor_reference(c, what, want_global, want_image);
    snprintf(said, sizeof said,
             "%s %s, %u axes, swizzle %u, box %u x %u x %u at %d, %d, %d of %llu", what, c->type,
             c->rank, c->swizzle, c->box[0], c->box[1], c->box[2], c->at[0], c->at[1], c->at[2],
             (unsigned long long)c->dim[0]);
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(want_image, got_image, SHARED, said);
    TEST_ASSERT_EQUAL_MEMORY_MESSAGE(want_global, got_global, GLOBAL, said);
}

/* Of cases at random, those that such a copy can be done of, `runs` for each rank. */
static void try_randomly(const char *what, bool is_swizzled,
                         bool (*fits)(const struct tensor_case *))
{
    CUfunction of_rank[6] = {NULL};
    _Alignas(128) CUtensorMap map;
    for (uint32_t i = 0; i < 5 * RUNS;) {
        struct tensor_case c = tensor_random(&seed, SHARED, GLOBAL, is_swizzled);
        if (fits != NULL && !fits(&c))
            continue;
        if (of_rank[c.rank] == NULL)
            of_rank[c.rank] = kernel(what, c.rank);
        if (i++ % 50 == 0) {
            fill_randomly(before_global, GLOBAL, fits != NULL);
            fill_randomly(before_image, SHARED, fits != NULL);
        }
        OK(encode(&map, &c));
        check(of_rank[c.rank], &c, what, &map);
    }
}

/* --- tests ------------------------------------------------------------------------------------ */

static void boxes_are_loaded_and_filled_outside(void)
{
    try_randomly("load", false, NULL);
}

static void boxes_are_loaded_swizzled(void)
{
    try_randomly("load", true, NULL);
}

static void boxes_are_stored_but_for_what_is_outside(void)
{
    try_randomly("store", false, NULL);
    try_randomly("store", true, NULL);
}

static bool is_small_float(const struct tensor_case *c)
{
    return strcmp(c->type, "f16") == 0 || strcmp(c->type, "bf16") == 0;
}

static bool can_be_added(const struct tensor_case *c)
{
    return c->bytes >= 4 || is_small_float(c);
}

static bool can_be_compared(const struct tensor_case *c)
{
    return is_small_float(c) || (c->bytes >= 4 && c->type[0] != 'f');
}

static bool has_whole_words(const struct tensor_case *c)
{
    return c->bytes >= 4 && c->type[0] != 'f';
}

static bool is_counter(const struct tensor_case *c)
{
    return strcmp(c->type, "u32") == 0;
}

static void boxes_are_reduced(void)
{
    try_randomly("add", true, can_be_added);
    try_randomly("min", false, can_be_compared);
    try_randomly("max", true, can_be_compared);
    try_randomly("inc", false, is_counter);
    try_randomly("dec", false, is_counter);
    try_randomly("and", false, has_whole_words);
    try_randomly("or", false, has_whole_words);
    try_randomly("xor", true, has_whole_words);
}

/* The text of a kernel that makes the map of a case, in shared memory out of zeroes, publishes it
 * and loads by it; addresses as Triton has them, in registers of 64 bits. */
static void put_maker(char *text, size_t room, const struct tensor_case *c)
{
#define REPLACE "tensormap.replace.tile."
#define TAIL ".shared::cta.b1024.b"
    size_t n = (size_t)snprintf(
        text, room,
        "%scvt.u64.u32 %%d6, %%r19;\n@%%p2 bra $made;\n" REPLACE "global_address" TAIL
        "64 [ %%d6 + 0 ], 0x%llx;\n" REPLACE "rank" TAIL "32 [ %%d6 + 0 ], %u;\n" REPLACE
        "elemtype" TAIL "32 [ %%d6 + 0 ], %u;\n" REPLACE "interleave_layout" TAIL
        "32 [ %%d6 + 0 ], 0;\n" REPLACE "swizzle_mode" TAIL "32 [ %%d6 + 0 ], %u;\n" REPLACE
        "fill_mode" TAIL "32 [ %%d6 + 0 ], %u;\n",
        BEGIN, (unsigned long long)global, c->rank - 1, c->ptx_type, c->swizzle, c->fills_nan);
    for (uint32_t i = 0; i < c->rank; i++) {
        n += (size_t)snprintf(text + n, room - n,
                              REPLACE "box_dim" TAIL "32 [ %%d6 + 0 ], %u, %u;\n" REPLACE
                                      "global_dim" TAIL "32 [ %%d6 + 0 ], %u, %llu;\n" REPLACE
                                      "element_stride" TAIL "32 [ %%d6 + 0 ], %u, %u;\n",
                              i, c->box[i], i, (unsigned long long)c->dim[i], i, c->step[i]);
        if (i > 0)
            n += (size_t)snprintf(text + n, room - n,
                                  REPLACE "global_stride" TAIL "64 [ %%d6 + 0 ], %u, %llu;\n",
                                  i - 1, (unsigned long long)c->stride[i]);
    }
    n += (size_t)snprintf(text + n, room - n,
                          "$made: bar.sync 0;\n"
                          "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release"
                          ".gpu.sync.aligned [%%d3], [ %%d6 + 0 ], 128;\n"
                          "fence.proxy.tensormap::generic.acquire.gpu [%%d3], 128;\n"
                          "prefetch.tensormap [%%d3];\n");
    n += (size_t)put_copy(text + n, room - n, "load", c->rank, "%d3", true);
    snprintf(text + n, room - n, "%s", END);
}

static void kernels_make_maps_out_of_zeroes(void)
{
    static char text[16384];
    _Alignas(128) CUtensorMap unused = {{0}};
    fill_randomly(before_global, GLOBAL, false);
    fill_randomly(before_image, SHARED, false);
    for (uint32_t i = 0; i < 12; i++) {
        struct tensor_case c = tensor_random(&seed, SHARED, GLOBAL, i % 2 == 0);
        put_maker(text, sizeof text, &c);
        check(load_text(text), &c, "load", &unused);
    }
}

static void the_address_of_a_map_is_replaced(void)
{
    _Alignas(128) CUtensorMap map;
    struct tensor_case c = tensor_random(&seed, SHARED, GLOBAL, false);
    OK(encode(&map, &c));
    TEST_ASSERT_EQUAL(CUDA_ERROR_INVALID_VALUE,
                      CALL(cuTensorMapReplaceAddress)(&map, (void *)(uintptr_t)(global + 8)));
    TEST_ASSERT_EQUAL(CUDA_ERROR_INVALID_VALUE,
                      CALL(cuTensorMapReplaceAddress)(NULL, (void *)(uintptr_t)global));
    OK(CALL(cuTensorMapReplaceAddress)(&map, (void *)(uintptr_t)(global + 4096)));
    OK(CALL(cuTensorMapReplaceAddress)(&map, (void *)(uintptr_t)global));
    check(kernel("load", c.rank), &c, "load", &map);
    memset(&map, 1, sizeof map);
    TEST_ASSERT_EQUAL(CUDA_ERROR_INVALID_VALUE,
                      CALL(cuTensorMapReplaceAddress)(&map, (void *)(uintptr_t)global));
}

/* --- arguments -------------------------------------------------------------------------------- */

struct arguments {
    CUtensorMap *map;
    CUtensorMapDataType type;
    uint32_t rank;
    uint64_t address, dim[5], stride[4];
    uint32_t box[5], step[5];
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

static _Alignas(128) CUtensorMap some_map[2];

static struct arguments good(void)
{
    return (struct arguments){.map = some_map,
                              .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                              .rank = 3,
                              .address = 4096,
                              .dim = {64, 32, 8},
                              .stride = {128, 4096},
                              .box = {32, 8, 2},
                              .step = {1, 1, 1}};
}

static CUresult encode_with(const struct arguments *a)
{
    return CALL(cuTensorMapEncodeTiled)(a->map, a->type, a->rank, (void *)(uintptr_t)a->address,
                                        a->dim, a->stride, a->box, a->step, a->interleave,
                                        a->swizzle, a->promotion, a->fill);
}

static void arguments_are_what_the_documentation_allows(void)
{
    struct arguments a = good();
    OK(encode_with(&a));
#define TRY(result, ...)                                                                           \
    do {                                                                                           \
        struct arguments x = good();                                                               \
        __VA_ARGS__;                                                                               \
        TEST_ASSERT_EQUAL_MESSAGE(result, encode_with(&x), #__VA_ARGS__);                          \
    } while (0)
#define WRONG(...) TRY(CUDA_ERROR_INVALID_VALUE, __VA_ARGS__)
    WRONG(x.map = NULL);
    WRONG(x.map = (void *)((char *)some_map + 8));
    /* as NVIDIA's own cuda.core has them */
    TRY(CUDA_SUCCESS, x.map = (void *)((char *)some_map + 16));
    WRONG(x.type = (CUtensorMapDataType)16);
    WRONG(x.type = (CUtensorMapDataType)-1);
    WRONG(x.rank = 0);
    WRONG(x.rank = 6);
    WRONG(x.address = 4104);
    WRONG(x.dim[1] = 0);
    WRONG(x.dim[2] = (1ull << 32) + 1);
    TRY(CUDA_SUCCESS, x.dim[2] = 1ull << 32);
    WRONG(x.stride[0] = 136);
    WRONG(x.stride[1] = 1ull << 40);
    WRONG(x.box[1] = 0);
    WRONG(x.box[2] = 257);
    TRY(CUDA_SUCCESS, x.box[2] = 256);
    WRONG(x.box[0] = 31); /* 62 bytes */
    WRONG(x.step[1] = 0);
    WRONG(x.step[2] = 9);
    TRY(CUDA_SUCCESS, x.step[0] = 0);             /* which is ignored */
    WRONG(x.swizzle = CU_TENSOR_MAP_SWIZZLE_32B); /* rows of 64 bytes */
    TRY(CUDA_SUCCESS, x.swizzle = CU_TENSOR_MAP_SWIZZLE_64B);
    WRONG(x.swizzle = (CUtensorMapSwizzle)7);
    WRONG(x.interleave = (CUtensorMapInterleave)3);
    WRONG(x.rank = 2; x.interleave = CU_TENSOR_MAP_INTERLEAVE_16B);
    WRONG(x.interleave = CU_TENSOR_MAP_INTERLEAVE_32B); /* is swizzled by 32 bytes */
    WRONG(x.interleave = CU_TENSOR_MAP_INTERLEAVE_32B; x.address = 4112;
          x.swizzle = CU_TENSOR_MAP_SWIZZLE_32B);
    WRONG(x.promotion = (CUtensorMapL2promotion)4);
    WRONG(x.fill = (CUtensorMapFloatOOBfill)2);
    WRONG(x.type = CU_TENSOR_MAP_DATA_TYPE_UINT16;
          x.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
    /* what the documentation allows and the device has not */
    TRY(CUDA_ERROR_NOT_SUPPORTED, x.swizzle = CU_TENSOR_MAP_SWIZZLE_128B); /* of short rows */
    TRY(CUDA_ERROR_NOT_SUPPORTED, x.interleave = CU_TENSOR_MAP_INTERLEAVE_16B);
    TRY(CUDA_ERROR_NOT_SUPPORTED, x.type = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32);
    TRY(CUDA_ERROR_NOT_SUPPORTED, x.box[0] = 64; x.swizzle = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B);
    int has;
    OK(CALL(cuDeviceGetAttribute)(&has, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0));
    TEST_ASSERT_EQUAL(1, has);
}

/* --- im2col ----------------------------------------------------------------------------------- */

struct pixels {
    CUtensorMapDataType type;
    uint32_t rank;
    uint64_t dim[5], stride[4];
    int lower[3], upper[3];
    uint32_t channels, pixels, step[5];
    CUtensorMapSwizzle swizzle;
    CUtensorMapIm2ColWideMode mode;
};

static struct pixels good_pixels(void)
{
    return (struct pixels){.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                           .rank = 4,
                           .dim = {64, 8, 8, 2},
                           .stride = {128, 1024, 8192},
                           .lower = {-1, -1},
                           .upper = {1, 1},
                           .channels = 64,
                           .pixels = 16,
                           .step = {1, 1, 1, 1, 1},
                           .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
}

static CUresult encode_pixels(const struct pixels *p, bool is_wide)
{
    void *address = (void *)(uintptr_t)4096;
    if (is_wide)
        return CALL(cuTensorMapEncodeIm2colWide)(
            some_map, p->type, p->rank, address, p->dim, p->stride, p->lower[0], p->upper[0],
            p->channels, p->pixels, p->step, CU_TENSOR_MAP_INTERLEAVE_NONE, p->mode, p->swizzle,
            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return CALL(cuTensorMapEncodeIm2col)(
        some_map, p->type, p->rank, address, p->dim, p->stride, p->lower, p->upper, p->channels,
        p->pixels, p->step, CU_TENSOR_MAP_INTERLEAVE_NONE, p->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void maps_of_im2col_are_what_the_documentation_allows(void)
{
#define PIXELS(result, is_wide, ...)                                                               \
    do {                                                                                           \
        struct pixels x = good_pixels();                                                           \
        __VA_ARGS__;                                                                               \
        TEST_ASSERT_EQUAL_MESSAGE(result, encode_pixels(&x, is_wide), #__VA_ARGS__);               \
    } while (0)
#define WRONG_PIXELS(...) PIXELS(CUDA_ERROR_INVALID_VALUE, false, __VA_ARGS__)
    PIXELS(CUDA_SUCCESS, false, (void)x);
    PIXELS(CUDA_SUCCESS, false, x.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE; x.channels = 256);
    PIXELS(CUDA_SUCCESS, false, x.rank = 3; x.lower[0] = -32768; x.upper[0] = 32767);
    WRONG_PIXELS(x.rank = 2);
    WRONG_PIXELS(x.rank = 6);
    WRONG_PIXELS(x.channels = 128); /* 256 bytes, swizzled in 128 */
    WRONG_PIXELS(x.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE; x.channels = 257);
    WRONG_PIXELS(x.channels = 0);
    WRONG_PIXELS(x.pixels = 1025);
    PIXELS(CUDA_SUCCESS, false, x.pixels = 1024);
    WRONG_PIXELS(x.pixels = 0);
    WRONG_PIXELS(x.lower[1] = -129);
    WRONG_PIXELS(x.upper[0] = 128);
    WRONG_PIXELS(x.rank = 5; x.dim[4] = 1; x.stride[3] = 16384; x.lower[2] = 16);
    WRONG_PIXELS(x.rank = 3; x.lower[0] = 40000);  /* not 40000 - 65536 */
    WRONG_PIXELS(x.lower[0] = 4; x.upper[0] = -4); /* nothing is left of 8 */
    PIXELS(CUDA_SUCCESS, false, x.lower[0] = 4; x.upper[0] = -3);
    WRONG_PIXELS(x.step[1] = 9);
    /* wide */
    PIXELS(CUDA_SUCCESS, true, x.lower[1] = 9999); /* which nobody looks at */
    PIXELS(CUDA_SUCCESS, true, x.mode = CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128; x.pixels = 0);
    PIXELS(CUDA_ERROR_INVALID_VALUE, true, x.pixels = 0);
    PIXELS(CUDA_ERROR_INVALID_VALUE, true, x.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE);
    PIXELS(CUDA_ERROR_INVALID_VALUE, true, x.mode = (CUtensorMapIm2ColWideMode)2);
    PIXELS(CUDA_ERROR_INVALID_VALUE, true, x.channels = 128);
}

/* A copy of boxes cannot use such a map, and the instruction that can is named as missing. */
static void what_is_copied_by_im2col_is_refused(void)
{
    struct tensor_case c = {.rank = 4, .bytes = 2};
    struct pixels x = good_pixels();
    CUfunction f = kernel("load", 4);
    OK(encode_pixels(&x, false));
    TEST_ASSERT_EQUAL(CUDA_ERROR_ILLEGAL_INSTRUCTION, launch(f, &c, some_map));
}

void setUp(void)
{
}

void tearDown(void)
{
}

int main(void)
{
    open_driver();
    use_device();
    OK(CALL(cuMemAlloc_v2)(&global, GLOBAL));
    OK(CALL(cuMemAlloc_v2)(&image, SHARED));
    OK(CALL(cuMemAlloc_v2)(&maps, 128));
    UNITY_BEGIN();
    RUN_TEST(arguments_are_what_the_documentation_allows);
    RUN_TEST(boxes_are_loaded_and_filled_outside);
    RUN_TEST(boxes_are_loaded_swizzled);
    RUN_TEST(boxes_are_stored_but_for_what_is_outside);
    RUN_TEST(boxes_are_reduced);
    RUN_TEST(kernels_make_maps_out_of_zeroes);
    RUN_TEST(the_address_of_a_map_is_replaced);
    RUN_TEST(maps_of_im2col_are_what_the_documentation_allows);
    RUN_TEST(what_is_copied_by_im2col_is_refused); /* the last: the context is lost */
    return UNITY_END();
}
