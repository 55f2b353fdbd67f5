/* The disk store: what goes in comes out, nothing else does, and it stays within its size. */
#include "tally/store.h"
#include "test/unit/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unity.h>

static char folder[256], path[2048];
static struct tl_store cache;
static struct tl_error err;

void setUp(void)
{
    TEST_ASSERT_NOT_NULL(mkdtemp(scratch_path(folder, sizeof folder, "store_XXXXXX")));
    err = (struct tl_error){0};
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_store_open(&cache, folder, 16, &err), err.text);
}

void tearDown(void)
{
    char command[300];
    tl_store_close(&cache);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

static struct tl_store_key key_of(const char *what)
{
    struct tl_store_key key;
    tl_digest_of(what, strlen(what), key.bytes);
    return key;
}

static int store(const char *what, const void *bytes, size_t n)
{
    struct tl_store_key key = key_of(what);
    return tl_store_put(&cache, &key, bytes, n, path, sizeof path, &err);
}

static int find_entry(const char *what)
{
    struct tl_store_key key = key_of(what);
    return tl_store_find(&cache, &key, path, sizeof path);
}

static uint32_t count_files(void)
{
    uint32_t n = 0;
    DIR *d = opendir(folder);
    TEST_ASSERT_NOT_NULL(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
             strcmp(e->d_name, "lock") != 0;
    closedir(d);
    return n;
}

static void set_age(const char *file, time_t seconds)
{
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    TEST_ASSERT_EQUAL_INT(0, utimensat(AT_FDCWD, file, times, 0));
}

static void what_was_stored_is_found(void)
{
    char bytes[100000], back[100000];
    memset(bytes, 'x', sizeof bytes);
    TEST_ASSERT_EQUAL_INT(-ENOENT, find_entry("a"));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, store("a", bytes, sizeof bytes), err.text);
    char stored[2048];
    strcpy(stored, path);
    TEST_ASSERT_EQUAL_INT(0, find_entry("a"));
    TEST_ASSERT_EQUAL_STRING(stored, path);
    FILE *f = fopen(path, "r");
    TEST_ASSERT_NOT_NULL(f);
    TEST_ASSERT_EQUAL_size_t(sizeof back, fread(back, 1, sizeof back, f));
    fclose(f);
    TEST_ASSERT_EQUAL_MEMORY(bytes, back, sizeof bytes);
    TEST_ASSERT_EQUAL_INT(-ENOENT, find_entry("b"));
    TEST_ASSERT_EQUAL_UINT32(1, count_files());
}

/* Whoever owns a folder above ours can put another one under its name, at any time. */
static void what_is_read_is_what_was_checked(void)
{
    char moved[300], command[4000], *bytes;
    size_t n;
    struct tl_store_key key = key_of("a");
    TEST_ASSERT_EQUAL_INT(-ENOENT, tl_store_read(&cache, &key, 9, &bytes, &n));
    TEST_ASSERT_EQUAL_INT(0, store("a", "genuine", 7));
    TEST_ASSERT_EQUAL_INT(-EFBIG, tl_store_read(&cache, &key, 6, &bytes, &n));
    TEST_ASSERT_NULL(bytes);
    snprintf(moved, sizeof moved, "%s-moved", folder);
    snprintf(command, sizeof command, "mv '%s' '%s' && mkdir '%s' && echo forged >'%s'", folder,
             moved, folder, path);
    TEST_ASSERT_EQUAL_INT(0, system(command));
    int rc = tl_store_read(&cache, &key, 7, &bytes, &n);
    snprintf(command, sizeof command, "rm -r '%s' && mv '%s' '%s'", folder, moved, folder);
    TEST_ASSERT_EQUAL_INT(0, system(command));
    TEST_ASSERT_EQUAL_INT(0, rc);
    TEST_ASSERT_EQUAL_size_t(7, n);
    TEST_ASSERT_EQUAL_STRING("genuine", bytes);
    free(bytes);
}

static void change_byte(const char *file, long at, int whence)
{
    FILE *f = fopen(file, "r+");
    TEST_ASSERT_NOT_NULL(f);
    fseek(f, at, whence);
    int c = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(c ^ 1, f);
    fclose(f);
}

static void assert_damaged(const char *what)
{
    TEST_ASSERT_EQUAL_INT(-EBADMSG, find_entry(what));
    TEST_ASSERT_EQUAL_INT(-ENOENT, find_entry(what));
}

static void damaged_entries_are_removed(void)
{
    static const struct {
        long at;
        int whence;
    } places[] = {{0, SEEK_SET},   {4999, SEEK_SET}, {-1, SEEK_END},
                  {-88, SEEK_END}, {-80, SEEK_END},  {-60, SEEK_END}};
    char bytes[5000] = "ELF";
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        TEST_ASSERT_EQUAL_INT(0, store("a", bytes, sizeof bytes));
        TEST_ASSERT_EQUAL_INT(0, find_entry("a"));
        change_byte(path, places[i].at, places[i].whence);
        assert_damaged("a");
        char *read;
        size_t n;
        struct tl_store_key key = key_of("a");
        TEST_ASSERT_EQUAL_INT(0, store("a", bytes, sizeof bytes));
        change_byte(path, places[i].at, places[i].whence);
        TEST_ASSERT_EQUAL_INT(-EBADMSG, tl_store_read(&cache, &key, SIZE_MAX, &read, &n));
        TEST_ASSERT_EQUAL_INT(-ENOENT, tl_store_read(&cache, &key, SIZE_MAX, &read, &n));
    }
}

