/* fuzz_trunk.c - chunks of a trunk, from a client and from a server, in pieces: every byte is used
 * once, nothing is read beyond what came, and a chunk that is taken is one that may come. */
#include "proto/assert.h"
#include "proto/trunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte is the length of pieces. */
static void read_all(bool from_client, const uint8_t *data, size_t size)
{
    struct trunk_reader r = {.left = 0};
    struct embd__error e = {0};
    size_t piece = 1 + data[0] % 32u, used, payload = 0;
    for (size_t at = 1; at < size; at += used) {
        size_t n = size - at < piece ? size - at : piece;
        int event = embd__trunk_read(&r, from_client, data + at, n, &used, &e);
        EMBD_ASSERT(used > 0 && used <= n);
        if (event < 0) {
            EMBD_ASSERT(event == EMBD_PROTOCOL && e.status == EMBD_PROTOCOL);
            return;
        }
        if (event == TRUNK_CHUNK) {
            EMBD_ASSERT(r.chunk.kind >= TRUNK_OPEN && r.chunk.kind <= TRUNK_CREDIT);
            EMBD_ASSERT(embd__trunk_slot(r.chunk.stream) < TRUNK_SLOTS && payload == 0);
            EMBD_ASSERT(from_client ? r.chunk.kind != TRUNK_CREDIT : r.chunk.kind != TRUNK_OPEN);
            payload = r.chunk.kind == TRUNK_DATA ? r.chunk.value : 0;
            EMBD_ASSERT(payload <= TRUNK_DATA_BYTES);
        } else if (event == TRUNK_BYTES) {
            EMBD_ASSERT(used <= payload);
            payload -= used;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        read_all(true, data, size);
        read_all(false, data, size);
    }
    return 0;
}
