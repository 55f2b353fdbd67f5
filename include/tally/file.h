/* Files in one go: all of one read, all of something written, whatever signals come meanwhile.
 * libc only. */
#ifndef TALLY_FILE_H
#define TALLY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads a file to its end, whether it says how long it is (as files in /proc do not) or grows
 * meanwhile.  `*bytes` is the caller's to free and has a 0 behind its `*n` bytes; on failure it is
 * NULL and `*n` 0.
 *
 * 0, -EFBIG (more than `limit` bytes; SIZE_MAX for no limit), -ENOMEM, -EISDIR, another negative
 * errno value of open or read. */
int tl_file_read(const char *path, size_t limit, char **bytes, size_t *n);
/* The same with what is open and not read yet; it stays open. */
int tl_file_read_fd(int fd, size_t limit, char **bytes, size_t *n);

/* A descriptor that stays for long, under a number that a program does not expect for its own:
 * never 0, 1 or 2, which it may have closed.  The old number is closed. */
int tl_file_lift(int fd);

/* The beginning of a file in the caller's memory, with a 0 behind it: for small ones, without
 * malloc. How many bytes there are, at most size - 1, or a negative errno value with an empty
 * text. */
int tl_file_head(const char *path, char *text, size_t size);

/* Exactly `n` bytes from the place `at` of the file on.  0, -ENODATA (it ends before), another
 * negative errno value. */
int tl_file_read_at(int fd, void *bytes, size_t n, uint64_t at);
/* All of it, where the descriptor stands.  0 or a negative errno value, with some of it written. */
int tl_file_write_fd(int fd, const void *bytes, size_t n);

#endif
