/* The compute capability that the device reports: TALLY_DEVICE_CC, the profile's if that is not
 * set.
 *
 * No single number suits everybody.  NVIDIA's libraries take their forward-compatible PTX only on a
 * device that they do not know, while compilers such as Triton's refuse a target that they do not
 * know.  So the answer may depend on who asks: "13.0,libcudart.so=12.0" tells 12.0 to what runs in
 * a file whose name begins with libcudart.so, and 13.0 to all others; "libcudart.so=compiler" tells
 * the newest that the job's compiler knows.  "@program=compiler" is for the program itself, and
 * only where NVRTC is loaded, to which it will say what it was told.  Images are chosen by the
 * first number. */
#include "device/driver/device.h"
#include "device/driver/log.h"
#include "device/driver/profile.h"
#include "device/driver/state.h"
#include "tally/tell.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

enum { MAX_RULES = 16 };

struct rule {
    char file[64];    /* beginning of the caller's file name */
    int major, minor; /* major 0: the newest that the job's compiler knows */
};
static struct rule rules[MAX_RULES];
static int n_rules;

/* "13.0" or "130". */
static bool read_number(const char *text, size_t n, int *major, int *minor)
{
    char copy[16], *end;
    if (n == 0 || n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = 0;
    long big = strtol(copy, &end, 10), small = 0;
    if (*end == '.') {
        small = strtol(end + 1, &end, 10);
    } else {
        small = big % 10;
        big /= 10;
    }
    if (*end != 0 || big < 1 || big > 99 || small < 0 || small > 9)
        return false;
    *major = (int)big;
    *minor = (int)small;
    return true;
}

static bool is_compiler(const char *text, size_t n)
{
    static const char word[] = "compiler";
    return n == sizeof word - 1 && memcmp(text, word, n) == 0;
}

static void read_part(const char *text, size_t n)
{
    const char *equals = memchr(text, '=', n);
    struct rule r = {.major = 0};
    size_t named = equals != NULL ? (size_t)(equals - text) : 0;
    bool good = equals == NULL ? read_number(text, n, &tl_drv.cc_major, &tl_drv.cc_minor)
                               : named < sizeof r.file &&
                                     (is_compiler(equals + 1, n - named - 1) ||
                                      read_number(equals + 1, n - named - 1, &r.major, &r.minor));
    if (!good || (equals != NULL && n_rules == MAX_RULES)) {
        tl_drv_warn("TALLY_DEVICE_CC: '%.*s' is not understood; it may be 13.0 or "
                    "13.0,libcudart.so=12.0 or 13.0,libcudart.so=compiler",
                    (int)n, text);
    } else if (equals != NULL) {
        memcpy(r.file, text, named);
        rules[n_rules++] = r;
    }
}

void tl_drv_capability_read(void)
{
    const char *text = secure_getenv("TALLY_DEVICE_CC");
    tl_drv.cc_major = tl_drv_profile()->cc_major;
    tl_drv.cc_minor = tl_drv_profile()->cc_minor;
    n_rules = 0;
    while (text != NULL && *text != 0) {
        size_t n = strcspn(text, ",");
        read_part(text, n);
        text += n + (text[n] != 0);
    }
}

/* Tells the user once per answer, if he wants to know it (tally-run --verbose). */
static void tell(const char *file, const char *compiler, int arch)
{
    static _Atomic int told;
    const char *text = secure_getenv("TALLY_DEVICE_TELL");
    char line[256];
    if (text == NULL || strcmp(text, "yes") != 0 || atomic_exchange(&told, arch) == arch)
        return;
    int n = snprintf(line, sizeof line,
                     "tally: the device tells %s that it is %d.%d, the newest that %s knows\n",
                     file, arch / 10, arch % 10, *compiler != 0 ? compiler : "most compilers");
    if (n > 0)
        tl_tell(line, strlen(line));
}

static void by_compiler(const char *file, int *major, int *minor)
{
    char compiler[64];
    int arch = tl_drv_compiler_arch(compiler, sizeof compiler);
    tell(file, compiler, arch);
    *major = arch / 10;
    *minor = arch % 10;
}

/* Whether a rule is for a caller in that object. */
static bool is_for(const struct rule *r, const Dl_info *caller, const char *file)
{
    Dl_info program;
    if (strcmp(r->file, "@program") != 0)
        return strncmp(file, r->file, strlen(r->file)) == 0;
    return dladdr((const void *)(uintptr_t)getauxval(AT_ENTRY), &program) != 0 &&
           program.dli_fbase == caller->dli_fbase && tl_drv_has_nvrtc();
}

void tl_drv_capability_for(const void *caller, int *major, int *minor)
{
    Dl_info info;
    *major = tl_drv.cc_major;
    *minor = tl_drv.cc_minor;
    if (n_rules == 0 || dladdr(caller, &info) == 0 || info.dli_fname == NULL)
        return;
    const char *slash = strrchr(info.dli_fname, '/'),
               *file = slash != NULL ? slash + 1 : info.dli_fname;
    for (int i = 0; i < n_rules; i++) {
        if (!is_for(&rules[i], &info, file))
            continue;
        *major = rules[i].major;
        *minor = rules[i].minor;
        if (rules[i].major == 0)
            by_compiler(file, major, minor);
        return;
    }
}
