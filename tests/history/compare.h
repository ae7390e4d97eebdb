/* compare.h - a dump directory held against an image: every row, state, candidate and step, bit for
 * bit. Reads the files by what proto/partfile.h and OPERATING.md say of them, with no code of the
 * project's. */
#ifndef EMBD_TESTS_COMPARE_H
#define EMBD_TESTS_COMPARE_H

#include <stddef.h>

#include "tests/history/image.h"

/* false: `why` names the first difference. */
bool compare_dump(const char *dir, const struct image *image, char *why, size_t why_bytes);

#endif
