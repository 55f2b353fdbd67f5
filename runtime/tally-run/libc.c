/* Programs into which our library cannot be loaded: a preload that does not fit keeps a program
 * from starting, with a message of its loader that helps nobody. */
#include "runtime/job/sandbox.h"
#include "runtime/tally-run/run.h"
#include "tally/file.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SEGMENTS = 64, MOST_NESTED = 4 };

/* The loader that a program names, empty if it names none; false if it is no such program. */
static bool read_loader(int fd, char loader[RUN_PATH])
{
    Elf64_Ehdr head;
    Elf64_Phdr segments[MOST_SEGMENTS];
    loader[0] = 0;
    if (tl_file_read_at(fd, &head, sizeof head, 0) < 0 ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_phentsize != sizeof segments[0] || head.e_phnum > MOST_SEGMENTS ||
        tl_file_read_at(fd, segments, head.e_phnum * sizeof segments[0], head.e_phoff) < 0)
        return false;
    for (unsigned i = 0; i < head.e_phnum; i++) {
        uint64_t n = segments[i].p_filesz;
        if (segments[i].p_type != PT_INTERP || n == 0 || n >= RUN_PATH)
            continue;
        if (tl_file_read_at(fd, loader, (size_t)n, segments[i].p_offset) < 0)
            return false;
        loader[n] = 0;
    }
    return true;
}

/* Of a script: the program in its first line. */
static bool read_interpreter(int fd, char path[RUN_PATH])
{
    char line[256];
    ssize_t n = pread(fd, line, sizeof line - 1, 0);
    if (n < 3 || line[0] != '#' || line[1] != '!')
        return false;
    line[n] = 0;
    char *begin = line + 2 + strspn(line + 2, " \t");
    begin[strcspn(begin, " \t\n")] = 0;
    snprintf(path, RUN_PATH, "%s", begin);
    return begin[0] == '/';
}

int run_check_program(const char *program, struct tl_error *err)
{
    char path[RUN_PATH], loader[RUN_PATH];
    if (tl_sandbox_is_gvisor())
        return tl_error_set(err, -ENOEXEC,
                            "this is gVisor, whose kernel shares no memory with jobs outside of "
                            "it: jobs cannot share a device there; run the container with crun or "
                            "runc, or the program without tally-run");
    if (!run_find_program(program, path))
        return 0; /* execvp tells */
    for (int i = 0; i < MOST_NESTED; i++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0)
            return 0;
        bool is_program = read_loader(fd, loader);
        bool is_script = !is_program && read_interpreter(fd, path);
        close(fd);
        const char *name = strrchr(loader, '/');
        if (is_program && strncmp(name != NULL ? name + 1 : loader, "ld-musl", 7) == 0)
            return tl_error_set(err, -ENOEXEC,
                                "%s is a program of musl (its loader is %s), into which Tally's "
                                "library, which needs glibc, cannot be loaded: use a build for "
                                "glibc (an image of Debian, Ubuntu, Fedora or the like)",
                                path, loader);
        if (!is_script)
            return 0;
    }
    return 0;
}
