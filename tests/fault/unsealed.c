/* unsealed.c - a journal's records whose checksums are always right: linked in with --wrap, in
 * place of what compares them. */
#include <stdlib.h>
#include <string.h>

#include "server/journal/record.h"

bool __real_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);
bool __wrap_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);

bool __wrap_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out)
{
    uint64_t ignored;
    struct record fields;
    if (n < RECORD_HEADER_BYTES)
        return false;
    n = record_span(bytes, n);
    uint8_t *copy = malloc((size_t)n);
    if (copy == NULL)
        abort();
    memcpy(copy, bytes, (size_t)n);
    record_fields(bytes, &fields);
    if (n > RECORD_HEADER_BYTES)
        record_seal(copy, key, fields.position, fields.synced, fields.chain, &ignored);
    bool is_right = __real_record_read(key, copy, n, out);
    if (is_right)
        out->checksum = fields.checksum;
    free(copy);
    return is_right;
}
