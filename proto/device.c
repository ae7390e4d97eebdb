/* device.c - see device.h. */
#include "proto/device.h"

#include <string.h>

#include "proto/names.h"
#include "proto/reading.h"

#define DEVICE_DTYPES 3 /* f32, f16, bf16 */

/* ---- opening and closing ---- */

void embd__device_open_write(struct msg *m, const struct device_lent *lent)
{
    embd__msg_map(m, 1u + (lent->address != 0));
    embd__msg_field_uint(m, "bytes", lent->bytes);
    if (lent->address != 0)
        embd__msg_field_uint(m, "address", lent->address);
    embd__msg_bin(m, lent->handle, DEVICE_HANDLE_BYTES);
    embd__msg_bin(m, lent->uuid, DEVICE_UUID_BYTES);
}

int embd__device_open_read(struct reader *r, struct device_lent *out)
{
    struct fields f;
    embd__read_fields(&f, r, "device_open");
    out->bytes = embd__field_uint(&f, "bytes", 1, LIMIT_DEVICE_BYTES, FIELD_REQUIRED);
    out->address = embd__field_uint(&f, "address", 0, UINT64_MAX, 0);
    embd__fields_end(&f);
    out->handle = embd__read_bin(r, "device_open handle", DEVICE_HANDLE_BYTES);
    out->uuid = embd__read_bin(r, "device_open uuid", DEVICE_UUID_BYTES);
    return embd__reader_end(r);
}

void embd__device_opened_write(struct msg *m, const struct device_opened *opened)
{
    embd__msg_map(m, 2u + opened->has_gates + opened->takes_own);
    embd__msg_field_uint(m, "number", opened->number);
    embd__msg_field_bool(m, "takes_turns", opened->takes_turns);
    if (opened->has_gates)
        embd__msg_field_bool(m, "gates", true);
    if (opened->takes_own)
        embd__msg_field_bool(m, "own", true);
}

int embd__device_opened_read(struct reader *r, struct device_opened *out)
{
    struct fields f;
    embd__read_fields(&f, r, "device_open");
    out->number = embd__field_uint(&f, "number", 1, UINT64_MAX - 1, FIELD_REQUIRED);
    out->takes_turns = embd__field_bool(&f, "takes_turns", false);
    out->has_gates = embd__field_bool(&f, "gates", false);
    out->takes_own = embd__field_bool(&f, "own", false);
    embd__fields_end(&f);
    return embd__reader_end(r);
}

void embd__device_close_write(struct msg *m, uint64_t number)
{
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "number", number);
}

