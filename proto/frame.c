/* frame.c - the frame scanner: a MessagePack parser that keeps nothing but a small stack of counts.
 *
 * Bytes belong to one of three things, and the scanner is always inside exactly one of them:
 *   a token   the type byte of an item and the bytes of fixed number that follow it: a length, a
 * value. Gathered in s->token, so that it may arrive split at any place, and copied to the head
 * when complete; a body    the rest of a str or ext, s->want bytes, copied to the head as they
 * come; a bin     taken by the caller, after FRAME_BIN. A complete item counts against the
 * container it stands in; a container whose count falls to zero is itself a complete item of the
 * one around it; when the outermost is complete, so is the message.
 *
 * The outermost array is checked as its elements pass: [0, msgid, method, params], [1, msgid,
 * error, result], [2, method, params]. What the elements mean beyond that is the reader's business
 * (read.c). */
#include "proto/frame.h"
#include "proto/little.h"

#include <string.h>

enum { FIXEXT16 = 0xd8 };
enum { TYPE_REQUEST = 0, TYPE_RESPONSE = 1, TYPE_NOTIFICATION = 2 };

bool embd__frame_over(const struct frame_scanner *s)
{
    return s->frame_bytes > s->frame_limit;
}

/* ---- tokens ---- */

/* Bytes of the token that begins with `byte`, 0 for the one byte that begins nothing. */
static uint32_t token_size(uint8_t byte)
{
    static const uint8_t sizes[32] = {
        1, 0, 1, 1,    /* nil, never used, false, true */
        2, 3, 5,       /* bin 8, 16, 32: length */
        3, 4, 6,       /* ext 8, 16, 32: length, type */
        5, 9,          /* float 32, 64 */
        2, 3, 5, 9,    /* uint 8 .. 64 */
        2, 3, 5, 9,    /* int 8 .. 64 */
        2, 2, 2, 2, 2, /* fixext 1 .. 16: type */
        2, 3, 5,       /* str 8, 16, 32 */
        3, 5,          /* array 16, 32 */
        3, 5,          /* map 16, 32 */
    };
    return byte >= 0xc0 && byte <= 0xdf ? sizes[byte - 0xc0] : 1;
}

/* The big-endian number of `n` bytes that follows the type byte. */
static uint64_t token_number(const struct frame_scanner *s, uint32_t n)
{
    uint64_t value = 0;
    for (uint32_t i = 1; i <= n; i++)
        value = value << 8 | s->token[i];
    return value;
}

/* The value of a token that is an integer; false for any other, and for negative ones. */
static bool token_uint(const struct frame_scanner *s, uint64_t *value_out)
{
    uint8_t byte = s->token[0];
    if (byte <= 0x7f) {
        *value_out = byte;
        return true;
    }
    if (byte < 0xcc || byte > 0xd3)
        return false;
    *value_out = token_number(s, s->token_want - 1);
    bool is_signed = byte >= 0xd0;
    return !is_signed || s->token[1] < 0x80;
}

static int take_room(struct frame_scanner *s, uint64_t bytes, struct embd__error *e)
{
    if (bytes > s->head_capacity - s->head_bytes)
        return embd__error_set(
            e, EMBD_TOO_LARGE,
            "the message without its bins has %llu bytes or more, the limit is %u",
            (unsigned long long)(s->head_bytes + bytes), s->head_capacity);
    return EMBD_OK;
}

static int copy_token(struct frame_scanner *s, struct embd__error *e)
{
    int status = take_room(s, s->token_want, e);
    if (status != EMBD_OK)
        return status;
    memcpy(s->head + s->head_bytes, s->token, s->token_want);
    s->head_bytes += s->token_want;
    s->frame_bytes += s->token_want;
    return EMBD_OK;
}

/* ---- what it is ---- */

enum { ELEMENTS_TO_METHOD = 3 }; /* type, msgid, method */

bool embd__frame_is_request(const struct frame_scanner *s, const char *method)
{
    const uint8_t *at = s->head;
    size_t n = strlen(method);
    if (s->type != TYPE_REQUEST || s->item < ELEMENTS_TO_METHOD)
        return false;
    at += token_size(at[0]); /* the array's */
    at += token_size(at[0]);
    at += token_size(at[0]);
    return at[0] == (0xa0 | n) && memcmp(at + 1, method, n) == 0;
}

