/* Which of several free devices a container should get: slots on different GPUs, where most are
 * free; memory of one GPU, the fullest that has enough. */
#include "runtime/tally-device-plugin/message.h"
#include "runtime/tally-device-plugin/plugin.h"

#include <string.h>

/* The devices to choose from, those that are chosen, and what both are on each GPU. */
struct choice {
    const struct plugin_resource *r;
    char **available;
    size_t n_available;
    signed char *gpu_of; /* of each that is available; -1 once it is chosen */
    char **chosen;       /* room for as many as are asked for */
    size_t n_chosen, wanted;
    uint32_t free[PLUGIN_GPUS], taken[PLUGIN_GPUS];
};

static void take_one(struct choice *c, size_t i)
{
    signed char gpu = c->gpu_of[i];
    c->chosen[c->n_chosen++] = c->available[i];
    c->taken[gpu]++;
    c->free[gpu]--;
    c->gpu_of[i] = -1;
}

/* Takes up to `n` of that GPU. */
static void take(struct choice *c, int gpu, size_t n)
{
    for (size_t i = 0; i < c->n_available && n > 0 && c->n_chosen < c->wanted; i++)
        if (c->gpu_of[i] == gpu) {
            take_one(c, i);
            n--;
        }
}

/* The next slot is on the GPU of which the container has fewest, and of these where most are
 * free. */
static bool spread(struct choice *c)
{
    int best = -1;
    for (uint32_t g = 0; g < c->r->plugin->gpus.n; g++)
        if (c->free[g] > 0 && (best < 0 || c->taken[g] < c->taken[best] ||
                               (c->taken[g] == c->taken[best] && c->free[g] > c->free[best])))
            best = (int)g;
    if (best >= 0)
        take(c, best, 1);
    return best >= 0;
}

/* All that is missing comes from one GPU, the fullest that has so much; else from the emptiest. */
static bool pack(struct choice *c)
{
    size_t missing = c->wanted - c->n_chosen;
    int best = -1;
    for (uint32_t g = 0; g < c->r->plugin->gpus.n; g++) {
        if (c->free[g] == 0)
            continue;
        bool fits = c->free[g] >= missing, does_best = best >= 0 && c->free[best] >= missing;
        if (best < 0 || (fits && !does_best) || (fits && c->free[g] < c->free[best]) ||
            (!fits && !does_best && c->free[g] > c->free[best]))
            best = (int)g;
    }
    if (best >= 0)
        take(c, best, missing);
    return best >= 0;
}

/* One container's devices, in the arena. */
static enum grpc_status choose(const struct plugin_resource *r, struct tl_arena *arena,
                               const V1beta1__ContainerPreferredAllocationRequest *asked,
                               V1beta1__ContainerPreferredAllocationResponse *response,
                               struct tl_error *err)
{
    struct choice c = {.r = r, .available = asked->available_deviceids};
    c.n_available = asked->n_available_deviceids;
    if (asked->allocation_size < 0 || (size_t)asked->allocation_size > c.n_available ||
        c.n_available > PLUGIN_DEVICES)
        return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "%d devices are asked for, of %zu",
                           asked->allocation_size, c.n_available);
    c.wanted = (size_t)asked->allocation_size;
    c.chosen = tl_arena_zalloc(arena, (c.wanted + 1) * sizeof *c.chosen);
    c.gpu_of = tl_arena_zalloc(arena, c.n_available + 1);
    if (c.chosen == NULL || c.gpu_of == NULL)
        return grpc_refuse(err, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < c.n_available; i++) {
        int gpu = plugin_device_gpu(r, c.available[i]);
        if (gpu < 0)
            return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "%s has no device '%.64s'", r->name,
                               c.available[i]);
        c.gpu_of[i] = (signed char)gpu;
        c.free[gpu]++;
    }
    for (size_t m = 0; m < asked->n_must_include_deviceids && c.n_chosen < c.wanted; m++) {
        const char *id = asked->must_include_deviceids[m];
        size_t i = 0;
        while (i < c.n_available && (c.gpu_of[i] < 0 || strcmp(c.available[i], id) != 0))
            i++;
        if (i == c.n_available)
            return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "'%.64s' is not available", id);
        take_one(&c, i);
    }
    while (c.n_chosen < c.wanted && (r->kind == PLUGIN_MEMORY ? pack(&c) : spread(&c))) {}
    v1beta1__container_preferred_allocation_response__init(response);
    response->deviceids = c.chosen;
    response->n_deviceids = c.n_chosen;
    return GRPC_OK;
}

enum grpc_status plugin_prefer(void *context, const uint8_t *request, size_t n,
                               struct tl_buf *reply, struct tl_error *err)
{
    V1beta1__PreferredAllocationResponse all = V1BETA1__PREFERRED_ALLOCATION_RESPONSE__INIT;
    enum grpc_status status = GRPC_OK;
    struct tl_arena arena;
    tl_arena_init(&arena, MESSAGE_MEMORY);
    const V1beta1__PreferredAllocationRequest *asked = message_read(
        &arena, &v1beta1__preferred_allocation_request__descriptor, request, n);
    size_t count = asked != NULL ? asked->n_container_requests : 0;
    V1beta1__ContainerPreferredAllocationResponse *responses = tl_arena_zalloc(
        &arena, (count + 1) * sizeof *responses);
    all.container_responses = tl_arena_zalloc(&arena, (count + 1) * sizeof(void *));
    if (asked == NULL)
        status = grpc_refuse(err, GRPC_INVALID_ARGUMENT, "not a PreferredAllocationRequest");
    else if (responses == NULL || all.container_responses == NULL)
        status = grpc_refuse(err, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; status == GRPC_OK && i < count; i++) {
        status = choose(context, &arena, asked->container_requests[i], &responses[i], err);
        all.container_responses[all.n_container_responses++] = &responses[i];
    }
    if (status == GRPC_OK)
        message_write(reply, &all.base);
    tl_arena_finish(&arena);
    return status;
}