static void cut_and_grown_entries_are_removed(void)
{
    char bytes[5000] = "ELF";
    static const off_t sizes[] = {0, 1, 87, 88, 2500, 5000, 5087, 5089, 10000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        TEST_ASSERT_EQUAL_INT(0, store("a", bytes, sizeof bytes));
        TEST_ASSERT_EQUAL_INT(0, truncate(path, sizes[i]));
        assert_damaged("a");
    }
}

static void another_keys_entry_is_not_taken(void)
{
    char other[2048];
    TEST_ASSERT_EQUAL_INT(0, store("a", "A", 1));
    strcpy(other, path);
    TEST_ASSERT_EQUAL_INT(0, store("b", "B", 1));
    TEST_ASSERT_EQUAL_INT(0, rename(other, path));
    assert_damaged("b");
}

static void a_link_or_folder_in_place_of_an_entry_is_not_taken(void)
{
    TEST_ASSERT_EQUAL_INT(0, store("a", "A", 1));
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/zero", path));
    TEST_ASSERT_EQUAL_INT(-EBADMSG, find_entry("a"));
    TEST_ASSERT_EQUAL_INT(0, store("a", "A", 1)); /* replaces it */
    TEST_ASSERT_EQUAL_INT(0, find_entry("a"));
    TEST_ASSERT_EQUAL_INT(0, unlink(path));
    TEST_ASSERT_EQUAL_INT(0, mkdir(path, 0700));
    TEST_ASSERT_EQUAL_INT(-EBADMSG, find_entry("a"));
}

static void the_least_recently_used_go_first(void)
{
    static char bytes[1 << 20];
    char name[16];
    tl_store_close(&cache);
    TEST_ASSERT_EQUAL_INT(0, tl_store_open(&cache, folder, 8, &err));
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "%d", i);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, store(name, bytes, sizeof bytes), err.text);
        set_age(path, 1000 - i);
    }
    TEST_ASSERT_EQUAL_UINT32(7, count_files());
    TEST_ASSERT_EQUAL_INT(0, find_entry("0")); /* used just now */
    TEST_ASSERT_EQUAL_INT(0, store("7", bytes, sizeof bytes));
    TEST_ASSERT_EQUAL_INT(0, find_entry("7"));
    TEST_ASSERT_EQUAL_INT(0, find_entry("0"));
    TEST_ASSERT_EQUAL_INT(-ENOENT, find_entry("1"));
    TEST_ASSERT_EQUAL_INT(0, find_entry("6"));
    TEST_ASSERT_TRUE(count_files() <= 7);
}

static void files_of_others_stay_and_leftovers_go(void)
{
    char file[300], old[300], new[300];
    snprintf(file, sizeof file, "%s/precious.so", folder);
    snprintf(old, sizeof old, "%s/.new-1-1-1", folder);
    snprintf(new, sizeof new, "%s/.new-1-1-2", folder);
    close(open(file, O_CREAT | O_WRONLY, 0600));
    close(open(old, O_CREAT | O_WRONLY, 0600));
    close(open(new, O_CREAT | O_WRONLY, 0600));
    set_age(file, 100000);
    set_age(old, 100000);
    TEST_ASSERT_EQUAL_INT(0, store("a", "A", 1));
    TEST_ASSERT_EQUAL_INT(0, access(file, F_OK));
    TEST_ASSERT_EQUAL_INT(-1, access(old, F_OK));
    TEST_ASSERT_EQUAL_INT(0, access(new, F_OK));
}

static void a_folder_that_others_may_write_to_is_refused(void)
{
    struct tl_store c;
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0777));
    TEST_ASSERT_EQUAL_INT(-EPERM, tl_store_open(&c, folder, 1, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, folder));
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0700));
}

static void a_folder_of_somebody_else_is_refused(void)
{
    struct tl_store c;
    if (geteuid() != 0)
        TEST_IGNORE_MESSAGE("only root can give a folder away");
    TEST_ASSERT_EQUAL_INT(0, chown(folder, 1, 1));
    TEST_ASSERT_EQUAL_INT(-EPERM, tl_store_open(&c, folder, 1, &err));
    TEST_ASSERT_NOT_NULL(strstr(err.text, "somebody else"));
}

static void a_new_folder_is_private(void)
{
    struct tl_store c;
    struct stat st;
    char deep[300];
    snprintf(deep, sizeof deep, "%s/x/y/tally", folder);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, tl_store_open(&c, deep, 1, &err), err.text);
    tl_store_close(&c);
    TEST_ASSERT_EQUAL_INT(0, stat(deep, &st));
    TEST_ASSERT_EQUAL_INT(0700, st.st_mode & 07777);
}

