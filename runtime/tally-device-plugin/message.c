/* Between bytes and structs. */
#include "runtime/tally-device-plugin/message.h"

#include <stdlib.h>

static void *allocate(void *arena, size_t bytes)
{
    return tl_arena_alloc(arena, bytes);
}

static void let_be(void *arena, void *p)
{
    (void)arena, (void)p;
}

void *message_read(struct tl_arena *arena, const ProtobufCMessageDescriptor *kind,
                   const uint8_t *bytes, size_t n)
{
    ProtobufCAllocator allocator = {allocate, let_be, arena};
    return protobuf_c_message_unpack(kind, &allocator, n, bytes);
}

void message_write(struct tl_buf *out, const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = malloc(n + 1);
    if (bytes == NULL) {
        out->failed = true;
        return;
    }
    tl_buf_add(out, (const char *)bytes, protobuf_c_message_pack(message, bytes));
    free(bytes);
}