int embd__device_close_read(struct reader *r, uint64_t *number_out)
{
    struct fields f;
    embd__read_fields(&f, r, "device_close");
    *number_out = embd__field_uint(&f, "number", 1, UINT64_MAX - 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    return embd__reader_end(r);
}

/* ---- pulls and pushes ---- */

static void write_gate(struct msg *m, const struct device_gate *gate)
{
    if (gate->number != 0) {
        embd__msg_field_uint(m, "gate_at", gate->at);
        embd__msg_field_uint(m, "gate", gate->number);
    }
    if (gate->needs != 0)
        embd__msg_field_uint(m, "needs", gate->needs);
    if (gate->n_all != 0) {
        embd__msg_field_uint(m, "gates_at", gate->all_at);
        embd__msg_field_uint(m, "gates", gate->n_all);
    }
}

static void write_own(struct msg *m, const uint8_t *own)
{
    uint8_t *copy = embd__msg_own(m, PLACEMENT_SET_BYTES);
    if (copy == NULL)
        return;
    memcpy(copy, own, PLACEMENT_SET_BYTES);
    embd__msg_bin(m, copy, PLACEMENT_SET_BYTES);
}

void embd__device_batch_write(struct msg *m, const struct device_batch *batch)
{
    const struct device_gate *gate = &batch->gate;
    bool has_own = batch->own != NULL, has_placement = has_own && batch->placement != 0;
    embd__msg_map(m, 7u + batch->zero_missing + (batch->lr > 0) + (gate->number != 0 ? 2u : 0) +
                         (gate->needs != 0) + (gate->n_all != 0 ? 2u : 0) + has_own +
                         has_placement + (batch->order != 0));
    embd__msg_field_uint(m, "table", batch->table);
    embd__msg_field_uint(m, "n_keys", batch->n_keys);
    embd__msg_field_str(m, "dtype", embd_dtype_name(batch->dtype));
    embd__msg_field_uint(m, "keys_in", batch->keys.number);
    embd__msg_field_uint(m, "keys_at", batch->keys.at);
    embd__msg_field_uint(m, "rows_in", batch->rows.number);
    embd__msg_field_uint(m, "rows_at", batch->rows.at);
    if (batch->zero_missing)
        embd__msg_field_bool(m, "zero", true);
    if (batch->lr > 0)
        embd__msg_field_f32(m, "lr", batch->lr);
    write_gate(m, gate);
    if (batch->order != 0)
        embd__msg_field_uint(m, "order", batch->order);
    if (has_placement)
        embd__msg_field_uint(m, "placement", batch->placement);
    if (has_own) {
        embd__msg_field_bool(m, "own", true);
        write_own(m, batch->own);
    }
}

static uint32_t read_n_keys(struct fields *f)
{
    uint64_t n = embd__field_uint(f, "n_keys", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    if (n <= LIMIT_KEYS)
        return (uint32_t)n;
    embd__error_set(f->reader->error, embd__reader_fault(f->reader, EMBD_TOO_LARGE),
                    "%s field 'n_keys' is %llu, the limit is %u", f->what, (unsigned long long)n,
                    LIMIT_KEYS);
    return 0;
}

static struct device_place read_place(struct fields *f, const char *in, const char *at)
{
    struct device_place place = {
        .number = embd__field_uint(f, in, 1, UINT64_MAX - 1, FIELD_REQUIRED),
        .at = embd__field_uint(f, at, 0, LIMIT_DEVICE_BYTES, FIELD_REQUIRED),
    };
    if (place.at % DEVICE_ALIGNMENT != 0)
        embd__error_set(f->reader->error, embd__reader_fault(f->reader, EMBD_INVALID),
                        "%s field '%s' is %llu, expected a multiple of %u", f->what, at,
                        (unsigned long long)place.at, DEVICE_ALIGNMENT);
    return place;
}

static uint64_t read_gate_at(struct fields *f, const char *name)
{
    uint64_t at = embd__field_uint(f, name, 0, LIMIT_DEVICE_BYTES, FIELD_REQUIRED);
    if (at % GATE_ALIGNMENT != 0)
        embd__error_set(f->reader->error, embd__reader_fault(f->reader, EMBD_INVALID),
                        "%s field '%s' is %llu, expected a multiple of %u", f->what, name,
                        (unsigned long long)at, GATE_ALIGNMENT);
    return at;
}

/* Where it lies is compared with the memory that the peer shares elsewhere. */
static struct device_gate read_gate(struct fields *f)
{
    struct device_gate gate = {0};
    if (!embd__field_has(f, "gate") && !embd__field_has(f, "gate_at"))
        return gate;
    gate.number = (uint32_t)embd__field_uint(f, "gate", 1, LIMIT_GATE, FIELD_REQUIRED);
    gate.at = read_gate_at(f, "gate_at");
    if (embd__field_has(f, "needs"))
        gate.needs = (uint32_t)embd__field_uint(f, "needs", 1, LIMIT_GATE, FIELD_REQUIRED);
    if (embd__field_has(f, "gates") || embd__field_has(f, "gates_at")) {
        gate.n_all = (uint32_t)embd__field_uint(f, "gates", 1, LIMIT_SHARDS, FIELD_REQUIRED);
        gate.all_at = read_gate_at(f, "gates_at");
    }
    return gate;
}

int embd__device_batch_read(struct reader *r, bool is_push, struct device_batch *out)
{
    struct fields f;
    const char *own_name = is_push ? "device_push own" : "device_pull own";
    *out = (struct device_batch){.table = 0};
    embd__read_fields(&f, r, is_push ? "device_push" : "device_pull");
    out->table = (uint32_t)embd__field_uint(&f, "table", 1, UINT32_MAX, FIELD_REQUIRED);
    out->n_keys = read_n_keys(&f);
    out->dtype =
        (embd_dtype)embd__field_enum(&f, "dtype", embd__dtype_names, DEVICE_DTYPES, EMBD_DTYPE_F32);
    out->keys = read_place(&f, "keys_in", "keys_at");
    out->rows = read_place(&f, "rows_in", "rows_at");
    if (is_push)
        out->lr = embd__field_lr(&f);
    else
        out->zero_missing = embd__field_bool(&f, "zero", false);
    if (is_push)
        out->order = embd__field_uint(&f, "order", 1, UINT64_MAX - 1, 0);
    out->gate = read_gate(&f);
    embd__request_placement_read(&f);
    out->placement = r->placement;
    bool has_own = embd__field_bool(&f, "own", false);
    embd__fields_end(&f);
    if (has_own)
        out->own = embd__read_bin(r, own_name, PLACEMENT_SET_BYTES);
    return embd__reader_end(r);
}

/* ---- gates ---- */

void embd__gate_raise(uint8_t *gate, uint32_t at, uint32_t number)
{
    _Atomic uint32_t *word = (_Atomic uint32_t *)(void *)(gate + at);
    uint32_t before = atomic_load_explicit(word, memory_order_relaxed);
    while (before < number &&
           !atomic_compare_exchange_weak_explicit(word, &before, number, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

void embd__gate_begin(struct gate_turn **first, struct gate_turn *turn, uint8_t *gate,
                      uint32_t number)
{
    *turn = (struct gate_turn){NULL, gate, number, number};
    while (*first != NULL)
        first = &(*first)->next;
    *first = turn;
}

struct gate_turn *embd__gate_leave(struct gate_turn **first, struct gate_turn *turn)
{
    struct gate_turn *before = NULL;
    for (; *first != NULL && *first != turn; first = &(*first)->next)
        if ((*first)->gate == turn->gate)
            before = *first;
    if (*first != NULL)
        *first = turn->next;
    return before;
}

void embd__gate_end(struct gate_turn **first, struct gate_turn *turn, bool has_failed)
{
    struct gate_turn *before = embd__gate_leave(first, turn);
    if (has_failed)
        embd__gate_raise(turn->gate, GATE_FAILED_AT, turn->number);
    if (before == NULL)
        embd__gate_raise(turn->gate, GATE_DONE_AT, turn->done);
    else if (before->done < turn->done)
        before->done = turn->done;
}