static void the_environment_names_the_folder(void)
{
    char found[TL_STORE_PATH];
    setenv("HOME", "/nowhere/home", 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TALLY_CACHE");
    TEST_ASSERT_EQUAL_INT(0, tl_store_folder(found, &err));
    TEST_ASSERT_EQUAL_STRING("/nowhere/home/.cache/tally", found);
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_store_folder(found, &err));
    TEST_ASSERT_EQUAL_STRING("/xdg/tally", found);
    setenv("TALLY_CACHE", "/mine", 1);
    TEST_ASSERT_EQUAL_INT(0, tl_store_folder(found, &err));
    TEST_ASSERT_EQUAL_STRING("/mine", found);
    setenv("TALLY_CACHE_MB", "17", 1);
    TEST_ASSERT_EQUAL_UINT32(17, tl_store_limit_mb());
    setenv("TALLY_CACHE_MB", "x", 1);
    TEST_ASSERT_EQUAL_UINT32(TL_STORE_DEFAULT_MB, tl_store_limit_mb());
    unsetenv("TALLY_CACHE_MB");
}

static void a_full_disk_changes_nothing(void)
{
    char bytes[100000] = "";
    struct rlimit old, small = {50000, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = store("a", bytes, sizeof bytes);
    setrlimit(RLIMIT_FSIZE, &old);
    TEST_ASSERT_EQUAL_INT(-EFBIG, rc);
    TEST_ASSERT_EQUAL_UINT32(0, count_files());
    TEST_ASSERT_EQUAL_INT(-ENOENT, find_entry("a"));
}

/* Eight processes store and look up the same twenty entries in a cache that holds five of them. */
static void writers_do_not_disturb_each_other(void)
{
    static char bytes[200000];
    pid_t children[8];
    for (int c = 0; c < 8; c++) {
        children[c] = fork();
        TEST_ASSERT_TRUE(children[c] >= 0);
        if (children[c] > 0)
            continue;
        struct tl_store own;
        int bad = tl_store_open(&own, folder, 1, &err) < 0;
        for (int i = 0; i < 60 && !bad; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d", (i * 7 + c * 3) % 20);
            struct tl_store_key key = key_of(name);
            memset(bytes, name[0], sizeof bytes);
            int rc = tl_store_find(&own, &key, path, sizeof path);
            bad = rc != 0 && rc != -ENOENT; /* never a half one */
            if (rc == -ENOENT)
                bad = tl_store_put(&own, &key, bytes, sizeof bytes, path, sizeof path, &err) < 0;
        }
        _exit(bad);
    }
    for (int c = 0; c < 8; c++) {
        int status = -1;
        TEST_ASSERT_EQUAL_INT(children[c], waitpid(children[c], &status, 0));
        TEST_ASSERT_EQUAL_INT(0, status);
    }
    /* Whoever finds another one counting does not wait for it, so the last word is ours. */
    tl_store_close(&cache);
    TEST_ASSERT_EQUAL_INT(0, tl_store_open(&cache, folder, 1, &err));
    TEST_ASSERT_EQUAL_INT(0, store("last", bytes, sizeof bytes));
    TEST_ASSERT_EQUAL_INT(0, find_entry("last"));
    TEST_ASSERT_TRUE(count_files() <= 5);
}

/* Whoever can rename what is above can put another folder of this user in its place. */
static void a_folder_that_others_can_exchange_is_not_used(void)
{
    char below[300];
    struct tl_store other;
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 0777));
    snprintf(below, sizeof below, "%s/cache", folder);
    TEST_ASSERT_EQUAL_INT(-EPERM, tl_store_open(&other, below, 16, &err));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(err.text, folder), err.text);
    TEST_ASSERT_EQUAL_INT(0, chmod(folder, 01777)); /* as /tmp is: there nobody can */
    TEST_ASSERT_EQUAL_INT(0, tl_store_open(&other, below, 16, &err));
    tl_store_close(&other);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_was_stored_is_found);
    RUN_TEST(what_is_read_is_what_was_checked);
    RUN_TEST(damaged_entries_are_removed);
    RUN_TEST(cut_and_grown_entries_are_removed);
    RUN_TEST(another_keys_entry_is_not_taken);
    RUN_TEST(a_link_or_folder_in_place_of_an_entry_is_not_taken);
    RUN_TEST(the_least_recently_used_go_first);
    RUN_TEST(files_of_others_stay_and_leftovers_go);
    RUN_TEST(a_folder_that_others_may_write_to_is_refused);
    RUN_TEST(a_folder_of_somebody_else_is_refused);
    RUN_TEST(a_new_folder_is_private);
    RUN_TEST(the_environment_names_the_folder);
    RUN_TEST(a_full_disk_changes_nothing);
    RUN_TEST(writers_do_not_disturb_each_other);
    RUN_TEST(a_folder_that_others_can_exchange_is_not_used);
    return UNITY_END();
}