/* ---- the outermost array ---- */

static int check_type(struct frame_scanner *s, struct embd__error *e)
{
    uint64_t type, count = s->stack[0].left;
    if (!token_uint(s, &type) || type > TYPE_NOTIFICATION)
        return embd__error_set(e, EMBD_MALFORMED,
                               "the message type begins with byte 0x%02x, expected 0, 1 or 2",
                               s->token[0]);
    uint32_t expected = type == TYPE_NOTIFICATION ? 3 : 4;
    if (count != expected)
        return embd__error_set(e, EMBD_MALFORMED,
                               "a message of type %u has %u elements, expected %u", (unsigned)type,
                               (unsigned)count, expected);
    s->type = (int)type;
    return EMBD_OK;
}

static int check_msgid(struct frame_scanner *s, struct embd__error *e)
{
    uint64_t msgid;
    if (!token_uint(s, &msgid))
        return embd__error_set(e, EMBD_MALFORMED,
                               "the msgid begins with byte 0x%02x, expected an unsigned integer",
                               s->token[0]);
    if (msgid > UINT32_MAX)
        return embd__error_set(e, EMBD_MALFORMED, "the msgid is %llu, the limit is %u",
                               (unsigned long long)msgid, UINT32_MAX);
    s->msgid = (uint32_t)msgid;
    s->has_msgid = true;
    return EMBD_OK;
}

/* The first byte shows whether this is a message at all; no need to wait for more. */
static int check_first_byte(uint8_t byte, struct embd__error *e)
{
    if ((byte & 0xf0) == 0x90 || byte == 0xdc || byte == 0xdd)
        return EMBD_OK; /* its count is checked by open_container, then against the type */
    return embd__error_set(
        e, EMBD_MALFORMED,
        "the message begins with byte 0x%02x, expected an array of 3 or 4 elements", byte);
}

/* Looks at a complete token that stands directly in the outermost array. */
static int check_outermost(struct frame_scanner *s, struct embd__error *e)
{
    if (s->depth == 1 && s->item == 0)
        return check_type(s, e);
    if (s->depth == 1 && s->item == 1 && s->type != TYPE_NOTIFICATION)
        return check_msgid(s, e);
    return EMBD_OK;
}

/* ---- items ---- */

/* An item is complete: so may be the containers it ends. */
static void end_item(struct frame_scanner *s)
{
    while (s->depth > 0) {
        if (s->depth == 1)
            s->item++;
        if (--s->stack[s->depth - 1].left > 0)
            return;
        s->depth--;
    }
}

static int open_container(struct frame_scanner *s, uint64_t count, bool is_map,
                          struct embd__error *e)
{
    const char *what = is_map ? "a map" : "an array";
    uint64_t elements = is_map ? 2 * count : count;
    if (s->depth == 0 && count != 3 && count != 4)
        return embd__error_set(e, EMBD_MALFORMED, "the message has %llu elements, expected 3 or 4",
                               (unsigned long long)count);
    if (elements > LIMIT_ELEMENTS)
        return embd__error_set(e, EMBD_TOO_LARGE, "%s has %llu elements, the limit is %u", what,
                               (unsigned long long)elements, LIMIT_ELEMENTS);
    if (s->depth == LIMIT_DEPTH)
        return embd__error_set(e, EMBD_TOO_LARGE, "%s is nested %u deep, the limit is %u", what,
                               LIMIT_DEPTH + 1, LIMIT_DEPTH);
    int status = copy_token(s, e);
    if (status != EMBD_OK)
        return status;
    if (elements == 0) {
        end_item(s);
        return EMBD_OK;
    }
    s->stack[s->depth].left = (uint32_t)elements;
    s->stack[s->depth].is_map = is_map;
    s->depth++;
    return EMBD_OK;
}

/* A str or ext: its token, then `bytes` of body. */
static int open_body(struct frame_scanner *s, uint64_t bytes, struct embd__error *e)
{
    int status = copy_token(s, e);
    if (status == EMBD_OK)
        status = take_room(s, bytes, e);
    if (status != EMBD_OK)
        return status;
    s->want = (uint32_t)bytes;
    if (bytes == 0)
        end_item(s);
    return EMBD_OK;
}

