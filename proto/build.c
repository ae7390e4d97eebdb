/* build.c - builds messages.
 *
 * What build.h does not write into the head itself, msgpack-c packs into it; the head grows, and is
 * kept for the next message. The payload of a bin is only remembered: its place in the head, its
 * length, its address.
 *
 * What can fail: memory, and a message that no peer would accept: too long a head, too many bins.
 * Both stay in m->status, later calls do nothing, and embd__msg_end returns it. */
#include "proto/message.h"
#include "proto/assert.h"
#include "proto/little.h"

#include <stdlib.h>
#include <string.h>

void embd__msg_init(struct msg *m)
{
    memset(m, 0, sizeof *m);
}

void embd__msg_fini(struct msg *m)
{
    free(m->has_lent_head ? NULL : m->head);
    free(m->has_lent_bins ? NULL : m->bins);
    free(m->own);
    memset(m, 0, sizeof *m);
}

void embd__msg_lend(struct msg *m, uint8_t *head, uint32_t head_bytes, struct msg_bin *bins,
                    uint32_t n_bins)
{
    EMBD_ASSERT(m->head == NULL && m->bins == NULL);
    m->head = head;
    m->head_capacity = head_bytes;
    m->bins = bins;
    m->bins_capacity = n_bins;
    m->has_lent_head = m->has_lent_bins = true;
}

/* ---- room ---- */

/* `used` bytes of what it was are kept. */
static void *grow(void *was, bool *is_lent, size_t used, size_t bytes)
{
    void *memory = realloc(*is_lent ? NULL : was, bytes);
    if (memory != NULL && *is_lent && used > 0)
        memcpy(memory, was, used);
    *is_lent = *is_lent && memory == NULL;
    return memory;
}

static bool grow_head(struct msg *m, size_t bytes)
{
    if (bytes > LIMIT_ANSWER_HEADER_BYTES - m->head_bytes) {
        m->status = EMBD_TOO_LARGE;
        return false;
    }
    uint32_t needed = m->head_bytes + (uint32_t)bytes;
    uint32_t capacity = m->head_capacity ? m->head_capacity : 256;
    while (capacity < needed)
        capacity *= 2;
    uint8_t *head = grow(m->head, &m->has_lent_head, m->head_bytes, capacity);
    if (head == NULL) {
        m->status = EMBD_NO_MEMORY;
        return false;
    }
    m->head = head;
    m->head_capacity = capacity;
    return true;
}

/* msgpack-c's way to write. */
static int append(void *arg, const char *bytes, size_t n)
{
    struct msg *m = arg;
    if (m->status != EMBD_OK)
        return -1;
    if (!embd__msg_fits(m, n) && !grow_head(m, n))
        return -1;
    memcpy(m->head + m->head_bytes, bytes, n);
    m->head_bytes += (uint32_t)n;
    return 0;
}

static bool grow_bins(struct msg *m, uint32_t n)
{
    uint32_t capacity = m->bins_capacity ? m->bins_capacity : 8;
    while (capacity < m->n_bins + n)
        capacity *= 2;
    struct msg_bin *bins =
        grow(m->bins, &m->has_lent_bins, m->n_bins * sizeof *bins, capacity * sizeof *bins);
    if (bins == NULL) {
        m->status = EMBD_NO_MEMORY;
        return false;
    }
    m->bins = bins;
    m->bins_capacity = capacity;
    return true;
}

static void add_piece(struct msg *m, const void *data, uint64_t bytes)
{
    if (m->status != EMBD_OK || (m->n_bins == m->bins_capacity && !grow_bins(m, 1)))
        return;
    m->bins[m->n_bins++] = (struct msg_bin){.at = m->head_bytes, .bytes = bytes, .data = data};
}

int embd__msg_grow(struct msg *m, uint32_t head_bytes, uint32_t n_bins)
{
    if (m->status == EMBD_OK && head_bytes > m->head_capacity - m->head_bytes)
        grow_head(m, head_bytes);
    if (m->status == EMBD_OK && n_bins > m->bins_capacity - m->n_bins)
        grow_bins(m, n_bins);
    return m->status;
}

/* ---- values ---- */

static msgpack_packer packer(struct msg *m)
{
    return (msgpack_packer){.data = m, .callback = append};
}

void embd__msg_long_map(struct msg *m, uint32_t n_fields)
{
    msgpack_packer p = packer(m);
    msgpack_pack_map(&p, n_fields);
}

