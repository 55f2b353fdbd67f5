/* What `tally doctor` keeps for jobs: what was written is read, for the same GPU, driver and Tally
 * only; anything else in its place is no qualification, and harms nobody. */
#include "runtime/job/qualified.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tally/file.h"
#include "test/unit/scratch.h"
#include "unity.h"

static char cache[100], path[512];
static struct tl_qualified_of of;
static struct tl_qualification q, found;
static struct tl_error err;

void setUp(void)
{
    scratch_path(cache, sizeof cache, "qualified-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(cache));
    setenv("TALLY_CACHE", cache, 1);
    of = (struct tl_qualified_of){
        .uuid = "GPU-0001", .name = "A GPU", .cuda_version = 12040, .driver = "550.54.14"};
    memset(&q, 0, sizeof q);
    q.rungs[TL_QUALIFIED_TICKET].verdict = TL_VERDICT_WRONG;
    strcpy(q.rungs[TL_QUALIFIED_TICKET].why, "map: block 17 of 512 ran 2 times");
    q.rungs[TL_QUALIFIED_CAP].verdict = TL_VERDICT_REFUSED;
    strcpy(q.rungs[TL_QUALIFIED_CAP].why, "the driver has none");
    TEST_ASSERT_EQUAL_INT(0, tl_qualified_write(&q, &of, path, sizeof path, &err));
}

void tearDown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", cache);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

static int read_it(void)
{
    return tl_qualified_read(&found, &of, &err);
}

static void put(const char *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL_INT(0, tl_file_write_fd(fd, bytes, n));
    close(fd);
}

static void what_was_written_is_read(void)
{
    TEST_ASSERT_EQUAL_INT(0, read_it());
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++) {
        TEST_ASSERT_EQUAL_INT(q.rungs[r].verdict, found.rungs[r].verdict);
        TEST_ASSERT_EQUAL_STRING(q.rungs[r].why, found.rungs[r].why);
    }
}

static void a_reason_of_several_lines_stays_one(void)
{
    strcpy(q.rungs[TL_QUALIFIED_TICKET].why, "bad\npersistent wrong forged\x01");
    TEST_ASSERT_EQUAL_INT(0, tl_qualified_write(&q, &of, path, sizeof path, &err));
    TEST_ASSERT_EQUAL_INT(0, read_it());
    TEST_ASSERT_EQUAL_INT(TL_VERDICT_WORKS, found.rungs[TL_QUALIFIED_PERSISTENT].verdict);
    TEST_ASSERT_EQUAL_STRING("bad?persistent wrong forged?", found.rungs[TL_QUALIFIED_TICKET].why);
}

static void another_gpu_driver_or_name_was_never_examined(void)
{
    struct tl_qualified_of same = of;
    strcpy(of.uuid, "GPU-0002");
    TEST_ASSERT_EQUAL_INT(-ENOENT, read_it());
    of = same;
    of.cuda_version = 12050;
    TEST_ASSERT_EQUAL_INT(-ENOENT, read_it());
    of = same;
    strcpy(of.driver, "550.54.15");
    TEST_ASSERT_EQUAL_INT(-ENOENT, read_it());
    of = same;
    strcpy(of.name, "A GPU (h100-r580)");
    TEST_ASSERT_EQUAL_INT(-ENOENT, read_it());
    of = same;
    TEST_ASSERT_EQUAL_INT(0, read_it());
}

static void every_changed_or_missing_byte_is_noticed(void)
{
    char *bytes;
    size_t n;
    TEST_ASSERT_EQUAL_INT(0, tl_file_read(path, 1 << 20, &bytes, &n));
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        put(bytes, n);
        TEST_ASSERT_EQUAL_INT(-EBADMSG, read_it());
        TEST_ASSERT_EQUAL_INT(TL_VERDICT_WORKS, found.rungs[TL_QUALIFIED_TICKET].verdict);
        bytes[i] ^= 1;
        put(bytes, i);
        TEST_ASSERT_EQUAL_INT(-EBADMSG, read_it());
    }
    put(bytes, n);
    TEST_ASSERT_EQUAL_INT(0, read_it());
    free(bytes);
}

