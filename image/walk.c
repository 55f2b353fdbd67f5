/* The walk over a file that tells how each image was found: by a section, for which libelf is
 * asked, or by its magic only.  Apart from the search itself, because not everybody links libelf.
 */
#include "image/internal.h"

enum { MAX_SECTIONS = 64 };

int tl_image_walk(const void *bytes, size_t n, tl_image_visitor visit, tl_image_complaint complain,
                  void *data)
{
    struct tl__range sections[MAX_SECTIONS];
    size_t n_sections = tl__elf_fatbin_sections(bytes, n, sections, MAX_SECTIONS);
    return tl__image_scan(bytes, n, sections, n_sections, visit, complain, data);
}
