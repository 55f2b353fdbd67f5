/* Why calls failed: the latest messages, for who asks or wants to be told.
 *
 * Everything that tl_drv_log says comes through here, also while TALLY_LOG keeps it off standard
 * error.  A ring of the latest messages is kept; an iterator is the number of the next one. */
#include "device/driver/handle.h"
#include "device/driver/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_KEPT = 100, MESSAGE_BYTES = 256 }; /* together the 25,600 bytes that CUDA speaks of */

struct CUlogsCallbackEntry_st {
    struct CUlogsCallbackEntry_st *next;
    CUlogsCallback function;
    void *data;
};

/* A lock of its own: messages come from where the driver's lock is held and from where it is not.
 * Who is called back may ask for messages, and say that it wants no more. */
static struct tl_mutex lock = TL_RECURSIVE_MUTEX_INITIALIZER;
static char kept[N_KEPT][MESSAGE_BYTES] TL_GUARDED_BY(lock);
/* messages so far; number i is in kept[i % N_KEPT] */
static unsigned n_told TL_GUARDED_BY(lock);
static struct CUlogsCallbackEntry_st *callbacks TL_GUARDED_BY(lock);

void tl_drv_logs_add(const char *message)
{
    char copy[MESSAGE_BYTES];
    snprintf(copy, sizeof copy, "%s", message);
    tl_mutex_lock(&lock);
    memcpy(kept[n_told++ % N_KEPT], copy, sizeof copy);
    for (struct CUlogsCallbackEntry_st *c = callbacks, *next; c != NULL; c = next) {
        next = c->next;
        c->function(c->data, CU_LOG_LEVEL_ERROR, copy, strlen(copy));
    }
    tl_mutex_unlock(&lock);
}

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void *userData,
                                CUlogsCallbackHandle *callback_out)
{
    if (callbackFunc == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUlogsCallbackEntry_st *c = malloc(sizeof *c);
    if (c == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    tl_mutex_lock(&lock);
    *c = (struct CUlogsCallbackEntry_st){callbacks, callbackFunc, userData};
    callbacks = c;
    tl_mutex_unlock(&lock);
    if (callback_out != NULL)
        *callback_out = c;
    return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
    tl_mutex_lock(&lock);
    struct CUlogsCallbackEntry_st **at = &callbacks, *found = NULL;
    while (*at != NULL && *at != callback)
        at = &(*at)->next;
    if (*at != NULL) {
        found = *at;
        *at = found->next;
    }
    tl_mutex_unlock(&lock);
    free(found);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator *iterator_out, unsigned int flags)
{
    if (iterator_out == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tl_mutex_lock(&lock);
    *iterator_out = n_told;
    tl_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* The messages from the iterator on, one per line, as many of the latest as fit; `truncated` comes
 * first if some do not. */
static char *gather(CUlogIterator *iterator, size_t room, size_t *bytes)
{
    static const char truncated[] = "(earlier messages are left out)\n";
    tl_mutex_lock(&lock);
    unsigned end = n_told, first = iterator != NULL && *iterator <= end ? *iterator : 0,
             oldest = end - first;
    unsigned begin = oldest > N_KEPT ? end - N_KEPT : first;
    size_t n = 0;
    unsigned from = end;
    while (from > begin) {
        size_t more = strlen(kept[(from - 1) % N_KEPT]) + 1;
        bool leaves_some = from - 1 > first;
        if (n + more + (leaves_some ? sizeof truncated - 1 : 0) > room)
            break;
        n += more;
        from--;
    }
    char *text = malloc(n + sizeof truncated);
    *bytes = 0;
    if (text != NULL && from < end) {
        if (from > first) {
            memcpy(text, truncated, sizeof truncated - 1);
            *bytes = sizeof truncated - 1;
        }
        for (unsigned i = from; i < end; i++) {
            size_t length = strlen(kept[i % N_KEPT]);
            memcpy(text + *bytes, kept[i % N_KEPT], length);
            text[*bytes + length] = '\n';
            *bytes += length + 1;
        }
    }
    if (text != NULL && iterator != NULL && (from < end || first == end))
        *iterator = end;
    tl_mutex_unlock(&lock);
    if (text != NULL && from == end && first < end) { /* not even the last one fits */
        free(text);
        return NULL;
    }
    return text;
}

CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
    if (buffer == NULL || size == NULL || *size == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    size_t room = *size - 1, bytes = 0;
    char *text = gather(iterator, room, &bytes);
    *size = text != NULL ? bytes : 0;
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(buffer, text, bytes);
    buffer[bytes] = 0;
    free(text);
    return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator *iterator, const char *pathToFile, unsigned int flags)
{
    size_t bytes = 0;
    if (pathToFile == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *f = fopen(pathToFile, "we");
    if (f == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    char *text = gather(iterator, SIZE_MAX, &bytes);
    bool ok = text != NULL && fwrite(text, 1, bytes, f) == bytes;
    free(text);
    return fclose(f) == 0 && ok ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