/* Clients of the MessagePack before bin, such as msgpack-rpc-python, pack bytes as str. Directly in
 * params, a request has a map and bins alone, so a str there is a bin. */
static bool is_bin_as_str(const struct frame_scanner *s)
{
    return s->depth == 2 && s->type == TYPE_REQUEST && s->item == 3 && !s->stack[1].is_map;
}

/* A bin, or a str that is one: its header is emptied on the way into the head, as a bin's. */
static int open_bin(struct frame_scanner *s, uint32_t bytes, struct embd__error *e)
{
    uint32_t limit = s->more != NULL ? LIMIT_ANSWER_BINS : LIMIT_BINS;
    if (s->n_bins == limit)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "the message has %u bins or more, the limit is %u", limit + 1,
                               limit);
    if (s->token_want == 1)
        s->token[0] &= 0xe0;
    memset(s->token + 1, 0, s->token_want - 1);
    int status = copy_token(s, e);
    if (status != EMBD_OK)
        return status;
    *embd__frame_bin(s, s->n_bins++) =
        (struct frame_bin){.at = s->head_bytes, .bytes = bytes, .data = NULL};
    s->bin_bytes = bytes;
    s->frame_bytes += bytes;
    end_item(s);
    return FRAME_BIN;
}

/* Directly in the params of a request, or in the result of an answer: where bins stand. */
static bool is_shared_bin(const struct frame_scanner *s)
{
    return s->takes_shared && s->token[0] == FIXEXT16 && s->token[1] == SHARED_BIN_TYPE &&
           s->depth == 2 && s->item == 3 && !s->stack[1].is_map;
}

/* Its body does not go into the head. */
static int open_shared(struct frame_scanner *s)
{
    s->frame_bytes += SHARED_BIN_BYTES - 3; /* what its bytes have more than a bin's header */
    s->is_shared = true;
    s->shared_bytes = 0;
    s->want = SHARED_BIN_BYTES;
    return FRAME_MORE;
}

static int open_str(struct frame_scanner *s, uint32_t bytes, struct embd__error *e)
{
    return is_bin_as_str(s) ? open_bin(s, bytes, e) : open_body(s, bytes, e);
}

/* The token is complete. Returns FRAME_MORE, FRAME_BIN or an error. */
static int take_token(struct frame_scanner *s, struct embd__error *e)
{
    int status = check_outermost(s, e);
    if (status != EMBD_OK)
        return status;
    uint8_t byte = s->token[0];
    if (byte >= 0x80 && byte <= 0x8f)
        return open_container(s, byte & 0x0fu, true, e);
    if (byte >= 0x90 && byte <= 0x9f)
        return open_container(s, byte & 0x0fu, false, e);
    if (byte >= 0xa0 && byte <= 0xbf)
        return open_str(s, byte & 0x1fu, e);
    if (byte == 0xdc || byte == 0xdd)
        return open_container(s, token_number(s, s->token_want - 1), false, e);
    if (byte == 0xde || byte == 0xdf)
        return open_container(s, token_number(s, s->token_want - 1), true, e);
    if (byte >= 0xd9 && byte <= 0xdb)
        return open_str(s, (uint32_t)token_number(s, s->token_want - 1), e);
    if (byte >= 0xc4 && byte <= 0xc6)
        return open_bin(s, (uint32_t)token_number(s, s->token_want - 1), e);
    if (byte >= 0xc7 && byte <= 0xc9) /* a length, then the ext type */
        return open_body(s, token_number(s, s->token_want - 2), e);
    if (is_shared_bin(s))
        return open_shared(s);
    if (byte >= 0xd4 && byte <= 0xd8)
        return open_body(s, 1u << (byte - 0xd4), e);
    status = copy_token(s, e); /* nil, false, true and numbers */
    if (status == EMBD_OK)
        end_item(s);
    return status;
}

/* ---- bytes ---- */

static bool is_complete(const struct frame_scanner *s)
{
    return s->item > 0 && s->depth == 0;
}

static int begin_token(struct frame_scanner *s, uint8_t byte, struct embd__error *e)
{
    if (s->depth == 0 && check_first_byte(byte, e) != EMBD_OK)
        return e->status;
    s->token_want = token_size(byte);
    s->token_bytes = 0;
    if (s->token_want == 0)
        return embd__error_set(e, EMBD_MALFORMED, "byte 0xc1 after %u header bytes begins no value",
                               s->head_bytes);
    return EMBD_OK;
}

