/* tally-device-plugin: what its files share.
 *
 *     runtime/tally-device-plugin/main.c       options, the loop, the end
 *     runtime/tally-device-plugin/gpus.c       which GPUs there are, by NVML
 *     runtime/tally-device-plugin/health.c     whether they and tallyd are well, in a thread
 *     runtime/tally-device-plugin/service.c    the methods that kubelet calls
 *     runtime/tally-device-plugin/prefer.c     which of several free devices a container should get
 *     runtime/tally-device-plugin/allocate.c   what a container with devices is started with
 *     runtime/tally-device-plugin/endpoint.c   a resource's socket and who is connected to it
 *     runtime/tally-device-plugin/register.c   tells kubelet of the resources, again when it restarts
 *
 * A resource has devices, which are slots or units of memory of GPUs: "UUID::N" is the Nth of that
 * GPU. */
#ifndef TALLY_RUNTIME_TALLY_DEVICE_PLUGIN_PLUGIN_H
#define TALLY_RUNTIME_TALLY_DEVICE_PLUGIN_PLUGIN_H

#include <poll.h>

#include "runtime/tally-device-plugin/grpc.h"
#include "tally/lock.h"

enum {
    PLUGIN_GPUS = 16,       /* of a node, at most */
    PLUGIN_DEVICES = 4096,  /* of a resource, at most: what fits into a message */
    PLUGIN_CONNECTIONS = 8, /* to an endpoint, at most */
    PLUGIN_ID_BYTES = 64,
};

struct plugin;

/* --- messages (runtime/tally-device-plugin/main.c) -------------------------------------------- */

void plugin_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- GPUs (runtime/tally-device-plugin/gpus.c) ------------------------------------------------ */

struct plugin_gpu {
    char uuid[48]; /* as NVML writes it */
    uint64_t memory_bytes;
};

struct plugin_gpus {
    struct plugin_gpu list[PLUGIN_GPUS];
    uint32_t n;
    bool is_soft; /* Tally's software device */
};

enum plugin_device { PLUGIN_AUTO, PLUGIN_GPU, PLUGIN_SOFT };
/* Opens NVML, from `path` or where that kind of device has it (`ours` is our lib/tally), and finds
 * the GPUs.  0, or a negative errno value with a message. */
int plugin_gpus_find(struct plugin_gpus *gpus, enum plugin_device kind, const char *path,
                     const char *ours, struct tl_error *err);
/* Whether the driver still has that GPU.  May take long, or never return, if it is broken. */
bool plugin_gpu_is_there(const struct plugin_gpu *gpu);

/* --- health (runtime/tally-device-plugin/health.c) -------------------------------------------- */

/* Looked at every `every_ns`, by a thread, and when somebody asks. */
struct plugin_health {
    const struct plugin_gpus *gpus;
    const char *socket; /* tallyd's */
    uint64_t every_ns;
    int bell; /* an eventfd that is written to when something has changed */
    struct tl_mutex lock;
    /* With the lock: */
    bool is_tallyd_there;
    bool is_gpu_there[PLUGIN_GPUS];
    uint64_t looked_ns; /* when the last look ended */
};
/* Looks for the first time and starts the thread.  0 or a negative errno value. */
int plugin_health_start(struct plugin_health *h, struct tl_error *err);
/* With why not, for people, which may be NULL. */
bool plugin_health_is_well(struct plugin_health *h, uint32_t gpu, char why[160]);
/* Whether a look takes so long that it counts as failed. */
bool plugin_health_is_late(struct plugin_health *h);
/* Whether tallyd listens, now. */
bool plugin_health_ask_tallyd(const struct plugin_health *h, struct tl_error *err);

/* --- resources -------------------------------------------------------------------------------- */

enum plugin_kind { PLUGIN_HIGH, PLUGIN_LOW, PLUGIN_MEMORY, PLUGIN_KINDS };

/* A resource: its name, its devices, and the socket on which it is served. */
struct plugin_resource {
    struct plugin *plugin;
    enum plugin_kind kind;
    const char *name;               /* "tally.dev/high" */
    const char *endpoint;           /* "tally-high.sock" */
    uint32_t per_gpu[PLUGIN_GPUS];  /* devices of each GPU */
    uint32_t n;                     /* of all; 0: the resource is not offered */
    char path[108];                 /* of the socket */
    uint64_t socket_dev, socket_no; /* what is there if it is still ours */
    int listener;                   /* -1: none */
    struct grpc_connection *connections[PLUGIN_CONNECTIONS]; /* the oldest first, no gaps */
    uint32_t n_connections;
    /* Registration (runtime/tally-device-plugin/register.c). */
    struct grpc_connection *call; /* to kubelet */
    uint64_t call_until_ns;
    bool is_registered;
    char complaint[200]; /* what was last said of it, which is not said again */
};

void plugin_device_id(const struct plugin_resource *r, uint32_t gpu, uint32_t i,
                      char id[PLUGIN_ID_BYTES]);
/* Which GPU a device is of, or -1: this resource has no such device. */
int plugin_device_gpu(const struct plugin_resource *r, const char *id);

/* How a container gets at Tally. */
enum plugin_inject { PLUGIN_MOUNTS, PLUGIN_CDI };

struct plugin {
    struct plugin_gpus gpus;
    struct plugin_health health;
    struct plugin_resource resources[PLUGIN_KINDS];
    uint64_t unit_bytes; /* of memory */
    enum plugin_inject inject;
    const char *mps;     /* the folder of MPS's sockets, for containers; NULL: none */
    const char *gpu_cdi; /* kind of the GPUs' own CDI devices, "nvidia.com/gpu"; NULL: none */
    char prefix[4096];   /* where Tally is on the node */
    const char *socket;  /* tallyd's */
    const char *folder;  /* kubelet's, of sockets */
    char kubelet[108];   /* kubelet's socket */
    int watch;           /* inotify, or -1 */
    int watched;         /* the folder there, or -1 */
    uint64_t kubelet_dev, kubelet_no, kubelet_made_ns; /* whom registrations were for */
    uint64_t retry_ns;                                 /* when to try again; 0: no need */
};

/* --- methods (service.c, prefer.c, allocate.c) ------------------------------------------------ */

extern const struct grpc_method plugin_methods[];
grpc_answer_fn plugin_allocate, plugin_prefer;

/* --- sockets (runtime/tally-device-plugin/endpoint.c) ----------------------------------------- */

/* Listens, in place of whatever has that name.  0, or a negative errno value with a message. */
int plugin_endpoint_open(struct plugin_resource *r, struct tl_error *err);
/* Whether the name still leads to our socket; kubelet removes all of them when it starts. */
bool plugin_endpoint_is_there(const struct plugin_resource *r);
void plugin_endpoint_close(struct plugin_resource *r); /* removes the name if it is ours */
/* Takes those who want to connect; serves those who are. */
void plugin_endpoint_accept(struct plugin_resource *r);
void plugin_endpoint_run(struct plugin_resource *r, int fd);

/* --- registration (runtime/tally-device-plugin/register.c) ------------------------------------ */

void plugin_register_watch(struct plugin *p); /* begins to watch kubelet's folder */
/* Looks whether kubelet is another one or our sockets are gone, and sees to both. */
void plugin_register_look(struct plugin *p);
void plugin_register_run(struct plugin_resource *r); /* something came from kubelet */
/* Ends calls that take too long; in how many ms that is to be looked at, or -1. */
int plugin_register_tick(struct plugin *p);
void plugin_register_events(struct plugin *p); /* reads what inotify tells */

#endif
