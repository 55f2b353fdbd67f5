/* Recognises PTX text by its first directives.  CUDA is handed PTX without a length or a kind, so
 * the only way to know is to look: comments, then `.version`, then `.target`.  The PTX library does
 * the reading; this is only the label on the box. */
#include "image/internal.h"

/* A reader that never passes the end or a NUL; at either it sees 0 for ever. */
struct cursor {
    const char *p;
    size_t n;
};

static char peek(const struct cursor *c)
{
    return c->n > 0 ? *c->p : 0;
}

static void advance(struct cursor *c)
{
    if (peek(c) != 0) {
        c->p++;
        c->n--;
    }
}

static bool is_blank(char ch)
{
    return ch == ' ' || (ch >= '\t' && ch <= '\r');
}

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

/* Passes the word if it stands here. */
static bool accept(struct cursor *c, const char *word)
{
    struct cursor at = *c;
    for (; *word != 0; word++) {
        if (peek(&at) != *word)
            return false;
        advance(&at);
    }
    *c = at;
    return true;
}

/* Passes blanks and comments. */
static void skip_space(struct cursor *c)
{
    for (;;) {
        if (is_blank(peek(c))) {
            advance(c);
        } else if (accept(c, "//")) {
            while (peek(c) != '\n' && peek(c) != 0)
                advance(c);
        } else if (accept(c, "/*")) {
            while (!accept(c, "*/") && peek(c) != 0)
                advance(c);
        } else {
            return;
        }
    }
}

/* Passes digits; numbers of more than four are none that mean anything here. */
static uint16_t number(struct cursor *c)
{
    uint16_t v = 0;
    for (int digits = 0; digits < 4 && is_digit(peek(c)); digits++) {
        v = (uint16_t)(v * 10 + (peek(c) - '0'));
        advance(c);
    }
    return v;
}

bool tl__text_describe(const void *bytes, size_t n, struct tl_image *image)
{
    if (n == SIZE_MAX)
        n = tl__text_room(bytes);
    struct cursor c = {bytes, n};
    skip_space(&c);
    if (!accept(&c, ".version"))
        return false;
    skip_space(&c);
    if (!is_digit(peek(&c)))
        return false;

    *image = (struct tl_image){.kind = TL_IMAGE_PTX, .packing = TL_IMAGE_PLAIN, .bytes = bytes};
    image->version_major = number(&c);
    if (accept(&c, "."))
        image->version_minor = number(&c);
    skip_space(&c);
    if (accept(&c, ".target")) {
        skip_space(&c);
        if (accept(&c, "sm_") || accept(&c, "compute_")) {
            image->arch = number(&c);
            image->is_arch_specific = peek(&c) == 'a';
            image->is_family_specific = peek(&c) == 'f';
        }
    }
    image->stored_bytes = image->full_bytes = strnlen(bytes, n);
    return true;
}
