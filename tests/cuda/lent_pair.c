/* lent_pair.c - see lent_pair.h. */
#include "tests/cuda/lent_pair.h"

void *lent_new(const struct pair *pair, const void *from, uint64_t bytes)
{
    void *memory = NULL, *stream = pair->store->stream;
    assert_int_equal(device_new(&memory, bytes + 1, stream), 0);
    int status =
        from ? device_copy(memory, from, bytes, stream) : device_fill(memory, 0, bytes, stream);
    assert_int_equal(status, 0);
    assert_int_equal(device_stream_wait(stream), 0);
    return memory;
}

void lent_free(const struct pair *pair, void *memory)
{
    device_free(memory, pair->store->stream);
}

void lent_spoil(const struct pair *pair, void *memory, uint64_t bytes)
{
    assert_int_equal(device_fill(memory, 0xff, bytes, pair->store->stream), 0);
}

void lent_fetch(const struct pair *pair, void *to, const void *memory, uint64_t bytes)
{
    assert_int_equal(device_copy(to, memory, bytes, pair->store->stream), 0);
    assert_int_equal(device_stream_wait(pair->store->stream), 0);
}

void lent_await(const struct pair *pair, const struct outcome *outcome)
{
    while (outcome->calls == 0)
        pair->ops->collect(pair->store);
}

struct store_keys lent_keys(const uint64_t *keys, uint32_t n)
{
    return (struct store_keys){.n_keys = n, .n_rows = n, .keys = keys, .on_device = true};
}
