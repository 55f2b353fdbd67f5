/* A good record, which fuzz targets change or take as it is. */
#ifndef TALLY_TEST_FUZZ_GOOD_RECORD_H
#define TALLY_TEST_FUZZ_GOOD_RECORD_H

#include <stddef.h>

/* Its bytes, in memory of exactly that size; made at the first call, by way of a file. */
unsigned char *good_record(size_t *n);

#endif
