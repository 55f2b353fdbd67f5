/* What kernels print; see the header.  A driver writes it to standard output when it is waited
 * for. */
#include "runtime/doctor/lines.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tally/file.h"

enum { MOST_BYTES = 1 << 24 };

int tl_doc_lines_open(void)
{
    int fd = memfd_create("tally-doctor-lines", MFD_CLOEXEC);
    fflush(stdout);
    if (fd >= 0 && (fcntl(fd, F_SETFL, O_APPEND) < 0 || dup2(fd, STDOUT_FILENO) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

void tl_doc_lines_clear(int lines)
{
    fflush(stdout);
    if (lines >= 0 && ftruncate(lines, 0) < 0)
        return; /* then what is there counts twice, and is told */
}

static bool has_each_once(const char *text, uint8_t *seen, uint32_t blocks)
{
    static const size_t head = sizeof TL_DOC_LINE - 1;
    uint32_t n = 0;
    for (char *end; *text != 0; text = end + 1, n++) {
        if (strncmp(text, TL_DOC_LINE, head) != 0)
            return false;
        unsigned long block = strtoul(text + head, &end, 10);
        if (end == text + head || *end != '\n' || block >= blocks || seen[block]++ != 0)
            return false;
    }
    return n == blocks;
}

bool tl_doc_lines_are_whole(int lines, uint32_t blocks)
{
    char *text = NULL;
    size_t n;
    fflush(stdout);
    if (lines < 0 || lseek(lines, 0, SEEK_SET) < 0 ||
        tl_file_read_fd(lines, MOST_BYTES, &text, &n) < 0)
        return false;
    uint8_t *seen = calloc(blocks, 1);
    bool is_whole = seen != NULL && has_each_once(text, seen, blocks);
    free(seen);
    free(text);
    return is_whole;
}
