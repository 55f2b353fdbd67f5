/* Finding images: containers right and wrong, whole files, memory as CUDA hands it over. */
#include "test/unit/image/build.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

enum { MAX_SEEN = 64 };

/* What a walk found. */
static struct seen {
    struct tl_image images[MAX_SEEN];
    uint32_t n;
    uint32_t complaints;
    size_t complaint_offset;
    struct tl_error complaint;
    int stop_with; /* what the visitor returns */
} seen;
static struct tl_buf buf;
static struct tl_error err;

static const char ptx[] = ".version 8.3\n.target sm_90\n.address_size 64\n";

void setUp(void)
{
    seen = (struct seen){0};
    buf = (struct tl_buf){0};
}

void tearDown(void)
{
    tl_buf_finish(&buf);
}

static int see(void *data, const struct tl_image *image)
{
    (void)data;
    if (seen.n < MAX_SEEN)
        seen.images[seen.n++] = *image;
    return seen.stop_with;
}

static void note_complaint(void *data, const struct tl_error *what, size_t offset)
{
    (void)data;
    seen.complaints++;
    seen.complaint = *what;
    seen.complaint_offset = offset;
}

static int walk(void)
{
    return tl_image_walk(buf.p, buf.n, see, note_complaint, NULL);
}

static int walk_memory(void)
{
    return tl_image_walk_memory(buf.p, buf.n, see, NULL, &err);
}

static struct build_entry ptx_entry(void)
{
    return (struct build_entry){
        .kind = BUILD_PTX, .arch = 90, .flags = 0x11, .payload = ptx, .payload_bytes = sizeof ptx};
}

/* Junk that holds no magic. */
static void add_junk(size_t n)
{
    for (size_t i = 0; i < n; i++)
        tl_buf_putc(&buf, (char)(i * 7 % 64));
}

static void assert_str(const char *expected, struct tl_str actual)
{
    TEST_ASSERT_EQUAL_UINT32(strlen(expected), actual.n);
    TEST_ASSERT_EQUAL_MEMORY(expected, actual.p, actual.n);
}

/* --- containers --- */

static void a_container_gives_its_images_in_order(void)
{
    struct build_entry entries[] = {
        {.kind = BUILD_CUBIN, .arch = 80, .flags = 0x11, .payload = "cubin 80", .payload_bytes = 8},
        {.kind = BUILD_CUBIN,
         .arch = 90,
         .flags = 0x100011,
         .payload = "cubin 90",
         .payload_bytes = 8},
        ptx_entry(),
        {.kind = BUILD_LTO,
         .arch = 90,
         .flags = 0x18011,
         .payload = "LTO",
         .payload_bytes = 3,
         .unpacked_bytes = 9},
        {.kind = 77, .arch = 100, .flags = 0x200011, .payload = "?", .payload_bytes = 1},
    };
    build_container(&buf, entries, 5);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(5, seen.n);
    static const enum tl_image_kind kinds[] = {TL_IMAGE_CUBIN, TL_IMAGE_CUBIN, TL_IMAGE_PTX,
                                               TL_IMAGE_LTO, TL_IMAGE_OTHER};
    static const char *const names[] = {"sm_80", "sm_90a", "sm_90", "sm_90", "sm_100f"};
    for (uint32_t i = 0; i < 5; i++) {
        const struct tl_image *image = &seen.images[i];
        char name[16];
        TEST_ASSERT_EQUAL_INT(kinds[i], image->kind);
        TEST_ASSERT_EQUAL_STRING(names[i], tl_image_arch_name(image, name));
        TEST_ASSERT_EQUAL_UINT32(i, image->index);
        TEST_ASSERT_EQUAL_UINT32(0, image->container_index);
        TEST_ASSERT_EQUAL_UINT64(entries[i].flags, image->flags);
        TEST_ASSERT_EQUAL_UINT16(8, image->version_major);
        TEST_ASSERT_EQUAL_UINT16(3, image->version_minor);
        TEST_ASSERT_EQUAL_MEMORY(entries[i].payload, image->bytes, entries[i].payload_bytes);
        TEST_ASSERT_EQUAL_PTR(buf.p + image->offset, image->bytes);
    }
    TEST_ASSERT_EQUAL_UINT32(0, seen.complaints);
}

