/* The file that `tally doctor` leaves for jobs; see the header. */
#include "runtime/job/qualified.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tally/cubin.h"
#include "tally/file.h"
#include "tally/ptx.h"
#include "tally/store.h"

enum { MOST_BYTES = 16384, NAME_BYTES = TL_DIGEST_HEX + 8 };
#define FIRST_LINE "tally-qualification 1\n"

const char *tl_verdict_name(enum tl_verdict v)
{
    static const char *const names[TL_VERDICTS] = {"works", "refused", "wrong"};
    return (unsigned)v < TL_VERDICTS ? names[v] : "?";
}

const char *tl_qualified_rung_name(enum tl_qualified_rung r)
{
    static const char *const names[TL_QUALIFIED_RUNGS] = {"persistent", "ticket", "slice", "gate",
                                                          "cap"};
    return (unsigned)r < TL_QUALIFIED_RUNGS ? names[r] : "?";
}

void tl_qualified_uuid(const uint8_t bytes[16], char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "GPU");
    for (int i = 0; i < 16 && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%02x",
                              i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

void tl_qualified_driver(char *text, size_t size)
{
    tl_file_head("/sys/module/nvidia/version", text, size);
    text[strcspn(text, "\n")] = 0;
}

/* --- name and text ---------------------------------------------------------------------------- */

/* Everything that the answer may depend on is in the name: what was found on another driver, or by
 * another Tally, is not found here. */
static void name_of(const struct tl_qualified_of *of, char name[NAME_BYTES])
{
    struct tl_digest d;
    uint8_t digest[TL_DIGEST_BYTES];
    const uint32_t numbers[] = {(uint32_t)of->cuda_version, TL_PTX_REWRITER_VERSION,
                                TL_CUBIN_GATE_VERSION};
    tl_digest_init(&d);
    tl_digest_add(&d, numbers, sizeof numbers);
    tl_digest_part(&d, of->uuid, strlen(of->uuid));
    tl_digest_part(&d, of->name, strlen(of->name));
    tl_digest_part(&d, of->driver, strlen(of->driver));
    tl_digest_part(&d, tl_version, strlen(tl_version));
    tl_digest_end(&d, digest);
    tl_digest_hex(digest, name);
}

/* One line's worth of a text. */
static void put_line(struct tl_buf *b, const char *key, const char *value)
{
    tl_buf_printf(b, "%s ", key);
    for (const char *p = value; *p != 0; p++)
        tl_buf_putc(b, (unsigned char)*p < ' ' || *p == 0x7f ? '?' : *p);
    tl_buf_putc(b, '\n');
}

static void put_text(struct tl_buf *b, const struct tl_qualification *q,
                     const struct tl_qualified_of *of)
{
    char hex[TL_DIGEST_HEX], line[256];
    uint8_t digest[TL_DIGEST_BYTES];
    tl_buf_puts(b, FIRST_LINE);
    put_line(b, "tally", tl_version);
    put_line(b, "uuid", of->uuid);
    put_line(b, "gpu", of->name);
    snprintf(line, sizeof line, "%d.%d %s", of->cuda_version / 1000, of->cuda_version % 1000 / 10,
             of->driver);
    put_line(b, "driver", line);
    for (int i = 0; i < TL_QUALIFIED_RUNGS; i++) {
        snprintf(line, sizeof line, "%s %s", tl_verdict_name(q->rungs[i].verdict), q->rungs[i].why);
        put_line(b, tl_qualified_rung_name((enum tl_qualified_rung)i), line);
    }
    if (b->failed)
        return;
    tl_digest_of(b->p, b->n, digest);
    tl_digest_hex(digest, hex);
    put_line(b, "digest", hex);
}

/* The line that begins with that key and a blank, behind them; NULL if there is none. */
static const char *value_of(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += line != text || *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return line + n + 1;
    }
    return NULL;
}

static bool read_rung(const char *text, struct tl_qualification *q, enum tl_qualified_rung r)
{
    const char *value = value_of(text, tl_qualified_rung_name(r));
    for (int v = 0; value != NULL && v < TL_VERDICTS; v++) {
        const char *word = tl_verdict_name((enum tl_verdict)v);
        size_t n = strlen(word);
        if (strncmp(value, word, n) != 0 || value[n] != ' ')
            continue;
        q->rungs[r].verdict = (enum tl_verdict)v;
        snprintf(q->rungs[r].why, sizeof q->rungs[r].why, "%.*s", (int)strcspn(value + n + 1, "\n"),
                 value + n + 1);
        return true;
    }
    return false;
}

