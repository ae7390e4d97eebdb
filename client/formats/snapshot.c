/* snapshot.c - embd_snapshot: every server process writes the state of its shards under its data
 * directory.
 *
 * The happy path is that of PROTOCOL.md: `begin` on the first shard of each process; `blob` on
 * shard 0 for each of the caller's; hold changes on all shards; `cut` on every shard, which freezes
 * its tables; release; `write` on every shard, which answers with the parts it wrote; `commit` on
 * the first shards with the parts of their process. The server knows which shard is the first of
 * its process: shard 0 is one, and each other shard either takes `begin` or refuses it with
 * EMBD_INVALID, and then belongs to the process of the shard before it (the name, the other thing
 * that could be invalid, was taken by shard 0). What can fail: a name that is taken, a disk, a
 * shard that is gone. Every process that has begun is then told to abort, and the holds are
 * released in any case. Only when all have committed are the first shards told how many snapshots
 * to `keep`. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/formats/admin.h"
#include "client/formats/cut.h"
#include "client/formats/blobs.h"
#include "client/core/client.h"
#include "embd/admin.h"
#include "proto/partfile.h"
#include "proto/structs.h"

/* A shard may write for as long as it can be held. */
#define WRITE_DEADLINE_MS 3600000u
/* Parts in one commit request: each has at most some 250 bytes of a header of LIMIT_HEADER_BYTES.
 */
#define COMMIT_PARTS   12u
#define COMMIT_WRITERS 48u /* and these have 60 */

struct written_part {
    char table[EMBD_NAME_MAX + 1];
    struct manifest_part part;
    uint64_t step;
};

struct snapshot {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const char *name;
    const embd_snapshot_options *options;
    uint64_t id;         /* of the cut; no other snapshot has it */
    uint64_t sequence;   /* of the cut: the greatest that a process would take */
    bool has_unnumbered; /* a process of an earlier version takes none: then the others take their
                            own */
    uint64_t base_id;    /* shard 0's; 0: none was told */
    uint32_t odd_shard;  /* of a process whose base has another id; 0: none */
    uint32_t n_shards, n_begun; /* shards that were asked to begin */
    bool *is_first;             /* [n_shards] of its process */
    bool *has_committed;        /* [n_shards] there is nothing to abort any more */
    struct written_part *parts; /* of the shards of one process after the other */
    uint32_t n_parts;
    uint32_t *ends;                   /* [n_shards] parts up to and with this shard's */
    struct manifest_writers *writers; /* [n_shards] of the shards that answered `write` */
    embd_dump_report report;
};

/* ---- one phase on one shard ---- */

static struct msg *phase_fields(struct snapshot *s, struct msg *m, const char *phase,
                                uint32_t n_more)
{
    embd__msg_map(m, 2 + n_more);
    embd__msg_field_str(m, "name", s->name);
    embd__msg_field_str(m, "phase", phase);
    return m;
}

static struct msg *phase_begin(struct snapshot *s, const char *phase, uint32_t n_more)
{
    return phase_fields(s, embd__admin_begin(s->client, METHOD_SNAPSHOT), phase, n_more);
}

static int ask(struct snapshot *s, uint32_t shard)
{
    struct answer *answer;
    int status = embd__request(s->client, shard, LISTENER_ADMIN, &answer);
    if (status == EMBD_OK)
        embd__answer_free(answer);
    return status;
}

static int read_begun(struct snapshot *s, uint32_t shard, struct answer *answer)
{
    struct fields f;
    embd__read_fields(&f, &answer->reader, "snapshot");
    uint64_t sequence = embd__field_uint(&f, "sequence", 1, UINT64_MAX, 0);
    uint64_t id =
        s->options->base ? embd__field_uint(&f, "base_id", 1, UINT64_MAX, FIELD_REQUIRED) : 0;
    embd__fields_end(&f);
    if (embd__admin_end(s->client, shard, METHOD_SNAPSHOT, answer))
        return s->e->status;
    s->has_unnumbered |= sequence == 0;
    s->sequence = sequence > s->sequence ? sequence : s->sequence;
    if (s->base_id && id != s->base_id)
        s->odd_shard = shard;
    s->base_id = s->base_id ? s->base_id : id;
    return EMBD_OK;
}

/* Of all processes the base is one snapshot. */
static int check_base(struct snapshot *s)
{
    if (s->odd_shard == 0)
        return EMBD_OK;
    return embd__error_set(s->e, EMBD_EXISTS,
                           "%s: its snapshot '%s' is of another cut than that of %s",
                           embd_shard_address(s->client, s->odd_shard), s->options->base,
                           embd_shard_address(s->client, 0));
}