static void any_header_size_from_64_up_is_taken_from_its_field(void)
{
    for (uint32_t header = 64; header <= 144; header += 8) {
        tearDown();
        setUp();
        struct build_entry entry = ptx_entry();
        entry.header_bytes = header;
        build_container(&buf, (struct build_entry[]){entry, entry}, 2);
        TEST_ASSERT_EQUAL_INT(0, walk_memory());
        TEST_ASSERT_EQUAL_UINT32(2, seen.n);
        TEST_ASSERT_EQUAL_size_t(16 + header, seen.images[0].offset);
        TEST_ASSERT_EQUAL_MEMORY(ptx, seen.images[1].bytes, sizeof ptx);
    }
}

static void options_and_source_name_are_read_and_trimmed(void)
{
    struct build_entry entry = ptx_entry();
    entry.options = "  -maxrregcount=40 --compile-only  ";
    entry.identifier = "scale.cu";
    build_container(&buf, &entry, 1);
    TEST_ASSERT_EQUAL_INT(0, walk_memory());
    assert_str("-maxrregcount=40 --compile-only", seen.images[0].options);
    assert_str("scale.cu", seen.images[0].identifier);
}

static void options_that_leave_the_header_are_none(void)
{
    static const struct {
        size_t at;
        uint32_t value;
    } lies[] = {{16 + 20, 200},
                {16 + 20, UINT32_MAX - 3},
                {16 + 64, 300},
                {16 + 68, 100},
                {16 + 68, UINT32_MAX}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        tearDown();
        setUp();
        struct build_entry entry = ptx_entry();
        entry.options = "-maxrregcount=40";
        build_container(&buf, &entry, 1);
        patch32(&buf, lies[i].at, lies[i].value);
        TEST_ASSERT_EQUAL_INT(0, walk_memory());
        TEST_ASSERT_EQUAL_UINT32(0, seen.images[0].options.n);
    }
}

static void a_source_name_that_leaves_the_header_is_none(void)
{
    struct build_entry entry = ptx_entry();
    entry.identifier = "scale.cu";
    build_container(&buf, &entry, 1);
    patch32(&buf, 16 + 36, 9);
    TEST_ASSERT_EQUAL_INT(0, walk_memory());
    TEST_ASSERT_EQUAL_UINT32(0, seen.images[0].identifier.n);
}

static void an_empty_container_holds_nothing(void)
{
    build_container(&buf, NULL, 0);
    TEST_ASSERT_EQUAL_INT(0, walk_memory());
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(0, seen.n + seen.complaints);
}

static void sizes_that_do_not_fit_are_refused(void)
{
    static const struct {
        size_t at, width;
        uint64_t value;
    } lies[] = {
        {6, 2, 15},              /* container header too small */
        {6, 2, 0xffff},          /* and too large */
        {8, 8, 1000},            /* entries behind the end */
        {8, 8, UINT64_MAX},      /* so that the sum overflows */
        {8, 8, 100},             /* the container ends within the payload */
        {8, 8, 40},              /* and within the entry's header */
        {16 + 4, 4, 63},         /* entry header too small */
        {16 + 4, 4, 0},          /* a loop, if believed */
        {16 + 4, 4, UINT32_MAX}, /* and too large */
        {16 + 8, 8, 1000},       /* payload behind the end */
        {16 + 8, 8, UINT64_MAX}, /* so that the sum overflows */
        {16 + 16, 4, 1000},      /* stored size over the payload's */
        {4, 2, 2},               /* an unknown version */
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        tearDown();
        setUp();
        struct build_entry entry = ptx_entry();
        build_container(&buf, &entry, 1);
        if (lies[i].width == 2)
            patch16(&buf, lies[i].at, (uint16_t)lies[i].value);
        else if (lies[i].width == 4)
            patch32(&buf, lies[i].at, (uint32_t)lies[i].value);
        else
            patch64(&buf, lies[i].at, lies[i].value);
        err.text[0] = 0;
        TEST_ASSERT_EQUAL_INT(-EINVAL, walk_memory());
        TEST_ASSERT_TRUE(err.text[0] != 0);
        TEST_ASSERT_EQUAL_UINT32(0, seen.n);
    }
}

static void a_cut_container_is_refused_without_reading_on(void)
{
    struct build_entry entry = ptx_entry();
    entry.options = "-maxrregcount=40";
    build_container(&buf, (struct build_entry[]){entry, entry}, 2);
    for (size_t n = 0; n < buf.n; n++) {
        void *copy = guarded_copy(buf.p, n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, n, see, NULL, &err));
        TEST_ASSERT_EQUAL_INT(0, tl_image_walk(copy, n, see, note_complaint, NULL));
        guarded_free(copy, n);
    }
    TEST_ASSERT_EQUAL_UINT32(0, seen.n);
}

