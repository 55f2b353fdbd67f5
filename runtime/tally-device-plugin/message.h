/* Messages of the device plugin interface: protobuf-c on arenas, so that a message of a stranger
 * costs no more than is allowed, and all of it is freed at once. */
#ifndef TALLY_RUNTIME_TALLY_DEVICE_PLUGIN_MESSAGE_H
#define TALLY_RUNTIME_TALLY_DEVICE_PLUGIN_MESSAGE_H

#include "device_plugin.pb-c.h" /* made from device_plugin.proto */

#include "tally/base.h"

enum { MESSAGE_MEMORY = 16 << 20 }; /* what reading one may take */

/* The message in `bytes`, in the arena, or NULL: it is none, or too large. */
void *message_read(struct tl_arena *arena, const ProtobufCMessageDescriptor *kind,
                   const uint8_t *bytes, size_t n);
/* Adds a message to `out`. */
void message_write(struct tl_buf *out, const ProtobufCMessage *message);

#endif
