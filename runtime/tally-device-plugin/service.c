/* What kubelet calls: the methods and the list of devices. */
#include "runtime/tally-device-plugin/message.h"
#include "runtime/tally-device-plugin/plugin.h"

#include <stdio.h>
#include <string.h>

/* --- devices ---------------------------------------------------------------------------------- */

void plugin_device_id(const struct plugin_resource *r, uint32_t gpu, uint32_t i,
                      char id[PLUGIN_ID_BYTES])
{
    snprintf(id, PLUGIN_ID_BYTES, "%s::%u", r->plugin->gpus.list[gpu].uuid, i);
}

int plugin_device_gpu(const struct plugin_resource *r, const char *id)
{
    const struct plugin_gpus *gpus = &r->plugin->gpus;
    for (uint32_t g = 0; g < gpus->n; g++) {
        size_t n = strlen(gpus->list[g].uuid);
        if (strncmp(id, gpus->list[g].uuid, n) != 0 || strncmp(id + n, "::", 2) != 0)
            continue;
        const char *digit = id + n + 2;
        uint32_t number = 0;
        if (*digit == 0 || (*digit == '0' && digit[1] != 0))
            return -1;
        for (; *digit >= '0' && *digit <= '9' && number <= PLUGIN_DEVICES; digit++)
            number = number * 10 + (uint32_t)(*digit - '0');
        return *digit == 0 && number < r->per_gpu[g] ? (int)g : -1;
    }
    return -1;
}

/* --- methods ---------------------------------------------------------------------------------- */

static enum grpc_status tell_options(void *context, const uint8_t *request, size_t n,
                                     struct tl_buf *reply, struct tl_error *err)
{
    (void)context, (void)request, (void)n, (void)err;
    V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
    options.pre_start_required = 1;
    options.get_preferred_allocation_available = 1;
    message_write(reply, &options.base);
    return GRPC_OK;
}

/* All devices of the resource and how they are. */
static enum grpc_status list(void *context, const uint8_t *request, size_t n, struct tl_buf *reply,
                             struct tl_error *err)
{
    (void)request, (void)n;
    const struct plugin_resource *r = context;
    V1beta1__ListAndWatchResponse response = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;
    struct tl_arena arena;
    tl_arena_init(&arena, 0);
    V1beta1__Device *devices = tl_arena_zalloc(&arena, r->n * sizeof *devices);
    char(*ids)[PLUGIN_ID_BYTES] = tl_arena_zalloc(&arena, r->n * sizeof *ids);
    response.devices = tl_arena_zalloc(&arena, r->n * sizeof(void *));
    if (devices == NULL || ids == NULL || response.devices == NULL) {
        tl_arena_finish(&arena);
        return grpc_refuse(err, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    }
    for (uint32_t gpu = 0; gpu < r->plugin->gpus.n; gpu++) {
        bool is_well = plugin_health_is_well(&r->plugin->health, gpu, NULL);
        for (uint32_t i = 0; i < r->per_gpu[gpu]; i++) {
            V1beta1__Device *device = &devices[response.n_devices];
            v1beta1__device__init(device);
            plugin_device_id(r, gpu, i, ids[response.n_devices]);
            device->id = ids[response.n_devices];
            device->health = is_well ? "Healthy" : "Unhealthy";
            response.devices[response.n_devices++] = device;
        }
    }
    message_write(reply, &response.base);
    tl_arena_finish(&arena);
    return GRPC_OK;
}

/* A container is about to start: without tallyd it would run unmanaged, so it does not; kubelet
 * tries again. */
static enum grpc_status before_start(void *context, const uint8_t *request, size_t n,
                                     struct tl_buf *reply, struct tl_error *err)
{
    const struct plugin_resource *r = context;
    enum grpc_status status = GRPC_OK;
    struct tl_arena arena;
    struct tl_error why = {0};
    char text[160];
    (void)reply; /* an empty message is no bytes */
    tl_arena_init(&arena, MESSAGE_MEMORY);
    const V1beta1__PreStartContainerRequest *asked = message_read(
        &arena, &v1beta1__pre_start_container_request__descriptor, request, n);
    if (asked == NULL)
        status = grpc_refuse(err, GRPC_INVALID_ARGUMENT, "not a PreStartContainerRequest");
    else if (!plugin_health_ask_tallyd(&r->plugin->health, &why))
        status = grpc_refuse(err, GRPC_FAILED_PRECONDITION,
                             "no tallyd on this node, and without it the container would not share "
                             "the GPU by priority: %.300s",
                             why.text);
    for (size_t i = 0; status == GRPC_OK && i < asked->n_devicesids; i++) {
        int gpu = plugin_device_gpu(r, asked->devicesids[i]);
        if (gpu < 0)
            status = grpc_refuse(err, GRPC_INVALID_ARGUMENT, "%s has no device '%.64s'", r->name,
                                 asked->devicesids[i]);
        else if (!plugin_health_is_well(&r->plugin->health, (uint32_t)gpu, text))
            status = grpc_refuse(err, GRPC_FAILED_PRECONDITION, "%s", text);
    }
    tl_arena_finish(&arena);
    return status;
}

#define SERVICE "/v1beta1.DevicePlugin/"
const struct grpc_method plugin_methods[] = {
    {SERVICE "GetDevicePluginOptions", tell_options, false},
    {SERVICE "ListAndWatch", list, true},
    {SERVICE "GetPreferredAllocation", plugin_prefer, false},
    {SERVICE "Allocate", plugin_allocate, false},
    {SERVICE "PreStartContainer", before_start, false},
    {0}};