static void no_single_wrong_byte_leads_outside(void)
{
    static const uint8_t values[] = {0, 1, 0x10, 0x40, 0x7f, 0x80, 0xff};
    struct build_entry entry = ptx_entry();
    entry.options = "-maxrregcount=40";
    entry.identifier = "scale.cu";
    build_container(&buf, (struct build_entry[]){entry, entry}, 2);
    uint8_t *copy = guarded_copy(buf.p, buf.n);
    for (size_t at = 0; at < buf.n; at++) {
        for (size_t v = 0; v < sizeof values; v++) {
            copy[at] = values[v];
            seen.n = 0;
            (void)tl_image_walk(copy, buf.n, see, note_complaint, NULL);
            for (uint32_t i = 0; i < seen.n; i++) {
                const struct tl_image *image = &seen.images[i];
                TEST_ASSERT_TRUE(image->offset <= buf.n &&
                                 image->stored_bytes <= buf.n - image->offset);
                void *out;
                size_t n;
                if (tl_image_unpack(image, &out, &n, NULL) == 0)
                    free(out);
            }
        }
        copy[at] = (uint8_t)buf.p[at];
    }
    guarded_free(copy, buf.n);
}

/* --- whole files --- */

static void a_container_is_found_at_any_place_in_junk(void)
{
    for (size_t lead = 0; lead < 17; lead++) {
        tearDown();
        setUp();
        struct build_entry entry = ptx_entry();
        add_junk(lead);
        build_container(&buf, &entry, 1);
        add_junk(5);
        TEST_ASSERT_EQUAL_INT(0, walk());
        TEST_ASSERT_EQUAL_UINT32(1, seen.n);
        TEST_ASSERT_EQUAL_size_t(lead, seen.images[0].container_offset);
        TEST_ASSERT_TRUE(seen.images[0].was_scanned);
        TEST_ASSERT_EQUAL_MEMORY(ptx, seen.images[0].bytes, sizeof ptx);
    }
}

static void containers_are_numbered_through_the_file(void)
{
    struct build_entry entry = ptx_entry();
    for (int i = 0; i < 3; i++) {
        add_junk(11);
        build_container(&buf, (struct build_entry[]){entry, entry}, 2);
    }
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(6, seen.n);
    for (uint32_t i = 0; i < 6; i++) {
        TEST_ASSERT_EQUAL_UINT32(i / 2, seen.images[i].container_index);
        TEST_ASSERT_EQUAL_UINT32(i % 2, seen.images[i].index);
    }
}

static void a_container_within_a_payload_is_no_image_of_the_file(void)
{
    struct tl_buf inner = {0};
    struct build_entry entry = ptx_entry();
    build_container(&inner, &entry, 1);
    build_container(
        &buf, &(struct build_entry){.kind = 77, .payload = inner.p, .payload_bytes = inner.n}, 1);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
    TEST_ASSERT_EQUAL_INT(TL_IMAGE_OTHER, seen.images[0].kind);
    tl_buf_finish(&inner);
}

static void a_broken_container_is_told_and_the_next_one_found(void)
{
    struct build_entry entry = ptx_entry();
    build_container(&buf, &entry, 1);
    patch32(&buf, 16 + 4, 9);
    size_t second = buf.n;
    build_container(&buf, &entry, 1);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(1, seen.complaints);
    TEST_ASSERT_EQUAL_size_t(0, seen.complaint_offset);
    TEST_ASSERT_NOT_NULL(strstr(seen.complaint.text, "header has 9 bytes"));
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
    TEST_ASSERT_EQUAL_size_t(second, seen.images[0].container_offset);
    TEST_ASSERT_EQUAL_UINT32(0, seen.images[0].container_index);
}

static void a_magic_among_code_is_passed_in_silence(void)
{
    add_junk(7);
    tl_buf_add(&buf, "\x50\xed\x55\xba", 4);
    for (int i = 0; i < 40; i++)
        tl_buf_putc(&buf, '\xcc');
    tl_buf_add(&buf, "\x50\xed\x55\xba", 4);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(0, seen.n + seen.complaints);
}