void embd__msg_long_array(struct msg *m, uint32_t n)
{
    msgpack_packer p = packer(m);
    msgpack_pack_array(&p, n);
}

void embd__msg_long_str(struct msg *m, const char *text, size_t bytes)
{
    msgpack_packer p = packer(m);
    msgpack_pack_str(&p, bytes);
    if (bytes > 0)
        msgpack_pack_str_body(&p, text, bytes);
}

void embd__msg_long_uint(struct msg *m, uint64_t value)
{
    msgpack_packer p = packer(m);
    msgpack_pack_uint64(&p, value);
}

void embd__msg_long_field_uint(struct msg *m, const char *name, uint64_t value)
{
    embd__msg_str(m, name);
    embd__msg_uint(m, value);
}

void embd__msg_bool(struct msg *m, bool value)
{
    msgpack_packer p = packer(m);
    if (value)
        msgpack_pack_true(&p);
    else
        msgpack_pack_false(&p);
}

void embd__msg_f32(struct msg *m, float value)
{
    msgpack_packer p = packer(m);
    msgpack_pack_double(&p, (double)value);
}

void embd__msg_field_bool(struct msg *m, const char *name, bool value)
{
    embd__msg_str(m, name);
    embd__msg_bool(m, value);
}

void embd__msg_field_f32(struct msg *m, const char *name, float value)
{
    embd__msg_str(m, name);
    embd__msg_f32(m, value);
}

void embd__msg_field_str(struct msg *m, const char *name, const char *text)
{
    embd__msg_str(m, name);
    embd__msg_str(m, text);
}

void embd__msg_bin_begin(struct msg *m, uint64_t bytes)
{
    if (m->status != EMBD_OK)
        return;
    if (bytes > m->limit || m->n_whole == LIMIT_ANSWER_BINS) {
        m->status = EMBD_TOO_LARGE;
        return;
    }
    msgpack_packer p = packer(m);
    msgpack_pack_bin(&p, (size_t)bytes);
    m->n_whole++;
}

void embd__msg_bin_shared(struct msg *m, uint64_t at, uint64_t bytes)
{
    uint8_t body[SHARED_BIN_BYTES];
    msgpack_packer p = packer(m);
    embd__put_u64(body, at);
    embd__put_u64(body + 8, bytes);
    m->names_shared = true;
    msgpack_pack_ext(&p, sizeof body, SHARED_BIN_TYPE);
    msgpack_pack_ext_body(&p, body, sizeof body);
    m->n_whole++;
}

static bool is_shared(const struct msg *m, const void *data, uint64_t bytes)
{
    uintptr_t at = (uintptr_t)data - (uintptr_t)m->shared.base;
    return m->shared.base != NULL && bytes >= SHARED_LEAST_BYTES && bytes <= m->shared.bytes &&
           at <= m->shared.bytes - bytes;
}

void embd__msg_bin_piece(struct msg *m, const void *data, uint64_t bytes)
{
    add_piece(m, data, bytes);
}

void embd__msg_bin(struct msg *m, const void *data, uint64_t bytes)
{
    if (is_shared(m, data, bytes)) {
        embd__msg_bin_shared(m, (uint64_t)((const uint8_t *)data - m->shared.base), bytes);
        return;
    }
    embd__msg_bin_begin(m, bytes);
    add_piece(m, data, bytes);
}

void *embd__msg_own(struct msg *m, uint32_t bytes)
{
    if (m->status == EMBD_OK && bytes > m->own_capacity) {
        uint8_t *own = realloc(m->own, bytes);
        m->own = own != NULL ? own : m->own;
        m->own_capacity = own != NULL ? bytes : m->own_capacity;
        m->status = own != NULL ? EMBD_OK : EMBD_NO_MEMORY;
    }
    return m->status == EMBD_OK ? m->own : NULL;
}

/* ---- messages ---- */

static void begin(struct msg *m, uint32_t n_elements, uint32_t type)
{
    m->limit = LIMIT_FRAME_BYTES;
    m->head_bytes = 0;
    m->n_bins = m->n_whole = 0;
    m->count_at = 0;
    m->shared.base = NULL;
    m->names_shared = false;
    m->status = EMBD_OK;
    embd__msg_array(m, n_elements);
    embd__msg_uint(m, type);
}

/* The array of a map and bins. Its count is known at the end, so it has room for 16 bits. */
static void begin_items(struct msg *m)
{
    static const char array16[3] = "\xdc\0\0";
    append(m, array16, sizeof array16);
    m->count_at = m->head_bytes - 2;
}

