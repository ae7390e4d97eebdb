/* read.c - a scanned frame becomes a reader: its type, its method, its map and its bins.
 *
 * The scanner has bounded the head, so msgpack-c may unpack it; the zone holds at most some 24
 * bytes for each byte of the head. What is checked here: that a known method's params, or an
 * answer's result, are a map and then bins, all bins of the frame among them. So the n-th bin item
 * is the frame's n-th bin, whatever msgpack-c points to.
 *
 * Faults of a request are EMBD_MALFORMED; of an answer EMBD_PROTOCOL, since there the peer is a
 * server. */
#include "proto/message.h"
#include "proto/assert.h"
#include "proto/reading.h"

#include <stdlib.h>
#include <string.h>

/* ---- methods by name ---- */

const char *const embd__method_names[METHOD_COUNT] = {
#define METHOD_NAME(id, name, listener) name,
    METHOD_LIST(METHOD_NAME)
#undef METHOD_NAME
};

int embd__method_find(const char *name, size_t bytes)
{
    static const uint8_t lengths[] = {
#define METHOD_LENGTH(id, name, listener) sizeof(name) - 1,
        METHOD_LIST(METHOD_LENGTH)
#undef METHOD_LENGTH
    };
    for (int i = 0; i < METHOD_COUNT; i++)
        if (lengths[i] == bytes && memcmp(embd__method_name((enum method)i), name, bytes) == 0)
            return i;
    return -1;
}

/* ---- for error texts ---- */

int embd__reader_fault(const struct reader *r, int status)
{
    return r->type == 1 ? EMBD_PROTOCOL : status;
}

const char *embd__type_name(const msgpack_object *o)
{
    switch (o->type) {
    case MSGPACK_OBJECT_NIL:
        return "nil";
    case MSGPACK_OBJECT_BOOLEAN:
        return "a bool";
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        return "an unsigned integer";
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        return "a negative integer";
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        return "a float";
    case MSGPACK_OBJECT_STR:
        return "a str";
    case MSGPACK_OBJECT_ARRAY:
        return "an array";
    case MSGPACK_OBJECT_MAP:
        return "a map";
    case MSGPACK_OBJECT_BIN:
        return "a bin";
    case MSGPACK_OBJECT_EXT:
        return "an ext";
    }
    return "unknown";
}

