/* answers.c - the answers to messages: bins go where their slice has room, and what is said of each
 * part is compared with the slice. */
#include "client/call/call.h"

#include <string.h>

static struct message *message_of(struct exchange *x)
{
    return (struct message *)(void *)x;
}

void *embd__message_on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    struct message *message = message_of(x);
    if (index < message->n_bins && message->bins[index].bytes == bytes) {
        const struct answer_bin *bin = &message->bins[index];
        message->at = index;
        if (bin->unit > 0)
            message->slices[bin->slice].next = message->slices[bin->slice].first;
        x->unit = bin->unit;
        return bin->to;
    }
    embd__error_set(&x->error, EMBD_PROTOCOL,
                    "bin %u of the answer has %u bytes; %llu of %u bins are expected", index, bytes,
                    (unsigned long long)(index < message->n_bins ? message->bins[index].bytes : 0),
                    message->n_bins);
    return NULL;
}

void embd__message_on_units(struct exchange *x, const uint8_t *p, uint32_t bytes)
{
    struct message *message = message_of(x);
    struct slice *slice = &message->slices[message->bins[message->at].slice];
    const struct work *work = &message->call->works[slice->work];
    uint32_t n = bytes / (uint32_t)work->row_bytes;
    embd__pull_place(message->call, work, &work->shares[message->shard], p, slice->next, n);
    slice->next += n;
}

static void wrong(struct embd__error *e, uint32_t part, const char *field, uint64_t value,
                  uint64_t expected)
{
    embd__error_set(e, EMBD_PROTOCOL, "the answer's part %u has %s %llu; %llu is expected", part,
                    field, (unsigned long long)value, (unsigned long long)expected);
}

/* n < 0: the reader has said what is wrong. */
static void check_count(struct exchange *x, int n)
{
    uint32_t expected = message_of(x)->n_slices;
    if (n >= 0 && (uint32_t)n != expected)
        embd__error_set(&x->error, EMBD_PROTOCOL, "the answer has %d parts; %u are expected", n,
                        expected);
}

/* The counts of an erase's and a push's answer, by part. */
static void check_keys(struct exchange *x, uint32_t part, uint32_t n_keys, bool has_status)
{
    const struct slice *slice = &message_of(x)->slices[part];
    if (n_keys != slice->n_keys)
        wrong(&x->error, part, "keys", n_keys, slice->n_keys);
    if (has_status != slice->has_status)
        wrong(&x->error, part, "status", has_status, slice->has_status);
}

/* Each returns the number of parts; negative: the reader has said what is wrong. */
static int on_pull_answer(struct exchange *x, struct reader *reader)
{
    struct message *message = message_of(x);
    struct part_answer *answers = (void *)message->answers;
    int n = embd__pull_answer_read(reader, answers, message->answers_capacity);
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < message->n_slices; i++) {
        const struct slice *slice = &message->slices[i];
        uint32_t dim = message->call->works[slice->work].dim;
        if (answers[i].n_rows != slice->n_rows)
            wrong(&x->error, i, "rows", answers[i].n_rows, slice->n_rows);
        if (answers[i].dim != dim)
            wrong(&x->error, i, "dim", answers[i].dim, dim);
        if (answers[i].dtype != message->call->wire)
            wrong(&x->error, i, "dtype", answers[i].dtype, message->call->wire);
        if (answers[i].has_status != slice->has_status)
            wrong(&x->error, i, "status", answers[i].has_status, slice->has_status);
    }
    return n;
}

static int on_erase_answer(struct exchange *x, struct reader *reader)
{
    struct message *message = message_of(x);
    struct erase_answer *answers = (void *)message->answers;
    int n = embd__erase_answer_read(reader, answers, message->answers_capacity);
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < message->n_slices; i++)
        check_keys(x, i, answers[i].n_keys, answers[i].statuses != NULL);
    return n;
}

/* A push that was applied before, when the answer was lost, and with it the statuses. */
static void forget_statuses(const struct message *message)
{
    for (uint32_t i = 0; i < message->n_bins; i++)
        memset(message->bins[i].to, EMBD_KEY_UNREPORTED, message->bins[i].bytes);
}

static int on_push_answer(struct exchange *x, struct reader *reader)
{
    struct message *message = message_of(x);
    struct push_answer *answers = (void *)message->answers;
    bool again;
    int n = embd__push_answer_read(reader, answers, message->answers_capacity, &again);
    if (n == 0 && again && (x->has_effect || x->is_of_round)) {
        forget_statuses(message);
        return n;
    }
    check_count(x, n);
    for (uint32_t i = 0; n >= 0 && x->error.status == EMBD_OK && i < message->n_slices; i++)
        check_keys(x, i, answers[i].n_keys, answers[i].statuses != NULL);
    return n;
}

static int (*const on_answer_of[])(struct exchange *x, struct reader *reader) = {
    [PARTS_PULL] = on_pull_answer,
    [PARTS_PUSH] = on_push_answer,
    [PARTS_ERASE] = on_erase_answer,
};

void embd__message_on_answer(struct exchange *x, struct reader *reader)
{
    embd_client *client = message_of(x)->call->client;
    int n = on_answer_of[message_of(x)->call->kind](x, reader);
    bool is_right = x->error.status == EMBD_OK && reader->error->status == EMBD_OK;
    if (reader->map > client->map_refresh.version)
        embd__map_refresh_from(client, x->link);
    else if (n > 0 && is_right && x->knows != NULL && !reader->lag.is_told)
        embd__message_keep_known(message_of(x), reader->frame);
}
