/* What libraries of ours say on standard error inside of other people's processes.  libc only. */
#ifndef TALLY_TELL_H
#define TALLY_TELL_H

#include <stddef.h>

/* Writes it as a whole, or not at all: who reads there and is gone is no signal to the program, nor
 * is a limit of the size of files, and one who does not read is waited for for a tenth of a second
 * once.  Nothing is written if the process was started without standard error: that number is a
 * file of the program then.  errno stays. */
void tl_tell(const char *text, size_t n);

#endif