void embd__show_text(char out[SHOWN_TEXT], const char *text, size_t bytes)
{
    size_t shown = bytes < SHOWN_TEXT - 4 ? bytes : SHOWN_TEXT - 4;
    for (size_t i = 0; i < shown; i++)
        out[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    strcpy(out + shown, shown < bytes ? "..." : "");
}

/* ---- the outermost array ---- */

static void read_method(struct reader *r, const msgpack_object *o)
{
    _Static_assert(sizeof r->method_name == SHOWN_TEXT, "a method's name is shown as it is kept");
    embd__show_text(r->method_name, o->via.str.ptr, o->via.str.size);
    r->method = embd__method_find(o->via.str.ptr, o->via.str.size);
}

/* [number, text], as embd sends errors; a bare str, as other servers do. */
static void read_error(struct reader *r, const msgpack_object *o)
{
    r->answer_status = EMBD_PROTOCOL;
    const msgpack_object *text = o;
    if (o->type == MSGPACK_OBJECT_ARRAY && o->via.array.size == 2) {
        const msgpack_object *number = &o->via.array.ptr[0];
        int status = number->type == MSGPACK_OBJECT_POSITIVE_INTEGER && number->via.u64 <= INT32_MAX
                         ? -(int)number->via.u64
                         : EMBD_OK;
        if (embd__status_is_known(status))
            r->answer_status = status;
        text = &o->via.array.ptr[1];
    }
    bool is_text = text->type == MSGPACK_OBJECT_STR;
    r->answer_text = is_text ? text->via.str.ptr : "an error without a text";
    r->answer_text_bytes = is_text ? text->via.str.size : (uint32_t)strlen(r->answer_text);
}

/* The scanner takes a str in a request's list of params for a bin. */
static bool is_bin_as_str(const struct reader *r, const msgpack_object *o)
{
    return r->type == 0 && o->type == MSGPACK_OBJECT_STR;
}

/* An array of an optional map, then of all the frame's bins. */
static int read_items(struct reader *r, const msgpack_object *o)
{
    const char *what = r->type == 1 ? "result" : "params";
    int status = embd__reader_fault(r, EMBD_MALFORMED);
    if (o->type != MSGPACK_OBJECT_ARRAY)
        return embd__error_set(r->error, status, "%s is %s, expected an array", what,
                               embd__type_name(o));
    r->items = o->via.array.ptr;
    r->n_items = o->via.array.size;
    r->next = r->n_items > 0 && r->items[0].type == MSGPACK_OBJECT_MAP ? 1 : 0;
    for (uint32_t i = r->next; i < r->n_items; i++)
        if (r->items[i].type != MSGPACK_OBJECT_BIN && !is_bin_as_str(r, &r->items[i]))
            return embd__error_set(r->error, status, "%s[%u] is %s, expected a bin", what, i,
                                   embd__type_name(&r->items[i]));
    if (r->n_items - r->next != r->frame->n_bins)
        return embd__error_set(r->error, status, "%u bins stand outside the list of bins in %s",
                               r->frame->n_bins - (r->n_items - r->next), what);
    return EMBD_OK;
}

static int read_call(struct reader *r, const msgpack_object *elements)
{
    const msgpack_object *method = &elements[r->type == 0 ? 2 : 1];
    const msgpack_object *params = method + 1;
    if (method->type != MSGPACK_OBJECT_STR)
        return embd__error_set(r->error, EMBD_MALFORMED, "the method is %s, expected a str",
                               embd__type_name(method));
    read_method(r, method);
    if (r->method >= 0)
        return read_items(r, params);
    if (r->type == 2 && strcmp(r->method_name, "error") == 0)
        read_error(r, params);
    return EMBD_OK;
}

static int read_answer(struct reader *r, const msgpack_object *elements)
{
    if (elements[2].type == MSGPACK_OBJECT_NIL)
        return read_items(r, &elements[3]);
    read_error(r, &elements[2]);
    return EMBD_OK;
}

int embd__reader_init(struct reader *r, const struct frame_scanner *frame, msgpack_zone *zone,
                      struct embd__error *e)
{
    EMBD_ASSERT(frame->type >= 0);
    *r = (struct reader){
        .error = e, .frame = frame, .type = frame->type, .msgid = frame->msgid, .method = -1};
    if (e->status != EMBD_OK)
        return e->status;
    msgpack_zone_clear(zone);
    msgpack_object whole;
    size_t used = 0;
    msgpack_unpack_return result =
        msgpack_unpack((const char *)frame->head, frame->head_bytes, &used, zone, &whole);
    if (result == MSGPACK_UNPACK_NOMEM_ERROR)
        return embd__error_set(e, EMBD_NO_MEMORY,
                               "no memory to unpack a message header of %u bytes",
                               frame->head_bytes);
    uint32_t expected = frame->type == 2 ? 3 : 4;
    if (result != MSGPACK_UNPACK_SUCCESS || used != frame->head_bytes ||
        whole.type != MSGPACK_OBJECT_ARRAY || whole.via.array.size != expected)
        return embd__error_set(e, embd__reader_fault(r, EMBD_MALFORMED),
                               "the message header of %u bytes is damaged", frame->head_bytes);
    return r->type == 1 ? read_answer(r, whole.via.array.ptr) : read_call(r, whole.via.array.ptr);
}

/* ---- bins ---- */

/* The frame's bin of the next item; NULL and an error if there is none or its bytes were not
 * kept. */
static const struct frame_bin *next_bin(struct reader *r, const char *what)
{
    if (r->error->status != EMBD_OK)
        return NULL;
    if (r->next == r->n_items) {
        embd__error_set(r->error, embd__reader_fault(r, EMBD_MALFORMED), "the bin of %s is missing",
                        what);
        return NULL;
    }
    uint32_t i = r->frame->n_bins - (r->n_items - r->next);
    const struct frame_bin *bin =
        i < LIMIT_BINS ? &r->frame->bins[i] : &r->frame->more[i - LIMIT_BINS];
    if (bin->data == NULL && bin->bytes > 0) {
        embd__error_set(r->error, embd__reader_fault(r, EMBD_TOO_LARGE),
                        "the bin of %s has %u bytes and was not received", what, bin->bytes);
        return NULL;
    }
    return bin;
}

static const void *take_bin(struct reader *r, const struct frame_bin *bin)
{
    static const uint64_t nothing; /* where an empty array points: anywhere but NULL */
    r->next++;
    if (bin->bytes == 0)
        return &nothing;
    EMBD_ASSERT((uintptr_t)bin->data % 8 == 0);
    return bin->data;
}

const void *embd__read_bin(struct reader *r, const char *what, uint64_t bytes)
{
    const struct frame_bin *bin = next_bin(r, what);
    if (bin == NULL)
        return NULL;
    if (bin->bytes != bytes) {
        embd__error_set(r->error, embd__reader_fault(r, EMBD_MALFORMED),
                        "the bin of %s has %u bytes, expected %llu", what, bin->bytes,
                        (unsigned long long)bytes);
        return NULL;
    }
    return take_bin(r, bin);
}

const void *embd__read_bin_any(struct reader *r, const char *what, uint64_t unit,
                               uint64_t max_bytes, uint64_t *bytes_out)
{
    *bytes_out = 0;
    const struct frame_bin *bin = next_bin(r, what);
    if (bin == NULL)
        return NULL;
    if (bin->bytes % unit != 0) {
        embd__error_set(r->error, embd__reader_fault(r, EMBD_MALFORMED),
                        "the bin of %s has %u bytes, expected a multiple of %llu", what, bin->bytes,
                        (unsigned long long)unit);
        return NULL;
    }
    if (bin->bytes > max_bytes) {
        embd__error_set(r->error, embd__reader_fault(r, EMBD_TOO_LARGE),
                        "the bin of %s has %u bytes, the limit is %llu", what, bin->bytes,
                        (unsigned long long)max_bytes);
        return NULL;
    }
    *bytes_out = bin->bytes;
    return take_bin(r, bin);
}

int embd__reader_refuse_rest(struct reader *r)
{
    return embd__error_set(r->error, embd__reader_fault(r, EMBD_MALFORMED),
                           "the message has %u bins, expected %u", r->frame->n_bins,
                           r->frame->n_bins - (r->n_items - r->next));
}
