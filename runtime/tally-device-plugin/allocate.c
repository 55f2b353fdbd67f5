/* What a container with devices is started with: variables, and either mounts (every kubelet and
 * runtime understands them) or names of CDI devices, whose file `tally cdi generate` has
 * written. */
#include "runtime/tally-device-plugin/message.h"
#include "runtime/tally-device-plugin/plugin.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

/* An answer for one container, in the arena. */
struct answer {
    struct tl_arena *arena;
    V1beta1__ContainerAllocateResponse *to;
    bool failed; /* out of memory */
};

enum { MOST = 16 }; /* variables, mounts, annotations and devices of CDI, of each at most */

#define NEW(a, kind) (kind *)tl_arena_zalloc((a)->arena, sizeof(kind))
/* A place behind the last item of a list, or NULL. */
#define NEXT(a, list) next(a, (void ***)&(a)->to->list, &(a)->to->n_##list)

static void **next(struct answer *a, void ***list, size_t *n)
{
    if (*list == NULL)
        *list = tl_arena_zalloc(a->arena, MOST * sizeof **list);
    if (*list == NULL || *n == MOST) {
        a->failed = true;
        return NULL;
    }
    return &(*list)[(*n)++];
}

static char *copy(struct answer *a, const char *text)
{
    char *own = tl_arena_copy(a->arena, tl_str_of(text));
    a->failed |= own == NULL;
    return own;
}

static void add_variable(struct answer *a, const char *name, const char *value)
{
    V1beta1__ContainerAllocateResponse__EnvsEntry *entry = NEW(a, __typeof__(*entry));
    void **at = entry != NULL ? NEXT(a, envs) : NULL;
    if (at == NULL) {
        a->failed = true;
        return;
    }
    v1beta1__container_allocate_response__envs_entry__init(entry);
    entry->key = copy(a, name);
    entry->value = copy(a, value);
    *at = entry;
}

static void add_mount(struct answer *a, const char *from, const char *to, bool is_read_only)
{
    V1beta1__Mount *mount = NEW(a, V1beta1__Mount);
    void **at = mount != NULL ? NEXT(a, mounts) : NULL;
    if (at == NULL) {
        a->failed = true;
        return;
    }
    v1beta1__mount__init(mount);
    mount->host_path = copy(a, from);
    mount->container_path = copy(a, to);
    mount->read_only = is_read_only;
    *at = mount;
}

/* As field of the answer, for kubelets since 1.28, and as annotation, which older ones hand on. */
static void add_cdi(struct answer *a, const char *annotation, const char *device)
{
    V1beta1__CDIDevice *field = NEW(a, V1beta1__CDIDevice);
    V1beta1__ContainerAllocateResponse__AnnotationsEntry *entry = NEW(a, __typeof__(*entry));
    void **at = field != NULL && entry != NULL ? NEXT(a, cdi_devices) : NULL,
         **note = at != NULL ? NEXT(a, annotations) : NULL;
    if (at == NULL || note == NULL) {
        a->failed = true;
        return;
    }
    v1beta1__cdidevice__init(field);
    v1beta1__container_allocate_response__annotations_entry__init(entry);
    field->name = entry->value = copy(a, device);
    entry->key = copy(a, annotation);
    *at = field;
    *note = entry;
}

/* --- what ------------------------------------------------------------------------------------- */

/* Where Tally and the folder of tallyd's socket are in containers, as `tally cdi generate` has
 * it. */
#define INSIDE "/opt/tally"
#define SOCKETS_INSIDE "/run/tally"

/* What `tally cdi generate` would put there, but for its checks: programs begin again under
 * tally-run (runtime/container/entry.c), which does the rest.  The same for slots and memory, so
 * that a container with both gets it without a contradiction. */
static void add_tally(const struct plugin *p, struct answer *a)
{
    char path[sizeof p->prefix + 64], folder[128];
    snprintf(folder, sizeof folder, "%s", p->socket);
    snprintf(path, sizeof path, SOCKETS_INSIDE "%s", strrchr(p->socket, '/'));
    add_variable(a, "TALLY_CONTAINER", INSIDE "/bin/tally-run");
    add_variable(a, "TALLY_SOCKET", path);
    add_variable(a, "TALLY_DEVICE", p->gpus.is_soft ? "soft" : "gpu");
    add_mount(a, p->prefix, INSIDE, true);
    snprintf(path, sizeof path, "%s/lib/tally/ld.so.preload", p->prefix);
    add_mount(a, path, "/etc/ld.so.preload", true);
    add_mount(a, dirname(folder), SOCKETS_INSIDE, true);
    if (p->gpus.is_soft) {
        add_mount(a, "/dev/shm", "/dev/shm", false); /* where its processes meet, */
        add_variable(a, "TALLY_DEVICE_SHM", "file"); /* since IPC namespaces are the pods' own */
    }
    if (p->mps != NULL && !p->gpus.is_soft) {
        add_variable(a, "CUDA_MPS_PIPE_DIRECTORY", p->mps);
        add_mount(a, p->mps, p->mps, false);
    }
}