static void hostile_files_are_no_qualification(void)
{
    static char large[40000];
    memset(large, 'x', sizeof large);
    put(large, sizeof large);
    TEST_ASSERT_EQUAL_INT(-EFBIG, read_it());
    put("", 0);
    TEST_ASSERT_EQUAL_INT(-EBADMSG, read_it());
    put("digest ", 7);
    TEST_ASSERT_EQUAL_INT(-EBADMSG, read_it());
    put("tally-qualification 1\ndigest ", 29);
    TEST_ASSERT_EQUAL_INT(-EBADMSG, read_it());
    put("tally-qualification 1\n\0\n\n\n", 26);
    TEST_ASSERT_EQUAL_INT(-EBADMSG, read_it());
}

static void links_pipes_and_folders_are_not_opened(void)
{
    char other[600];
    snprintf(other, sizeof other, "%s.elsewhere", path);
    TEST_ASSERT_EQUAL_INT(0, rename(path, other));
    TEST_ASSERT_EQUAL_INT(0, symlink(other, path));
    TEST_ASSERT_EQUAL_INT(-ELOOP, read_it());
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    TEST_ASSERT_EQUAL_INT(0, mkfifo(path, 0600));
    TEST_ASSERT_EQUAL_INT(-EPERM, read_it());
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    TEST_ASSERT_EQUAL_INT(-EPERM, read_it());
}

static void what_others_may_write_is_not_used(void)
{
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0620));
    TEST_ASSERT_EQUAL_INT(-EPERM, read_it());
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0602));
    TEST_ASSERT_EQUAL_INT(-EPERM, read_it());
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0600));
    TEST_ASSERT_EQUAL_INT(0, read_it());
    *strrchr(path, '/') = 0;
    TEST_ASSERT_EQUAL_INT(0, chmod(path, 0777));
    TEST_ASSERT_EQUAL_INT(-EPERM, read_it());
}

static void nothing_is_left_beside_the_file(void)
{
    struct dirent *entry;
    int n = 0;
    *strrchr(path, '/') = 0;
    DIR *folder = opendir(path);
    TEST_ASSERT_NOT_NULL(folder);
    while ((entry = readdir(folder)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(folder);
    TEST_ASSERT_EQUAL_INT(1, n);
}

static void a_device_that_was_never_examined_is_news_once(void)
{
    TEST_ASSERT_TRUE(tl_qualified_is_news(&of));
    TEST_ASSERT_FALSE(tl_qualified_is_news(&of));
    strcpy(of.driver, "580.1");
    TEST_ASSERT_TRUE(tl_qualified_is_news(&of));
    TEST_ASSERT_FALSE(tl_qualified_is_news(&of));
    setenv("TALLY_CACHE", "/dev/null/none", 1); /* it cannot be kept: silence */
    strcpy(of.driver, "580.2");
    TEST_ASSERT_FALSE(tl_qualified_is_news(&of));
}

static void uuids_look_as_nvidia_smi_has_them(void)
{
    const uint8_t bytes[16] = {0x8d, 0xcd, 0x2d, 0x3d, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255};
    char text[48], small[8];
    tl_qualified_uuid(bytes, text, sizeof text);
    TEST_ASSERT_EQUAL_STRING("GPU-8dcd2d3d-0001-0203-0405-060708090aff", text);
    tl_qualified_uuid(bytes, small, sizeof small);
    TEST_ASSERT_EQUAL_STRING("GPU-8dc", small);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_was_written_is_read);
    RUN_TEST(a_reason_of_several_lines_stays_one);
    RUN_TEST(another_gpu_driver_or_name_was_never_examined);
    RUN_TEST(every_changed_or_missing_byte_is_noticed);
    RUN_TEST(hostile_files_are_no_qualification);
    RUN_TEST(links_pipes_and_folders_are_not_opened);
    RUN_TEST(what_others_may_write_is_not_used);
    RUN_TEST(nothing_is_left_beside_the_file);
    RUN_TEST(a_device_that_was_never_examined_is_news_once);
    RUN_TEST(uuids_look_as_nvidia_smi_has_them);
    return UNITY_END();
}
