/* seal.c - see seal.h. */
#include "proto/seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "embd/embd.h"

/* How a text with a checksum ends, in place of "\n}". */
#define SEAL       ",\n \"xxh3\": \"%016" PRIx64 "\"\n}"
#define SEAL_BYTES (sizeof ",\n \"xxh3\": \"0123456789abcdef\"\n}" - 1)

char *embd__seal(json_t *object)
{
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(1));
    size_t n = text == NULL ? 0 : strlen(text) - strlen("\n}");
    char *sealed = text == NULL ? NULL : malloc(n + SEAL_BYTES + 1);
    if (sealed != NULL) {
        memcpy(sealed, text, n);
        snprintf(sealed + n, SEAL_BYTES + 1, SEAL, (uint64_t)XXH3_64bits(text, n));
    }
    free(text);
    json_decref(object);
    return sealed;
}

bool embd__is_sealed(const char *text, size_t n, const char *what, struct embd__error *e)
{
    char expected[SEAL_BYTES + 1];
    if (n > 0 && text[n - 1] == '\n')
        n--;
    if (n <= SEAL_BYTES)
        return false;
    n -= SEAL_BYTES;
    uint64_t xxh3 = XXH3_64bits(text, n);
    snprintf(expected, sizeof expected, SEAL, xxh3);
    size_t digits = (size_t)(strchr(expected, ':') + 3 - expected);
    if (memcmp(text + n, expected, digits) != 0 ||
        memcmp(text + n + digits + 16, expected + digits + 16, SEAL_BYTES - digits - 16) != 0)
        return false;
    if (memcmp(text + n, expected, SEAL_BYTES) != 0)
        embd__error_set(e, EMBD_CORRUPT, "%s's checksum is '%.16s', its text has %016" PRIx64, what,
                        text + n + digits, xxh3);
    return true;
}
