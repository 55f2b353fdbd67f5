/* In a child: what kernels print. */
#ifndef TALLY_RUNTIME_DOCTOR_LINES_H
#define TALLY_RUNTIME_DOCTOR_LINES_H

#include "runtime/doctor/kernels.h"

/* Makes standard output a file in memory, from which the lines are read; -1 if that fails. */
int tl_doc_lines_open(void);
void tl_doc_lines_clear(int lines);
/* Whether each of so many blocks has printed TL_DOC_LINE and its number, once. */
bool tl_doc_lines_are_whole(int lines, uint32_t blocks);

#endif
