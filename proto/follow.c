/* follow.c - see follow.h. A server and its followers are upgraded one after the other: fields that
 * the other one does not know yet are passed over. */
#include "proto/follow.h"

#include <string.h>

/* ---- the question ---- */

void embd__follow_ask_write(struct msg *m, const struct follow_ask *ask)
{
    embd__msg_map(m, 13u + (ask->lineage != 0) + (ask->who != 0) + (ask->mark != 0) +
                         (ask->mark_at != 0) + (ask->start != 0) + ask->reads + ask->takes_maps +
                         (ask->most != 0) + 2u * (ask->room != 0));
    embd__msg_field_str(m, "name", ask->name);
    embd__msg_field_str(m, "cluster", ask->cluster);
    embd__msg_field_uint(m, "epoch", ask->epoch);
    embd__msg_field_bool(m, "base", ask->is_base);
    embd__msg_field_uint(m, "position", ask->position);
    embd__msg_field_uint(m, "chain", ask->chain);
    embd__msg_field_uint(m, "offset", ask->offset);
    embd__msg_field_uint(m, "file", ask->file);
    embd__msg_field_uint(m, "at", ask->at);
    embd__msg_field_uint(m, "applied", ask->applied);
    embd__msg_field_uint(m, "disk", ask->disk);
    embd__msg_field_bool(m, "asks_base", ask->asks_base);
    embd__msg_field_uint(m, "wait_ms", ask->wait_ms);
    if (ask->lineage != 0)
        embd__msg_field_uint(m, "lineage", ask->lineage);
    if (ask->who != 0)
        embd__msg_field_uint(m, "who", ask->who);
    if (ask->mark != 0)
        embd__msg_field_uint(m, "mark", ask->mark);
    if (ask->mark_at != 0)
        embd__msg_field_uint(m, "mark_at", ask->mark_at);
    if (ask->start != 0)
        embd__msg_field_uint(m, "start", ask->start);
    if (ask->reads)
        embd__msg_field_bool(m, "reads", true);
    if (ask->takes_maps)
        embd__msg_field_bool(m, "maps", true);
    if (ask->room != 0) {
        embd__msg_field_uint(m, "room", ask->room);
        embd__msg_field_uint(m, "bases", ask->bases);
    }
    if (ask->most != 0)
        embd__msg_field_uint(m, "most", ask->most);
}

int embd__follow_ask_read(struct reader *r, struct follow_ask *out)
{
    struct fields f;
    *out = (struct follow_ask){.epoch = 0};
    embd__read_fields(&f, r, "follow");
    embd__field_name(&f, "name", out->name, sizeof out->name);
    embd__field_str(&f, "cluster", out->cluster, sizeof out->cluster, NULL);
    out->epoch = embd__field_uint(&f, "epoch", 0, INT64_MAX, 0);
    out->is_base = embd__field_bool(&f, "base", false);
    out->position = embd__field_uint(&f, "position", 0, INT64_MAX, 0);
    out->chain = embd__field_uint(&f, "chain", 0, UINT64_MAX, 0);
    out->offset = embd__field_uint(&f, "offset", 0, INT64_MAX, 0);
    out->file = embd__field_uint(&f, "file", 0, INT64_MAX, 0);
    out->at = embd__field_uint(&f, "at", 0, INT64_MAX, 0);
    out->applied = embd__field_uint(&f, "applied", 0, INT64_MAX, 0);
    out->disk = embd__field_uint(&f, "disk", 0, INT64_MAX, 0);
    out->asks_base = embd__field_bool(&f, "asks_base", false);
    out->wait_ms = embd__field_uint(&f, "wait_ms", 0, FOLLOW_WAIT_MS, 0);
    out->lineage = embd__field_uint(&f, "lineage", 0, UINT64_MAX - 1, 0);
    out->who = embd__field_uint(&f, "who", 0, UINT64_MAX - 1, 0);
    out->mark = embd__field_uint(&f, "mark", 0, UINT64_MAX - 1, 0);
    out->mark_at = embd__field_uint(&f, "mark_at", 0, INT64_MAX, 0);
    out->start = embd__field_uint(&f, "start", 0, UINT64_MAX - 1, 0);
    out->reads = embd__field_bool(&f, "reads", false);
    out->takes_maps = embd__field_bool(&f, "maps", false);
    out->room = embd__field_uint(&f, "room", 0, INT64_MAX, 0);
    out->bases = embd__field_uint(&f, "bases", 0, INT64_MAX, 0);
    out->most = embd__field_uint(&f, "most", 0, INT64_MAX, 0);
    return r->error->status != EMBD_OK ? r->error->status : embd__reader_end(r);
}

/* ---- the answer ---- */

