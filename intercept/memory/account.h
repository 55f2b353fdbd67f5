/* What one process holds of device memory, by the way in which it came: the part that only counts.
 * No driver, no clock, no thread: whoever owns one calls it under a lock of his own.
 *
 *     pointer   cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged     until it is freed, or its context goes
 *     pooled    cuMemAllocAsync, cuMemAllocFromPoolAsync           until it is freed; then it is the pool's
 *     array     cuArrayCreate, cuMipmappedArrayCreate              until it is destroyed, or its context goes
 *     physical  cuMemCreate                                        until its last handle is released and its last mapping is gone
 *     rest      measured: what pools and graphs keep beyond what was given out, and what contexts take
 *
 * Memory of other processes (IPC, imported handles) is not in it: who made it counts it. */
#ifndef TALLY_INTERCEPT_MEMORY_ACCOUNT_H
#define TALLY_INTERCEPT_MEMORY_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TL_ACCOUNT_DEVICES = 16, /* of more than that, the others count as the last */
    TL_ACCOUNT_GRAIN = 512,  /* bytes that the smallest allocation takes */
};

enum tl_account_kind { TL_MEM_POINTER, TL_MEM_POOLED, TL_MEM_ARRAY, TL_MEM_HANDLE, TL_MEM_KINDS };

struct tl_account_item;
struct tl_account_physical;
struct tl_account {
    struct tl_account_item **slots; /* by hash of kind and key */
    size_t n, cap;
    struct tl_account_physical *physical; /* all, newest first; by handle they are items */
    struct tl_account_mapping {
        uint64_t at, bytes;
        struct tl_account_physical *of;
    } * mappings; /* by address */
    size_t n_mappings, cap_mappings;
    struct {
        uint64_t given;  /* all but the rest */
        uint64_t pooled; /* of it, what came from pools */
        uint64_t rest;
    } devices[TL_ACCOUNT_DEVICES];
};

/* Zeroes are an account in which nothing is held. */
void tl_account_finish(struct tl_account *a);

/* What an allocation of so many bytes takes. */
uint64_t tl_account_round(uint64_t bytes);
/* What an array takes, all its levels together, if each element has so many bytes; 0 if that is no
 * array. */
uint64_t tl_account_array(uint64_t width, uint64_t height, uint64_t depth, uint64_t element,
                          uint32_t levels);

/* Bytes of a device that are held now. */
uint64_t tl_account_held(const struct tl_account *a, unsigned device);
/* Sets what is measured.  Returns by how much it has changed. */
int64_t tl_account_rest(struct tl_account *a, unsigned device, uint64_t bytes);

/* Something has come.  If there was something at the same place before, it went without a word, and
 * `*lost` says how much of which device that was.  0, or -ENOMEM: then it is not counted. */
struct tl_account_lost {
    uint64_t bytes;
    unsigned device;
};
int tl_account_add(struct tl_account *a, enum tl_account_kind kind, uint64_t key, uint64_t bytes,
                   unsigned device, void *context, struct tl_account_lost *lost);
/* It goes.  0 bytes if nothing is known of it; else its context is told, unless that is NULL. */
struct tl_account_lost tl_account_remove(struct tl_account *a, enum tl_account_kind kind,
                                         uint64_t key, void **context);
/* A context has gone with all that belongs to it: calls it for each. */
void tl_account_context_gone(struct tl_account *a, const void *context,
                             void (*lost)(void *data, struct tl_account_lost lost), void *data);

/* Physical memory.  Handles that are not known are other processes'. */
int tl_account_create(struct tl_account *a, uint64_t handle, uint64_t bytes, unsigned device);
/* A further handle (perhaps the same number) of what is mapped at an address. */
void tl_account_retain(struct tl_account *a, uint64_t handle, uint64_t at);
struct tl_account_lost tl_account_release(struct tl_account *a, uint64_t handle);
int tl_account_map(struct tl_account *a, uint64_t at, uint64_t bytes, uint64_t handle);
/* All mappings inside the range go; calls it for what goes with them. */
void tl_account_unmap(struct tl_account *a, uint64_t at, uint64_t bytes,
                      void (*lost)(void *data, struct tl_account_lost lost), void *data);

#endif
