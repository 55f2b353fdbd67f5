/* Files in one go: all of them or a reason, under signals, limits and growth. */
#include "tally/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unity.h>

static char path[300];
static char *bytes;
static size_t n;

void setUp(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/file_XXXXXX", tmp != NULL ? tmp : "/tmp");
    int fd = mkstemp(path);
    TEST_ASSERT_TRUE(fd >= 0);
    close(fd);
    bytes = NULL;
}

void tearDown(void)
{
    unlink(path);
    free(bytes);
}

static char letter_at(size_t i)
{
    return (char)('a' + i % 23);
}

/* A file of so many letters. */
static void make_file(size_t size)
{
    FILE *f = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(f);
    for (size_t i = 0; i < size; i++)
        fputc(letter_at(i), f);
    TEST_ASSERT_EQUAL_INT(0, fclose(f));
}

static void assert_letters(size_t size)
{
    TEST_ASSERT_EQUAL_size_t(size, n);
    TEST_ASSERT_EQUAL_CHAR('\0', bytes[n]);
    for (size_t i = 0; i < size; i++)
        TEST_ASSERT_EQUAL_CHAR(letter_at(i), bytes[i]);
}

static void a_file_is_read_to_its_end_and_terminated(void)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make_file(sizes[i]);
        TEST_ASSERT_EQUAL_INT(0, tl_file_read(path, SIZE_MAX, &bytes, &n));
        assert_letters(sizes[i]);
        free(bytes);
        bytes = NULL;
    }
}

static void a_file_that_tells_no_size_is_read_as_well(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_file_read("/proc/self/maps", SIZE_MAX, &bytes, &n));
    TEST_ASSERT_TRUE(n > 0);
    TEST_ASSERT_EQUAL_size_t(n, strlen(bytes));
    TEST_ASSERT_EQUAL_CHAR('\n', bytes[n - 1]);
}

static void the_limit_is_what_may_be_read_not_what_may_not(void)
{
    make_file(5000);
    TEST_ASSERT_EQUAL_INT(0, tl_file_read(path, 5000, &bytes, &n));
    assert_letters(5000);
    free(bytes);
    TEST_ASSERT_EQUAL_INT(-EFBIG, tl_file_read(path, 4999, &bytes, &n));
    TEST_ASSERT_NULL(bytes);
    TEST_ASSERT_EQUAL_size_t(0, n);
    TEST_ASSERT_EQUAL_INT(-EFBIG, tl_file_read(path, 0, &bytes, &n));
    TEST_ASSERT_EQUAL_INT(-EFBIG, tl_file_read("/dev/zero", 100000, &bytes, &n));
}

static void what_is_no_file_is_an_error(void)
{
    n = 7;
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_file_read("/nowhere/at all", SIZE_MAX, &bytes, &n));
    TEST_ASSERT_EQUAL_size_t(0, n);
    TEST_ASSERT_NULL(bytes);
    TEST_ASSERT_EQUAL_INT(-EISDIR, tl_file_read("/", SIZE_MAX, &bytes, &n));
    TEST_ASSERT_NULL(bytes);
}

static void nothing(int number)
{
    (void)number;
}

struct slow {
    pthread_t reader;
    int to;
    size_t size;
};

/* Writes in small pieces and interrupts the reader between them. */
static void *write_slowly(void *argument)
{
    struct slow *s = argument;
    for (size_t i = 0; i < s->size; i++) {
        char c = letter_at(i);
        pthread_kill(s->reader, SIGUSR1);
        if (write(s->to, &c, 1) != 1)
            break;
    }
    close(s->to);
    return NULL;
}

static void signals_and_short_reads_do_not_end_it(void)
{
    struct sigaction a = {.sa_handler = nothing}, old; /* no SA_RESTART: reads end with EINTR */
    int ends[2];
    pthread_t thread;
    TEST_ASSERT_EQUAL_INT(0, sigaction(SIGUSR1, &a, &old));
    TEST_ASSERT_EQUAL_INT(0, pipe(ends));
    struct slow s = {pthread_self(), ends[1], 10000};
    TEST_ASSERT_EQUAL_INT(0, pthread_create(&thread, NULL, write_slowly, &s));
    int rc = tl_file_read_fd(ends[0], SIZE_MAX, &bytes, &n);
    TEST_ASSERT_EQUAL_INT(0, pthread_join(thread, NULL));
    close(ends[0]);
    sigaction(SIGUSR1, &old, NULL);
    TEST_ASSERT_EQUAL_INT(0, rc);
    assert_letters(10000);
}

static void an_open_file_is_read_from_where_it_stands_and_stays_open(void)
{
    make_file(100);
    int fd = open(path, O_RDONLY);
    TEST_ASSERT_EQUAL_INT(23, lseek(fd, 23, SEEK_SET));
    TEST_ASSERT_EQUAL_INT(0, tl_file_read_fd(fd, SIZE_MAX, &bytes, &n));
    assert_letters(77);
    TEST_ASSERT_EQUAL_INT(0, close(fd));
}

static void a_head_is_as_much_as_there_is_room_for(void)
{
    char text[11];
    make_file(100);
    TEST_ASSERT_EQUAL_INT(10, tl_file_head(path, text, sizeof text));
    TEST_ASSERT_EQUAL_STRING("abcdefghij", text);
    make_file(3);
    TEST_ASSERT_EQUAL_INT(3, tl_file_head(path, text, sizeof text));
    TEST_ASSERT_EQUAL_STRING("abc", text);
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_file_head("/nowhere/at all", text, sizeof text));
    TEST_ASSERT_EQUAL_STRING("", text);
    TEST_ASSERT_EQUAL_INT(-EISDIR, tl_file_head("/", text, sizeof text));
    TEST_ASSERT_EQUAL_STRING("", text);
}

static void what_is_written_is_there_and_may_be_read_in_pieces(void)
{
    char piece[5];
    int fd = open(path, O_RDWR);
    TEST_ASSERT_EQUAL_INT(0, tl_file_write_fd(fd, "0123456789", 10));
    TEST_ASSERT_EQUAL_INT(0, tl_file_read_at(fd, piece, 5, 5));
    TEST_ASSERT_EQUAL_MEMORY("56789", piece, 5);
    TEST_ASSERT_EQUAL_INT(-ENODATA, tl_file_read_at(fd, piece, 5, 6));
    close(fd);
    fd = open(path, O_RDONLY);
    TEST_ASSERT_EQUAL_INT(-EBADF, tl_file_write_fd(fd, "x", 1));
    close(fd);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_file_is_read_to_its_end_and_terminated);
    RUN_TEST(a_file_that_tells_no_size_is_read_as_well);
    RUN_TEST(the_limit_is_what_may_be_read_not_what_may_not);
    RUN_TEST(what_is_no_file_is_an_error);
    RUN_TEST(signals_and_short_reads_do_not_end_it);
    RUN_TEST(an_open_file_is_read_from_where_it_stands_and_stays_open);
    RUN_TEST(a_head_is_as_much_as_there_is_room_for);
    RUN_TEST(what_is_written_is_there_and_may_be_read_in_pieces);
    return UNITY_END();
}