static int ask_begin(struct snapshot *s, uint32_t shard)
{
    struct answer *answer;
    struct msg *m = phase_begin(s, "begin", s->options->base != NULL);
    if (s->options->base)
        embd__msg_field_str(m, "base", s->options->base);
    int status = embd__request(s->client, shard, LISTENER_ADMIN, &answer);
    return status ? status : read_begun(s, shard, answer);
}

static int begin(struct snapshot *s, uint32_t shard)
{
    int status = ask_begin(s, shard);
    s->is_first[shard] = status == EMBD_OK;
    if (shard == 0 || status != EMBD_INVALID)
        return status;
    *s->e = (struct embd__error){0};
    return EMBD_OK;
}

/* Leaves the client's error as it is. */
static void abort_process(struct snapshot *s, uint32_t shard)
{
    struct embd__error kept = *s->e;
    *s->e = (struct embd__error){0};
    phase_begin(s, "abort", 0);
    ask(s, shard);
    *s->e = kept;
}

/* ---- cut ---- */

static void take_cut(void *arg, uint32_t shard, struct answer *answer)
{
    struct snapshot *s = arg;
    struct fields f;
    embd__read_fields(&f, &answer->reader, "snapshot");
    embd__fields_end(&f);
    embd__admin_end(s->client, shard, METHOD_SNAPSHOT, answer);
}

/* ---- write ---- */

static void read_part(struct snapshot *s, struct reader *r, const msgpack_object *item,
                      uint32_t shard)
{
    struct fields f;
    struct written_part *w = &s->parts[s->n_parts];
    embd__list_map(r, item, &f, "part");
    embd__field_str(&f, "table", w->table, sizeof w->table, NULL);
    embd__field_str(&f, "file", w->part.file, sizeof w->part.file, NULL);
    w->part.shard = (uint32_t)embd__field_uint(&f, "shard", shard, shard, FIELD_REQUIRED);
    w->part.rows = embd__field_uint(&f, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
    w->part.candidates = embd__field_uint(&f, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
    w->part.bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    w->part.xxh3 = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, 0);
    w->part.has_changes = embd__field_bool(&f, "changes", false);
    w->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f))
        return;
    s->n_parts++;
    s->report.rows += w->part.rows;
    s->report.bytes += w->part.bytes;
}

static void read_writers(struct snapshot *s, struct fields *answer, uint32_t shard)
{
    struct fields f;
    struct manifest_writers *w = &s->writers[shard];
    embd__field_map(answer, "writers", &f, "writers");
    w->shard = (uint32_t)embd__field_uint(&f, "shard", shard, shard, FIELD_REQUIRED);
    w->bytes = embd__field_uint(&f, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    w->xxh3 = embd__field_uint(&f, "xxh3", 0, UINT64_MAX, 0);
    embd__fields_end(&f);
    s->report.bytes += w->bytes;
}

static int read_parts(struct snapshot *s, struct reader *r, uint32_t shard)
{
    struct fields f;
    const msgpack_object *items = NULL;
    embd__read_fields(&f, r, "snapshot");
    uint32_t n = embd__field_list(&f, "parts", LIMIT_TABLES, &items);
    read_writers(s, &f, shard);
    if (embd__fields_end(&f))
        return s->e->status;
    struct written_part *grown = realloc(s->parts, ((size_t)s->n_parts + n + 1) * sizeof *grown);
    if (!grown)
        return embd__error_set(s->e, EMBD_NO_MEMORY, "no memory for the parts of a snapshot");
    s->parts = grown;
    for (uint32_t i = 0; i < n && !s->e->status; i++)
        read_part(s, r, &items[i], shard);
    return embd__reader_end(r);
}

static void take_parts(void *arg, uint32_t shard, struct answer *answer)
{
    struct snapshot *s = arg;
    read_parts(s, &answer->reader, shard);
    embd__admin_end(s->client, shard, METHOD_SNAPSHOT, answer);
}

/* ---- commit ---- */

static void write_part(struct msg *m, const struct written_part *w)
{
    embd__msg_map(m, w->part.has_changes ? 9 : 8);
    if (w->part.has_changes)
        embd__msg_field_bool(m, "changes", true);
    embd__msg_field_str(m, "table", w->table);
    embd__msg_field_str(m, "file", w->part.file);
    embd__msg_field_uint(m, "shard", w->part.shard);
    embd__msg_field_uint(m, "rows", w->part.rows);
    embd__msg_field_uint(m, "candidates", w->part.candidates);
    embd__msg_field_uint(m, "bytes", w->part.bytes);
    embd__msg_field_uint(m, "xxh3", w->part.xxh3);
    embd__msg_field_uint(m, "step", w->step);
}

static int commit_some(struct snapshot *s, uint32_t shard, uint32_t first, uint32_t n)
{
    struct msg *m = phase_begin(s, "commit", 3);
    embd__msg_field_uint(m, "id", s->id);
    embd__msg_field_bool(m, "more", true);
    embd__msg_str(m, "parts");
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < n; i++)
        write_part(m, &s->parts[first + i]);
    return ask(s, shard);
}

