/* Files of models for `tally plan`; what is planned keeps every rule. */
#include "runtime/tally/plan_models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "plan_fuzz: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct cli_models m;
    struct tl_gpulet_plan plan;
    struct tl_error err = {0};
    struct tl_json_value *root = NULL;
    struct tl_arena arena;
    tl_arena_init(&arena, 64 << 20);
    int rc = tl_json_read(&root, &arena, (struct tl_str){(const char *)data, (uint32_t)n}, &err);
    if (rc == 0)
        rc = cli_models_read(&m, root, &err);
    tl_arena_finish(&arena);
    expect(rc == 0 || err.text[0] != 0, "no message");
    if (rc < 0)
        return 0;
    struct tl_gpulet_options o = {
        .planner = (enum tl_gpulet_planner)(n % 3),
        .has_interference = n % 2 == 0,
        .gpus = m.gpus,
        .gpu_memory_mb = m.gpu_memory_mb,
    };
    rc = tl_gpulet_plan(&plan, m.models, m.n, &o);
    expect(rc == 0 || rc == -ENOSPC || rc == -EINVAL, "an unexpected return code");
    const char *wrong = rc == 0 ? tl_gpulet_check(&plan, m.models, m.n, &o) : NULL;
    expect(wrong == NULL, wrong);
    return 0;
}