/* The bytes have a 0 behind them; one within them ends the text, and the digest then differs. */
static bool read_text(const char *text, size_t n, struct tl_qualification *q)
{
    char hex[TL_DIGEST_HEX];
    uint8_t digest[TL_DIGEST_BYTES];
    const char *claimed = value_of(text, "digest");
    if (strlen(text) != n || !tl_str_starts(tl_str_of(text), FIRST_LINE) || claimed == NULL)
        return false;
    tl_digest_of(text, (size_t)(claimed - text) - strlen("digest "), digest);
    tl_digest_hex(digest, hex);
    if (strncmp(claimed, hex, TL_DIGEST_HEX - 1) != 0 ||
        strcmp(claimed + TL_DIGEST_HEX - 1, "\n") != 0)
        return false;
    for (int i = 0; i < TL_QUALIFIED_RUNGS; i++)
        if (!read_rung(text, q, (enum tl_qualified_rung)i))
            return false;
    return true;
}

/* --- on disk ---------------------------------------------------------------------------------- */

/* The folder, opened and found to be this user's own. */
static int open_folder(struct tl_store *folder, struct tl_error *err)
{
    char root[TL_STORE_PATH], path[TL_STORE_PATH + 8];
    int rc = tl_store_folder(root, err);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof path, "%s/doctor", root);
    return tl_store_open(folder, path, 1, err);
}

static int read_file(int folder, const char *name, char **text, size_t *n, struct tl_error *err)
{
    struct stat st;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? tl_error_set(err, -ENOENT, "it has never been examined")
                               : tl_error_errno(err, "its qualification");
    int rc = fstat(fd, &st) < 0 ? -errno : 0;
    if (rc == 0 &&
        (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0))
        rc = -EPERM;
    if (rc == 0)
        rc = tl_file_read_fd(fd, MOST_BYTES, text, n);
    close(fd);
    if (rc == -EPERM)
        return tl_error_set(err, rc, "its qualification is not this user's alone, and not used");
    return rc < 0 ? tl_error_set(err, rc, "its qualification: %s", strerror(-rc)) : 0;
}

int tl_qualified_read(struct tl_qualification *q, const struct tl_qualified_of *of,
                      struct tl_error *err)
{
    struct tl_store folder;
    char name[NAME_BYTES], *text = NULL;
    size_t n = 0;
    memset(q, 0, sizeof *q);
    int rc = open_folder(&folder, err);
    if (rc < 0)
        return rc;
    name_of(of, name);
    rc = read_file(folder.dir, name, &text, &n, err);
    tl_store_close(&folder);
    if (rc == 0 && (text == NULL || !read_text(text, n, q))) {
        memset(q, 0, sizeof *q);
        rc = tl_error_set(err, -EBADMSG, "its qualification is damaged, and not used");
    }
    free(text);
    return rc;
}

bool tl_qualified_is_news(const struct tl_qualified_of *of)
{
    struct tl_store folder;
    char name[NAME_BYTES], told[NAME_BYTES + 8];
    if (open_folder(&folder, NULL) < 0)
        return false;
    name_of(of, name);
    snprintf(told, sizeof told, "%s.told", name);
    int fd = openat(folder.dir, told, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    tl_store_close(&folder);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int write_file(int folder, const char *name, const struct tl_buf *b)
{
    char other[NAME_BYTES + 32];
    snprintf(other, sizeof other, "%s.%ld.new", name, (long)getpid());
    unlinkat(folder, other, 0);
    int fd = openat(folder, other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int rc = tl_file_write_fd(fd, b->p, b->n);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(folder, other, folder, name) < 0)
        rc = -errno;
    if (rc < 0)
        unlinkat(folder, other, 0);
    return rc;
}

int tl_qualified_write(const struct tl_qualification *q, const struct tl_qualified_of *of,
                       char *path, size_t path_n, struct tl_error *err)
{
    struct tl_store folder;
    struct tl_buf b = {0};
    char name[NAME_BYTES];
    int rc = open_folder(&folder, err);
    if (rc < 0)
        return rc;
    name_of(of, name);
    put_text(&b, q, of);
    rc = b.failed ? -ENOMEM : write_file(folder.dir, name, &b);
    tl_buf_finish(&b);
    if (rc == 0 && path != NULL)
        snprintf(path, path_n, "%s/%s", folder.path, name);
    if (rc < 0)
        tl_error_set(err, rc, "%s/%s: %s", folder.path, name, strerror(-rc));
    tl_store_close(&folder);
    return rc;
}