static void headers_that_lead_into_each_other_end_the_search(void)
{
    enum { LENGTH = 1 << 16 };
    struct tl_buf one = {0};
    build_container(&one, &(struct build_entry){.kind = BUILD_PTX}, 1);
    /* another container begins within the entry, */
    patch64(&one, 16 + 48, UINT64_C(0x00100001ba55ed50));
    for (uint64_t i = 1; i <= LENGTH; i++) {
        patch64(&one, 16 + 56, 64 * (LENGTH - i)); /* with all the entries that follow */
        tl_buf_add(&buf, one.p + 16, 64);
    }
    patch32(&buf, buf.n - 60, 0); /* of which the last is broken */
    tl_buf_finish(&one);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(0, seen.n);
    TEST_ASSERT_TRUE(seen.complaints < 100);
    TEST_ASSERT_EQUAL_INT(-E2BIG, seen.complaint.code);
}

static void complaints_need_not_be_heard(void)
{
    struct build_entry entry = ptx_entry();
    build_container(&buf, &entry, 1);
    patch32(&buf, 16 + 4, 9);
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk(buf.p, buf.n, see, NULL, NULL));
}

static void the_visitor_can_stop_a_walk(void)
{
    struct build_entry entry = ptx_entry();
    build_container(&buf, (struct build_entry[]){entry, entry}, 2);
    seen.stop_with = 42;
    TEST_ASSERT_EQUAL_INT(42, walk());
    TEST_ASSERT_EQUAL_INT(42, walk_memory());
    TEST_ASSERT_EQUAL_UINT32(2, seen.n);
}

static void a_section_for_fatbins_vouches_for_its_containers(void)
{
    struct tl_buf container = {0};
    struct build_entry entry = ptx_entry();
    build_container(&container, &entry, 1);
    struct build_section sections[] = {
        {".rodata", SHT_PROGBITS, 0, 0, 0, container.p, container.n},
        {".nv_fatbin", SHT_PROGBITS, 0, 0, 0, container.p, container.n},
        {"__nv_relfatbin", SHT_PROGBITS, 0, 0, 0, container.p, container.n},
    };
    build_elf(&buf, &(struct build_elf){.machine = EM_X86_64, .type = ET_DYN}, sections, 3);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(3, seen.n);
    TEST_ASSERT_TRUE(seen.images[0].was_scanned);
    TEST_ASSERT_FALSE(seen.images[1].was_scanned);
    TEST_ASSERT_FALSE(seen.images[2].was_scanned);
    tl_buf_finish(&container);
}

static void a_cubin_file_is_one_image(void)
{
    build_cubin(&buf);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
    TEST_ASSERT_EQUAL_INT(TL_IMAGE_CUBIN, seen.images[0].kind);
    TEST_ASSERT_EQUAL_UINT32(90, seen.images[0].arch);
    TEST_ASSERT_EQUAL_size_t(buf.n, seen.images[0].stored_bytes);
    TEST_ASSERT_FALSE(seen.images[0].was_scanned);
}

static void a_cubin_that_stands_alone_in_junk_is_found(void)
{
    add_junk(13);
    build_cubin(&buf);
    size_t end = buf.n;
    add_junk(50);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
    TEST_ASSERT_EQUAL_size_t(13, seen.images[0].offset);
    TEST_ASSERT_EQUAL_size_t(end - 13, seen.images[0].stored_bytes);
    TEST_ASSERT_TRUE(seen.images[0].was_scanned);
}

static void a_file_without_images_gives_none(void)
{
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk("", 0, see, note_complaint, NULL));
    add_junk(1000);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(0, seen.n + seen.complaints);
}

/* --- memory as CUDA hands it over --- */

static void a_wrapper_leads_to_its_container(void)
{
    struct build_entry entry = ptx_entry();
    build_container(&buf, &entry, 1);
    uint64_t wrapper[3] = {UINT64_C(1) << 32 | 0x466243b1, (uintptr_t)buf.p, 0};
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk_memory(wrapper, SIZE_MAX, see, NULL, &err));
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
    TEST_ASSERT_EQUAL_PTR(buf.p + seen.images[0].offset, seen.images[0].bytes);
    TEST_ASSERT_EQUAL_MEMORY(ptx, seen.images[0].bytes, sizeof ptx);
}

static void a_wrapper_may_not_lead_out_of_the_limit(void)
{
    struct build_entry entry = ptx_entry();
    build_container(&buf, &entry, 1);
    uint64_t wrapper[3] = {UINT64_C(1) << 32 | 0x466243b1, (uintptr_t)buf.p, 0};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(wrapper, sizeof wrapper, see, NULL, &err));
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(wrapper, 20, see, NULL, &err));
    wrapper[1] = 0;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(wrapper, SIZE_MAX, see, NULL, &err));
    wrapper[1] = (uintptr_t)wrapper;
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(wrapper, sizeof wrapper, see, NULL, &err));
}

