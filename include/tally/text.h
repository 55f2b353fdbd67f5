/* Numbers as people read them, and texts as HTML and terminals take them.  libc only. */
#ifndef TALLY_TEXT_H
#define TALLY_TEXT_H

#include "tally/base.h"

struct tl_text {
    char s[48];
};

/* Three digits and a unit. */
struct tl_text tl_text_time(double ns);      /* "12.3 us" */
struct tl_text tl_text_count(double n);      /* "1,234" or "12.3 M" */
struct tl_text tl_text_bytes(double n);      /* "3.60 MB" */
struct tl_text tl_text_percent(double part); /* of 1: "3.1 %" */
/* Every digit: "13,495". */
struct tl_text tl_text_digits(uint64_t n);
/* Rounded down, so that "100.0 %" is all of it; of nothing it is "-".  part * 1000 must not exceed
 * 64 bits. */
struct tl_text tl_text_share(uint64_t part, uint64_t whole);

/* Adds a text such that it stays a text, between tags and in quoted attributes. */
void tl_text_html(struct tl_buf *out, const char *text);

/* Bytes of the well-formed UTF-8 sequence that begins there, 0 if there is none (Unicode, table
 * 3-7: no overlong forms, no surrogates, nothing above U+10FFFF).  At least one byte is there. */
size_t tl_text_utf8(const char *text, size_t n);
/* What a terminal could obey becomes question marks, one for each byte: control characters (C0, DEL
 * and C1) and what is no UTF-8.  `has_lines`: line ends and tabs are left. */
void tl_text_clean(char *text, size_t n, bool has_lines);

#endif
