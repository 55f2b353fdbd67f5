/* Counts the memory that the libraries in gate-tool take: the linker sends their calls here
 * (test/rules.mk).  What the library says of itself (peak_bytes) is not asked. */
#include "test/gate/tool.h"

#include <malloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/types.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t each);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t each);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *p, size_t n);

static int64_t now_bytes, most_bytes;

static void count(int64_t bytes)
{
    now_bytes += bytes;
    if (now_bytes > most_bytes)
        most_bytes = now_bytes;
}

void gate_tool_count_memory(void)
{
    now_bytes = most_bytes = 0;
}

size_t gate_tool_most_memory(void)
{
    return (size_t)most_bytes;
}

uint64_t gate_tool_held(void)
{
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && kb == 0 && fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "VmHWM: %llu kB", &kb);
    if (f != NULL)
        fclose(f);
    if (kb == 0)
        gate_tool_die("no VmHWM in /proc/self/status");
    return 1024 * kb;
}

void *__wrap_malloc(size_t n)
{
    void *p = __real_malloc(n);
    count((int64_t)malloc_usable_size(p));
    return p;
}

void *__wrap_calloc(size_t n, size_t each)
{
    void *p = __real_calloc(n, each);
    count((int64_t)malloc_usable_size(p));
    return p;
}

/* While it moves what is there, both are. */
void *__wrap_realloc(void *p, size_t n)
{
    int64_t before = (int64_t)malloc_usable_size(p);
    void *moved = __real_realloc(p, n);
    count((int64_t)malloc_usable_size(moved));
    if (moved != NULL)
        count(-before);
    return moved;
}

void __wrap_free(void *p)
{
    count(-(int64_t)malloc_usable_size(p));
    __real_free(p);
}

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *p = __real_mmap(at, n, protection, flags, fd, offset);
    if (p != MAP_FAILED)
        count((int64_t)n);
    return p;
}

int __wrap_munmap(void *p, size_t n)
{
    count(-(int64_t)n);
    return __real_munmap(p, n);
}
