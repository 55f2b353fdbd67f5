/* The version, in everything that is built. Programs print it; libraries, which print nothing,
 * carry it as an ELF note, as does every program: `readelf -n FILE` shows one of the owner "Tally"
 * whose text is the version. A file that was left behind by another installation can so be told
 * from its neighbours.
 *
 * The number itself is in the file VERSION, from which version.h is made. */
#include "tally/base.h"

#include "version.h"

const char tl_version[] = TL_VERSION;

/* As the ELF specification wants it: three words, the owner and the text, each padded to a
 * multiple of four bytes. */
enum { NOTE_VERSION = 1 };

#define PADDED(text) ((sizeof(text) + 3) / 4 * 4)

__attribute__((section(".note.tally"), aligned(4), used)) static const struct {
    uint32_t owner_bytes, text_bytes, type;
    char owner[PADDED("Tally")], text[PADDED(TL_VERSION)];
} note = {sizeof "Tally", sizeof TL_VERSION, NOTE_VERSION, "Tally", TL_VERSION};