/* Writers of shards first .. first + n. */
static int commit_writers(struct snapshot *s, uint32_t shard, uint32_t first, uint32_t n, bool more)
{
    struct msg *m = phase_begin(s, "commit", s->has_unnumbered ? 4 : 5);
    embd__msg_field_uint(m, "id", s->id);
    if (!s->has_unnumbered)
        embd__msg_field_uint(m, "sequence", s->sequence);
    embd__msg_field_bool(m, "more", more);
    embd__msg_str(m, "parts");
    embd__msg_array(m, 0);
    embd__msg_str(m, "writers");
    embd__msg_array(m, n);
    for (uint32_t i = first; i < first + n; i++) {
        embd__msg_map(m, 3);
        embd__msg_field_uint(m, "shard", i);
        embd__msg_field_uint(m, "bytes", s->writers[i].bytes);
        embd__msg_field_uint(m, "xxh3", s->writers[i].xxh3);
    }
    return ask(s, shard);
}

/* The parts of the process whose first shard this is, then its shards' writers, in as many requests
 * as they need. */
static int commit(struct snapshot *s, uint32_t shard)
{
    uint32_t end = shard + 1, at = shard ? s->ends[shard - 1] : 0;
    while (end < s->n_shards && !s->is_first[end])
        end++;
    for (uint32_t left = s->ends[end - 1] - at; left > 0;) {
        uint32_t n = left < COMMIT_PARTS ? left : COMMIT_PARTS;
        if (commit_some(s, shard, at, n))
            return s->e->status;
        at += n;
        left -= n;
    }
    for (uint32_t first = shard, n; first < end; first += n) {
        n = end - first < COMMIT_WRITERS ? end - first : COMMIT_WRITERS;
        if (commit_writers(s, shard, first, n, first + n < end))
            return s->e->status;
    }
    return EMBD_OK;
}

/* Names what stays behind: a process that has committed cannot go back. */
static int commit_all(struct snapshot *s)
{
    for (uint32_t shard = 0; shard < s->n_shards; shard++) {
        if (!s->is_first[shard])
            continue;
        if (commit(s, shard)) {
            struct embd__error inner = *s->e;
            if (shard == 0)
                return inner.status;
            *s->e = (struct embd__error){0};
            return embd__error_set(
                s->e, inner.status,
                "%.250s; '%.63s' of the processes before it is complete: remove it", inner.text,
                s->name);
        }
        s->has_committed[shard] = true;
    }
    return EMBD_OK;
}

/* ---- keep ---- */

static int keep(struct snapshot *s, uint32_t shard)
{
    embd__msg_field_uint(phase_begin(s, "keep", 1), "keep", s->options->keep);
    return ask(s, shard);
}

/* Older ones go when this one is complete everywhere. */
static int keep_all(struct snapshot *s)
{
    for (uint32_t shard = 0; s->options->keep && shard < s->n_shards; shard++)
        if (s->is_first[shard] && keep(s, shard)) {
            struct embd__error inner = *s->e;
            *s->e = (struct embd__error){0};
            return embd__error_set(s->e, inner.status,
                                   "%.350s; '%.63s' is complete, older ones may be left",
                                   inner.text, s->name);
        }
    return EMBD_OK;
}

/* ---- the phases ---- */

static int send_blobs(struct snapshot *s)
{
    for (uint32_t i = 0; i < s->options->n_blobs; i++) {
        if (embd__blob_send(s->client, s->name, &s->options->blobs[i]))
            return s->e->status;
        s->report.bytes += s->options->blobs[i].bytes;
    }
    return EMBD_OK;
}