void embd__follow_answer_write(struct msg *m, const struct follow_answer *answer)
{
    bool is_gone = answer->gone[0] != '\0';
    embd__msg_map(m, 14u + is_gone + (answer->lineage != 0) + answer->syncs + (answer->mark != 0) +
                         (answer->digest != 0) + 2u * answer->has_age + (answer->shards != 0));
    embd__msg_field_uint(m, "epoch", answer->epoch);
    embd__msg_field_uint(m, "position", answer->position);
    embd__msg_field_uint(m, "chain", answer->chain);
    embd__msg_field_uint(m, "offset", answer->offset);
    embd__msg_field_uint(m, "file", answer->file);
    embd__msg_field_uint(m, "at", answer->at);
    embd__msg_field_uint(m, "behind", answer->behind);
    embd__msg_field_uint(m, "behind_chain", answer->behind_chain);
    embd__msg_field_uint(m, "end", answer->end);
    embd__msg_field_uint(m, "left", answer->left);
    embd__msg_field_uint(m, "base", answer->base);
    embd__msg_field_uint(m, "sum", answer->sum);
    embd__msg_field_uint(m, "bytes", answer->n_bytes);
    embd__msg_field_uint(m, "skips", answer->n_skips);
    if (answer->lineage != 0)
        embd__msg_field_uint(m, "lineage", answer->lineage);
    if (is_gone)
        embd__msg_field_str(m, "gone", answer->gone);
    if (answer->syncs)
        embd__msg_field_bool(m, "syncs", true);
    if (answer->mark != 0)
        embd__msg_field_uint(m, "mark", answer->mark);
    if (answer->digest != 0)
        embd__msg_field_uint(m, "digest", answer->digest);
    if (answer->has_age) {
        embd__msg_field_uint(m, "age_us", answer->age_us);
        embd__msg_field_uint(m, "waited_us", answer->waited_us);
    }
    if (answer->shards != 0)
        embd__msg_field_uint(m, "shards", answer->shards);
    embd__msg_bin(m, answer->bytes, answer->n_bytes);
    embd__msg_bin(m, answer->skips, answer->n_skips * sizeof *answer->skips);
}

int embd__follow_answer_read(struct reader *r, struct follow_answer *out)
{
    struct fields f;
    *out = (struct follow_answer){.epoch = 0};
    embd__read_fields(&f, r, "follow");
    out->epoch = embd__field_uint(&f, "epoch", 0, INT64_MAX, FIELD_REQUIRED);
    out->position = embd__field_uint(&f, "position", 0, INT64_MAX, FIELD_REQUIRED);
    out->chain = embd__field_uint(&f, "chain", 0, UINT64_MAX, 0);
    out->offset = embd__field_uint(&f, "offset", 0, INT64_MAX, 0);
    out->file = embd__field_uint(&f, "file", 0, INT64_MAX, 0);
    out->at = embd__field_uint(&f, "at", 0, INT64_MAX, 0);
    out->behind = embd__field_uint(&f, "behind", 0, INT64_MAX, 0);
    out->behind_chain = embd__field_uint(&f, "behind_chain", 0, UINT64_MAX, 0);
    out->end = embd__field_uint(&f, "end", 0, INT64_MAX, FIELD_REQUIRED);
    out->left = embd__field_uint(&f, "left", 0, INT64_MAX, 0);
    out->base = embd__field_uint(&f, "base", 0, INT64_MAX, 0);
    out->sum = embd__field_uint(&f, "sum", 0, UINT64_MAX, 0);
    out->n_bytes = embd__field_uint(&f, "bytes", 0, FOLLOW_BYTES_MOST, 0);
    out->n_skips = (uint32_t)embd__field_uint(&f, "skips", 0, FOLLOW_SKIPS, 0);
    out->lineage = embd__field_uint(&f, "lineage", 0, UINT64_MAX - 1, 0);
    embd__field_str(&f, "gone", out->gone, sizeof out->gone, "");
    out->syncs = embd__field_bool(&f, "syncs", false);
    out->mark = embd__field_uint(&f, "mark", 0, INT64_MAX, 0);
    out->digest = embd__field_uint(&f, "digest", 0, UINT64_MAX, 0);
    uint64_t age_us = embd__field_uint(&f, "age_us", 0, INT64_MAX, INT64_MAX);
    out->has_age = age_us != INT64_MAX;
    out->age_us = age_us < FOLLOW_AGE_MOST_US ? age_us : FOLLOW_AGE_MOST_US;
    out->waited_us = embd__field_uint(&f, "waited_us", 0, INT64_MAX, 0);
    out->shards = embd__field_uint(&f, "shards", 0, LIMIT_SHARDS, 0);
    if (r->error->status != EMBD_OK)
        return r->error->status;
    out->bytes = embd__read_bin(r, "records", out->n_bytes);
    out->skips = embd__read_bin(r, "skips", out->n_skips * sizeof *out->skips);
    return embd__reader_end(r);
}
