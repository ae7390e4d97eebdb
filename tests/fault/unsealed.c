/* unsealed.c - a journal's records whose checksums are always right: linked in with --wrap, in place of what compares
 * them. */
#include <stdlib.h>
#include <string.h>

#include "record.h"

bool __real_record_read(const uint8_t *bytes, uint64_t n, struct record *out);
bool __wrap_record_read(const uint8_t *bytes, uint64_t n, struct record *out);

bool __wrap_record_read(const uint8_t *bytes, uint64_t n, struct record *out)
{
    uint64_t synced, chain, ignored;
    if (n < RECORD_HEADER_BYTES)
        return false;
    struct record_id id = record_id_of(bytes);
    n = record_span(bytes, n);
    uint8_t *copy = malloc((size_t)n);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, (size_t)n);
    if (n > RECORD_HEADER_BYTES) {
        memcpy(&synced, bytes + 32, sizeof synced);
        memcpy(&chain, bytes + 40, sizeof chain);
        record_seal(copy, id.position, synced, chain, &ignored);
    }
    bool is_right = __real_record_read(copy, n, out);
    if (is_right)
        out->checksum = id.checksum;
    free(copy);
    return is_right;
}
