/* A good record, which fuzz targets change or take as it is. */
#include "test/fuzz/good_record.h"

#include "runtime/record/record.h"
#include "tally/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void tell(struct tl_record *r, uint64_t i)
{
    static const char *const names[] = {"_Z4vaddPKfS0_Pfi", "loop_fusion", "_Z1fIiEvT_"};
    struct tl_record_kernel *k = tl_record_kernel(r, names[i % 3]);
    tl_record_launched(k, (enum tl_rung)(i % TL_RUNGS), i);
    tl_record_ran(k, i * 100, i * i * 10000);
    tl_record_preempted(k, i * 1000, i * 300);
    tl_record_uncontrolled(k, i);
    tl_record_spanned(r, (enum tl_record_span)(i % TL_SPANS), k, 1, 1000000000 + i,
                      1000000000 + i * 1000);
    tl_record_request(r, 1000000000, 1000000000 + i * 1000, i % 2 == 0);
    tl_record_note(r, names[i % 3]);
}

unsigned char *good_record(size_t *n)
{
    static char *bytes;
    static size_t n_bytes;
    if (bytes == NULL) {
        char folder[] = "/tmp/record-fuzz-XXXXXX", path[256];
        struct tl_record *r = NULL;
        struct tl_error err;
        struct tl_record_job job = {
            .name = "job", .command = "./job", .device = "none", .policy = "tally", .level = 1};
        if (mkdtemp(folder) == NULL || tl_record_open(&r, folder, &job, &err) < 0)
            abort();
        for (uint64_t i = 0; i < 6; i++)
            tell(r, i);
        tl_record_close(r);
        char *text;
        snprintf(path, sizeof path, "%s/job.%ld.tally", folder, (long)getpid());
        if (tl_file_read(path, 4 << 20, &text, &n_bytes) < 0 || (bytes = malloc(n_bytes)) == NULL)
            abort();
        for (size_t i = 0; i < n_bytes; i++)
            bytes[i] = text[i];
        free(text);
        unlink(path);
        rmdir(folder);
    }
    *n = n_bytes;
    return (unsigned char *)bytes;
}