/* The GPUs of the slots: for NVIDIA's container runtime, and as CDI devices of its toolkit if
 * wished; those of the software device have numbers. */
static void add_gpus(const struct plugin *p, struct answer *a, const bool *is_used)
{
    struct tl_buf list = {0};
    for (uint32_t g = 0; g < p->gpus.n; g++) {
        const char *uuid = p->gpus.list[g].uuid, *comma = list.n > 0 ? "," : "";
        char name[256], annotation[96];
        if (!is_used[g])
            continue;
        if (p->gpus.is_soft)
            tl_buf_printf(&list, "%s%u", comma, g);
        else
            tl_buf_printf(&list, "%s%s", comma, uuid);
        if (p->gpu_cdi == NULL || p->gpus.is_soft)
            continue;
        snprintf(name, sizeof name, "%s=%s", p->gpu_cdi, uuid);
        snprintf(annotation, sizeof annotation, "cdi.k8s.io/tally-gpu-%u", g);
        add_cdi(a, annotation, name);
    }
    a->failed |= list.failed;
    if (!list.failed && list.n > 0)
        add_variable(a, p->gpus.is_soft ? "CUDA_VISIBLE_DEVICES" : "NVIDIA_VISIBLE_DEVICES",
                     list.p);
    tl_buf_finish(&list);
}

/* The whole answer for one container: its devices are checked, then told. */
static enum grpc_status fill(const struct plugin_resource *r, struct tl_arena *arena,
                             const V1beta1__ContainerAllocateRequest *asked,
                             V1beta1__ContainerAllocateResponse *response, struct tl_error *err)
{
    static const char *const levels[] = {"high", "low"};
    const struct plugin *p = r->plugin;
    struct answer a = {arena, response, false};
    bool is_used[PLUGIN_GPUS] = {false};
    char text[64];
    if (asked->n_devicesids == 0 || asked->n_devicesids > r->n)
        return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "%zu devices of %s are asked for, of %u",
                           asked->n_devicesids, r->name, r->n);
    for (size_t i = 0; i < asked->n_devicesids; i++) {
        int gpu = plugin_device_gpu(r, asked->devicesids[i]);
        if (gpu < 0)
            return grpc_refuse(err, GRPC_INVALID_ARGUMENT, "%s has no device '%.64s'", r->name,
                               asked->devicesids[i]);
        is_used[gpu] = true;
    }
    v1beta1__container_allocate_response__init(response);
    if (r->kind == PLUGIN_MEMORY) {
        snprintf(text, sizeof text, "%" PRIu64, asked->n_devicesids * p->unit_bytes);
        add_variable(&a, "TALLY_MEMORY", text);
    } else {
        add_variable(&a, "TALLY_PRIORITY", levels[r->kind]);
        add_gpus(p, &a, is_used);
    }
    if (p->inject == PLUGIN_MOUNTS) {
        add_tally(p, &a);
    } else if (r->kind != PLUGIN_MEMORY) {
        snprintf(text, sizeof text, "tally.dev/gpu=%s", levels[r->kind]);
        add_cdi(&a, "cdi.k8s.io/tally", text);
    }
    return a.failed ? grpc_refuse(err, GRPC_RESOURCE_EXHAUSTED, "out of memory") : GRPC_OK;
}

enum grpc_status plugin_allocate(void *context, const uint8_t *request, size_t n,
                                 struct tl_buf *reply, struct tl_error *err)
{
    V1beta1__AllocateResponse all = V1BETA1__ALLOCATE_RESPONSE__INIT;
    enum grpc_status status = GRPC_OK;
    struct tl_arena arena;
    tl_arena_init(&arena, MESSAGE_MEMORY);
    const V1beta1__AllocateRequest *asked = message_read(
        &arena, &v1beta1__allocate_request__descriptor, request, n);
    size_t count = asked != NULL ? asked->n_container_requests : 0;
    V1beta1__ContainerAllocateResponse *responses = tl_arena_zalloc(&arena, (count + 1) *
                                                                                sizeof *responses);
    all.container_responses = tl_arena_zalloc(&arena, (count + 1) * sizeof(void *));
    if (asked == NULL)
        status = grpc_refuse(err, GRPC_INVALID_ARGUMENT, "not an AllocateRequest");
    else if (responses == NULL || all.container_responses == NULL)
        status = grpc_refuse(err, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; status == GRPC_OK && i < count; i++) {
        status = fill(context, &arena, asked->container_requests[i], &responses[i], err);
        all.container_responses[all.n_container_responses++] = &responses[i];
    }
    if (status == GRPC_OK)
        message_write(reply, &all.base);
    tl_arena_finish(&arena);
    return status;
}