static int cut_all(struct snapshot *s, struct requests *requests)
{
    for (uint32_t shard = 0; shard < s->n_shards; shard++) {
        struct msg *m = embd__requests_add(requests, shard, METHOD_SNAPSHOT, 0);
        phase_fields(s, m, "cut", s->base_id ? 3 : 1);
        embd__msg_field_uint(m, "id", s->id);
        if (s->base_id) {
            embd__msg_field_uint(m, "since", s->base_id);
            embd__msg_field_str(m, "base", s->options->base);
        }
    }
    return embd__requests_run(requests, take_cut, s);
}

static int run_held(struct snapshot *s)
{
    struct cut_hold held;
    if (embd__cut_hold(s->client, &held))
        return s->e->status;
    int status = cut_all(s, held.requests);
    embd__cut_release(s->client, &held, &s->report.pause_us);
    return status;
}

/* All shards at once. */
static int write_all(struct snapshot *s)
{
    struct requests *requests;
    if (embd__requests_new(s->client, &requests))
        return s->e->status;
    for (uint32_t shard = 0; shard < s->n_shards; shard++)
        phase_fields(s, embd__requests_add(requests, shard, METHOD_SNAPSHOT, WRITE_DEADLINE_MS),
                     "write", 0);
    int status = embd__requests_run(requests, take_parts, s);
    embd__requests_free(requests);
    return status;
}

static int by_shard(const void *a, const void *b)
{
    const struct written_part *x = a, *y = b;
    return x->part.shard < y->part.shard ? -1 : x->part.shard > y->part.shard;
}

/* The parts of a process stand together then. */
static void order_parts(struct snapshot *s)
{
    if (s->n_parts > 0)
        qsort(s->parts, s->n_parts, sizeof *s->parts, by_shard);
    for (uint32_t shard = 0, at = 0; shard < s->n_shards; shard++) {
        while (at < s->n_parts && s->parts[at].part.shard == shard)
            at++;
        s->ends[shard] = at;
    }
}

static int run(struct snapshot *s)
{
    while (s->id == 0)
        if (getrandom(&s->id, sizeof s->id, 0) != sizeof s->id)
            return embd__error_set(s->e, EMBD_IO, "the system gives no random numbers");
    for (; s->n_begun < s->n_shards; s->n_begun++)
        if (begin(s, s->n_begun))
            return s->e->status;
    if (check_base(s) || send_blobs(s) || run_held(s) || write_all(s))
        return s->e->status;
    order_parts(s);
    return commit_all(s) ? s->e->status : keep_all(s);
}

/* Those that only write first, so that nothing is written any more where directories are removed.
 */
static void abort_all(struct snapshot *s)
{
    for (uint32_t shard = 0; shard < s->n_begun; shard++)
        if (!s->is_first[shard])
            abort_process(s, shard);
    for (uint32_t shard = 0; shard < s->n_begun; shard++)
        if (s->is_first[shard] && !s->has_committed[shard])
            abort_process(s, shard);
}

static int run_or_abort(struct snapshot *s)
{
    int status = run(s);
    if (status)
        abort_all(s);
    return status;
}

EMBD_API int embd_snapshot(embd_client *client, const char *name,
                           const embd_snapshot_options *options, embd_dump_report *report_out)
{
    embd_snapshot_options own = {0};
    struct snapshot s = {
        .client = client, .e = embd__client_error(client), .name = name, .options = &own};
    *s.e = (struct embd__error){0};
    if (options && embd__take(embd_snapshot_options, &own, options, s.e))
        return embd__error_keep(s.e, s.e->status);
    if (embd__blobs_check(s.options->blobs, s.options->n_blobs, s.e))
        return embd__error_keep(s.e, s.e->status);
    s.n_shards = embd_shard_count(client);
    s.is_first = calloc(s.n_shards, sizeof *s.is_first);
    s.has_committed = calloc(s.n_shards, sizeof *s.has_committed);
    s.ends = calloc(s.n_shards, sizeof *s.ends);
    s.writers = calloc(s.n_shards, sizeof *s.writers);
    int status = s.is_first && s.has_committed && s.ends && s.writers
                     ? run_or_abort(&s)
                     : embd__error_set(s.e, EMBD_NO_MEMORY, "no memory for a snapshot");
    if (status == EMBD_OK && report_out)
        *report_out = s.report;
    free(s.is_first);
    free(s.has_committed);
    free(s.ends);
    free(s.writers);
    free(s.parts);
    return embd__error_keep(s.e, status);
}
