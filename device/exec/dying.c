/* Whether a thread of another process has been killed, before it is dead, or is stopped.
 *
 * A thread that is killed dies by itself, in the kernel, the next time that it gets a processor;
 * and if its process leaves a core file, when that has been written.  On a busy machine the first
 * takes tens of milliseconds, the second takes seconds.  Whatever it takes, nothing of the program
 * is run any more, so who waits for what such a process holds need not wait for its end. */
#include "device/exec/internal.h"
#include "tally/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Bits of a task's flags, the ninth field of its `stat` (proc_pid_stat(5)): they are the kernel's
 * PF_EXITING and PF_SIGNALED, which have been what they are since Linux 2.6. */
#define IS_EXITING 0x4UL
#define IS_SIGNALED 0x400UL
#define IS_KILLED (1UL << (SIGKILL - 1))

uint32_t tl__pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint32_t)st.st_ino : 0;
}

enum tl__task tl__task_state(uint32_t pid, uint32_t tid, bool is_seen)
{
    enum { STATE = 3, FLAGS = 9, PENDING = 31 };
    enum tl__task state = TL__TASK_GOES_ON;
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/task/%u/stat", pid, tid);
    int n = tl_file_head(path, text, sizeof text);
    if (n <= 0)
        return is_seen && (n == -ENOENT || n == -ESRCH) ? TL__TASK_DYING : TL__TASK_GOES_ON;
    /* The second field is the thread's name in brackets, with whatever it likes in it, brackets and
     * blanks included. */
    char *p = strrchr(text, ')');
    for (int field = 3; p != NULL && field <= PENDING; field++) {
        p = strchr(p, ' ');
        if (p == NULL)
            break;
        p++;
        if (field == STATE && (*p == 'T' || *p == 't') && is_seen)
            state = TL__TASK_STOPPED;
        if ((field == FLAGS && (strtoul(p, NULL, 10) & (IS_EXITING | IS_SIGNALED)) != 0) ||
            (field == PENDING && (strtoul(p, NULL, 10) & IS_KILLED) != 0))
            return TL__TASK_DYING;
    }
    return state;
}