static void an_address_that_is_next_to_null_is_refused(void)
{
    for (uintptr_t at = 1; at < 4096; at = 2 * at + 1)
        TEST_ASSERT_EQUAL_INT(-EINVAL,
                              tl_image_walk_memory((const void *)at, SIZE_MAX, see, NULL, &err));
    uint64_t wrapper[3] = {UINT64_C(1) << 32 | 0x466243b1, 8, 0};
    TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(wrapper, SIZE_MAX, see, NULL, &err));
}

static void without_a_limit_the_images_own_sizes_hold(void)
{
    struct build_entry entry = ptx_entry();
    build_container(&buf, &entry, 1);
    void *copy = guarded_copy(buf.p, buf.n);
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
    guarded_free(copy, buf.n);

    tl_buf_finish(&buf);
    build_cubin(&buf);
    copy = guarded_copy(buf.p, buf.n);
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
    TEST_ASSERT_EQUAL_size_t(buf.n, seen.images[1].stored_bytes);
    guarded_free(copy, buf.n);

    copy = guarded_copy(ptx, sizeof ptx);
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
    TEST_ASSERT_EQUAL_size_t(sizeof ptx - 1, seen.images[2].stored_bytes);
    guarded_free(copy, sizeof ptx);
}

/* Nothing that an image says of its own length leads out of the memory that is there. */
static void without_a_limit_lies_about_sizes_are_found(void)
{
    static const uint64_t lies[] = {1 << 13, 1 << 20, UINT64_C(1) << 40, UINT64_MAX - 4096};
    struct build_entry entry = ptx_entry();
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        tl_buf_finish(&buf);
        build_container(&buf, &entry, 1);
        patch64(&buf, 8, lies[i]); /* what is behind the header */
        void *copy = guarded_copy(buf.p, buf.n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
        guarded_free(copy, buf.n);

        tl_buf_finish(&buf);
        build_cubin(&buf);
        patch64(&buf, offsetof(Elf64_Ehdr, e_shoff), lies[i]);
        copy = guarded_copy(buf.p, buf.n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
        patch16(&buf, offsetof(Elf64_Ehdr, e_shnum), 0); /* their number stands in the first */
        memcpy(copy, buf.p, buf.n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
        guarded_free(copy, buf.n);

        uint64_t wrapper[3] = {UINT64_C(1) << 32 | 0x466243b1, lies[i], 0};
        copy = guarded_copy(wrapper, sizeof wrapper);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
        guarded_free(copy, sizeof wrapper);
    }
    for (size_t n = 1; n < 24; n++) { /* headers that are cut off */
        static const char *const magics[] = {"\x50\xed\x55\xba", "\xb1\x43\x62\x46", "\177ELF"};
        for (size_t i = 0; i < 3; i++) {
            char bytes[24] = {0};
            memcpy(bytes, magics[i], 4);
            void *copy = guarded_copy(bytes, n);
            TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
            guarded_free(copy, n);
        }
    }
    TEST_ASSERT_EQUAL_UINT32(0, seen.n);
}

static void a_text_without_an_end_ends_with_its_memory(void)
{
    void *copy = guarded_copy(ptx, sizeof ptx - 1);
    TEST_ASSERT_EQUAL_INT(0, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
    TEST_ASSERT_EQUAL_size_t(sizeof ptx - 1, seen.images[0].stored_bytes);
    guarded_free(copy, sizeof ptx - 1);
}

static void short_texts_are_refused_without_reading_on(void)
{
    static const char *const texts[] = {"",          ".",      ".version", "// no end",
                                        "/* no end", "/* x *", "\x7f",     "\x50\xed"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        size_t n = strlen(texts[i]) + 1;
        void *copy = guarded_copy(texts[i], n);
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, SIZE_MAX, see, NULL, &err));
        TEST_ASSERT_EQUAL_INT(-EINVAL, tl_image_walk_memory(copy, n - 1, see, NULL, &err));
        guarded_free(copy, n);
    }
}

static void an_elf_for_a_host_is_refused_in_memory(void)
{
    build_elf(&buf, &(struct build_elf){.machine = EM_X86_64, .type = ET_DYN}, NULL, 0);
    TEST_ASSERT_EQUAL_INT(-EINVAL, walk_memory());
}

/* --- PTX text --- */

static void ptx_is_recognised_behind_comments(void)
{
    tl_buf_puts(&buf, "\n//\n// Generated by LLVM NVPTX Back-End\n//\n/* and\n more */ .version "
                      "7.8\n\t.target sm_90a, debug\n");
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_UINT32(1, seen.n);
    char name[16];
    const struct tl_image *image = &seen.images[0];
    TEST_ASSERT_EQUAL_INT(TL_IMAGE_PTX, image->kind);
    TEST_ASSERT_EQUAL_STRING("sm_90a", tl_image_arch_name(image, name));
    TEST_ASSERT_EQUAL_UINT16(7, image->version_major);
    TEST_ASSERT_EQUAL_UINT16(8, image->version_minor);
    TEST_ASSERT_EQUAL_size_t(buf.n, image->stored_bytes);
    TEST_ASSERT_FALSE(image->was_scanned);
}

static void ptx_ends_at_its_first_nul(void)
{
    tl_buf_add(&buf, ptx, sizeof ptx);
    tl_buf_add(&buf, "\0\0", 3);
    TEST_ASSERT_EQUAL_INT(0, walk());
    TEST_ASSERT_EQUAL_size_t(sizeof ptx - 1, seen.images[0].stored_bytes);
}

static void ptx_without_a_target_has_no_architecture(void)
{
    tl_buf_puts(&buf, ".version 8.3");
    TEST_ASSERT_EQUAL_INT(0, walk_memory());
    TEST_ASSERT_EQUAL_UINT32(0, seen.images[0].arch);
}

static void names_cover_every_kind_and_packing(void)
{
    for (int k = 0; k < TL_IMAGE_KINDS; k++)
        TEST_ASSERT_NOT_NULL(tl_image_kind_name((enum tl_image_kind)k));
    for (int p = 0; p < TL_IMAGE_PACKINGS; p++)
        TEST_ASSERT_NOT_NULL(tl_image_packing_name((enum tl_image_packing)p));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_container_gives_its_images_in_order);
    RUN_TEST(any_header_size_from_64_up_is_taken_from_its_field);
    RUN_TEST(options_and_source_name_are_read_and_trimmed);
    RUN_TEST(options_that_leave_the_header_are_none);
    RUN_TEST(a_source_name_that_leaves_the_header_is_none);
    RUN_TEST(an_empty_container_holds_nothing);
    RUN_TEST(sizes_that_do_not_fit_are_refused);
    RUN_TEST(a_cut_container_is_refused_without_reading_on);
    RUN_TEST(no_single_wrong_byte_leads_outside);
    RUN_TEST(a_container_is_found_at_any_place_in_junk);
    RUN_TEST(containers_are_numbered_through_the_file);
    RUN_TEST(a_container_within_a_payload_is_no_image_of_the_file);
    RUN_TEST(a_broken_container_is_told_and_the_next_one_found);
    RUN_TEST(a_magic_among_code_is_passed_in_silence);
    RUN_TEST(headers_that_lead_into_each_other_end_the_search);
    RUN_TEST(complaints_need_not_be_heard);
    RUN_TEST(the_visitor_can_stop_a_walk);
    RUN_TEST(a_section_for_fatbins_vouches_for_its_containers);
    RUN_TEST(a_cubin_file_is_one_image);
    RUN_TEST(a_cubin_that_stands_alone_in_junk_is_found);
    RUN_TEST(a_file_without_images_gives_none);
    RUN_TEST(a_wrapper_leads_to_its_container);
    RUN_TEST(a_wrapper_may_not_lead_out_of_the_limit);
    RUN_TEST(an_address_that_is_next_to_null_is_refused);
    RUN_TEST(without_a_limit_the_images_own_sizes_hold);
    RUN_TEST(without_a_limit_lies_about_sizes_are_found);
    RUN_TEST(a_text_without_an_end_ends_with_its_memory);
    RUN_TEST(short_texts_are_refused_without_reading_on);
    RUN_TEST(an_elf_for_a_host_is_refused_in_memory);
    RUN_TEST(ptx_is_recognised_behind_comments);
    RUN_TEST(ptx_ends_at_its_first_nul);
    RUN_TEST(ptx_without_a_target_has_no_architecture);
    RUN_TEST(names_cover_every_kind_and_packing);
    return UNITY_END();
}