static void pack_nil(struct msg *m)
{
    msgpack_packer p = packer(m);
    msgpack_pack_nil(&p);
}

/* [number, text]; the text is cut to what an error may hold. */
static void pack_error(struct msg *m, int status, const char *text)
{
    EMBD_ASSERT(status < 0);
    embd__msg_array(m, 2);
    embd__msg_uint(m, (uint64_t)(-status));
    embd__msg_long_str(m, text, strnlen(text, LIMIT_ERROR_TEXT - 1));
}

void embd__msg_request(struct msg *m, uint32_t msgid, enum method method)
{
    begin(m, 4, 0);
    m->limit = method == METHOD_PUSH ? LIMIT_PUSH_BYTES : LIMIT_FRAME_BYTES;
    embd__msg_uint(m, msgid);
    embd__msg_str(m, embd__method_name(method));
    begin_items(m);
}

void embd__msg_notice(struct msg *m, enum method method)
{
    begin(m, 3, 2);
    m->limit = method == METHOD_PUSH ? LIMIT_RECORD_BYTES : LIMIT_FRAME_BYTES;
    embd__msg_str(m, embd__method_name(method));
    begin_items(m);
}

void embd__msg_result(struct msg *m, uint32_t msgid)
{
    begin(m, 4, 1);
    embd__msg_uint(m, msgid);
    pack_nil(m);
    begin_items(m);
}

void embd__msg_error(struct msg *m, uint32_t msgid, int status, const char *text)
{
    begin(m, 4, 1);
    embd__msg_uint(m, msgid);
    pack_error(m, status, text);
    pack_nil(m);
}

void embd__msg_error_notice(struct msg *m, int status, const char *text)
{
    begin(m, 3, 2);
    embd__msg_str(m, "error");
    pack_error(m, status, text);
}

int embd__msg_end(struct msg *m)
{
    if (m->status == EMBD_OK && embd__msg_bytes(m) > m->limit)
        m->status = EMBD_TOO_LARGE;
    if (m->status == EMBD_OK && m->count_at > 0) {
        uint32_t n_items = 1 + m->n_whole;
        m->head[m->count_at] = (uint8_t)(n_items >> 8);
        m->head[m->count_at + 1] = (uint8_t)n_items;
    }
    return m->status;
}

/* Bytes of the length in a bin's header. */
static uint32_t length_bytes(uint64_t bytes)
{
    return bytes < 256 ? 1 : bytes < 65536 ? 2 : 4;
}

/* A bin's length, which stands in front of it, becomes 0. */
static void empty_bin(struct msg *m, const struct frame_bin *bin)
{
    uint32_t n = length_bytes(bin->bytes);
    memset(m->head + bin->at - n, 0, n);
}

void embd__msg_frame(struct msg *m, struct frame_scanner *out)
{
    EMBD_ASSERT(m->status == EMBD_OK && m->n_whole <= LIMIT_BINS);
    out->head = m->head;
    out->head_bytes = out->head_capacity = m->head_bytes;
    out->frame_limit = m->limit;
    out->frame_bytes = embd__msg_bytes(m);
    out->type = m->head[1];
    out->has_msgid = out->type != 2;
    out->pieces = m->bins;
    out->n_pieces = m->n_bins;
    out->n_bins = 0;
    for (uint32_t i = 0; i < m->n_bins; i++) {
        const struct msg_bin *piece = &m->bins[i];
        if (i == 0 || piece->at != m->bins[i - 1].at)
            out->bins[out->n_bins++] = (struct frame_bin){.at = piece->at};
        struct frame_bin *bin = &out->bins[out->n_bins - 1];
        bin->data = bin->bytes == 0 ? (uint8_t *)(uintptr_t)piece->data : NULL;
        bin->bytes += (uint32_t)piece->bytes;
    }
    EMBD_ASSERT(out->n_bins == m->n_whole);
    for (uint32_t i = 0; i < out->n_bins; i++)
        empty_bin(m, &out->bins[i]);
}

/* ---- sending ---- */

uint64_t embd__msg_bytes(const struct msg *m)
{
    uint64_t bytes = m->head_bytes;
    for (uint32_t i = 0; i < m->n_bins; i++)
        bytes += m->bins[i].bytes;
    return bytes;
}

uint32_t embd__msg_pieces_before_last(const struct msg *m)
{
    uint32_t first = m->n_bins - 1;
    while (first > 0 && m->bins[first - 1].at == m->bins[first].at)
        first--;
    return 2 * first + 1;
}