/* Eats bytes of the token, at least one. */
static int scan_token(struct frame_scanner *s, const uint8_t *p, size_t n, size_t *used_out,
                      struct embd__error *e)
{
    if (s->token_want == 0 && begin_token(s, p[0], e) != EMBD_OK)
        return e->status;
    uint32_t missing = s->token_want - s->token_bytes;
    uint32_t take = n < missing ? (uint32_t)n : missing;
    memcpy(s->token + s->token_bytes, p, take);
    s->token_bytes += take;
    *used_out += take;
    if (s->token_bytes < s->token_want)
        return FRAME_MORE;
    int event = take_token(s, e);
    s->token_want = 0;
    return event;
}

static void scan_body(struct frame_scanner *s, const uint8_t *p, size_t n, size_t *used_out)
{
    uint32_t take = n < s->want ? (uint32_t)n : s->want;
    memcpy(s->head + s->head_bytes, p, take);
    s->head_bytes += take;
    s->frame_bytes += take;
    s->want -= take;
    *used_out += take;
    if (s->want == 0)
        end_item(s);
}

/* The body is whole: in the head it is an empty bin. More bytes than a bin may have are more than
 * any shared memory has, too. */
static int end_shared(struct frame_scanner *s, struct embd__error *e)
{
    uint64_t bytes = embd__get_u64(s->shared + 8);
    s->is_shared = false;
    s->shared_at = embd__get_u64(s->shared);
    s->token[0] = 0xc6; /* bin 32 */
    s->token_want = 5;
    int event = open_bin(s, bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX, e);
    s->token_want = 0;
    return event == FRAME_BIN ? FRAME_SHARED : event;
}

/* Returns FRAME_MORE, FRAME_SHARED or an error. */
static int scan_shared(struct frame_scanner *s, const uint8_t *p, size_t n, size_t *used_out,
                       struct embd__error *e)
{
    uint32_t take = n < s->want ? (uint32_t)n : s->want;
    memcpy(s->shared + s->shared_bytes, p, take);
    s->shared_bytes += take;
    s->want -= take;
    *used_out += take;
    return s->want > 0 ? FRAME_MORE : end_shared(s, e);
}

/* Bytes of a small number or a short text with its body, which make up most of a header; 0: it is
 * neither. */
static size_t short_size(uint8_t byte)
{
    if (byte <= 0x7f)
        return 1;
    if ((byte & 0xe0) == 0xa0)
        return 1u + (byte & 0x1fu);
    return byte >= 0xcc && byte <= 0xcf ? token_size(byte) : 0;
}

/* Takes such an item in one go where it is whole, inside a map or array of params, and has room.
 * False: it is for scan_token, which says what is wrong. */
static bool scan_short(struct frame_scanner *s, const uint8_t *p, size_t n, size_t *used_out)
{
    size_t bytes = short_size(p[0]);
    if (bytes == 0 || bytes > n || s->depth < 3 || s->token_want > 0 ||
        bytes > s->head_capacity - s->head_bytes)
        return false;
    memcpy(s->head + s->head_bytes, p, bytes);
    s->head_bytes += (uint32_t)bytes;
    s->frame_bytes += bytes;
    *used_out += bytes;
    end_item(s);
    return true;
}

int embd__frame_scan(struct frame_scanner *s, const uint8_t *p, size_t n, size_t *used_out,
                     struct embd__error *e)
{
    *used_out = 0;
    while (!is_complete(s)) {
        size_t used = *used_out;
        if (used == n)
            return FRAME_MORE;
        if (s->want > 0 && s->is_shared) {
            int event = scan_shared(s, p + used, n - used, used_out, e);
            if (event != FRAME_MORE)
                return event;
            continue;
        }
        if (s->want > 0) {
            scan_body(s, p + used, n - used, used_out);
            continue;
        }
        if (scan_short(s, p + used, n - used, used_out))
            continue;
        int event = scan_token(s, p + used, n - used, used_out, e);
        if (event != FRAME_MORE)
            return event;
    }
    return FRAME_DONE;
}
