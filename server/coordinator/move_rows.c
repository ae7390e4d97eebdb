/* move_rows.c - see move_rows.h.
 *
 * The happy path: each exchange asks every shard for one thing at once: to load what was read for
 * it, or for its next rows, until all have sent their last ones and everything is loaded. So shards
 * read while others load. */
#include "server/coordinator/move_rows.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/coordinator/cluster_hold.h"

#define BLOCK_BYTES (512u << 10) /* that a shard answers at most */
#define PARCELS_MAX 8u           /* for each shard, on their way: what is read waits then */
#define WAIT_NS     20000000u    /* for tables that cannot be frozen now */
#define WAITS_HELD  50u          /* so often while changes wait */

/* Of a block, in the order of a message. */
enum { KEYS, SLOTS, ROWS, STATES, CANDIDATE_KEYS, CANDIDATE_SLOTS, COUNTS, ARRAYS };

/* Rows and candidates of one table, as a shard has sent them. */
struct block {
    char table[EMBD_NAME_MAX + 1];
    uint32_t n_rows, n_candidates;
    embd_partition partition;
    uint64_t width[ARRAYS]; /* bytes of an element; 0: there is no such array */
    const uint8_t *arrays[ARRAYS];
};

/* Those of a block that go to one shard; its arrays stand behind it. */
struct parcel {
    struct parcel *next;
    char table[EMBD_NAME_MAX + 1];
    uint32_t n_rows, n_candidates;
    bool is_gone; /* the candidates are keys to be forgotten */
    uint64_t width[ARRAYS];
    uint8_t *arrays[ARRAYS];
};

enum asked { ASKED_NOTHING, ASKED_ROWS, ASKED_LOAD };

struct move_side {
    enum asked asked;
    bool is_done, waits;         /* it has sent its last rows; it had none to send now */
    struct parcel *first, *last; /* to be loaded there */
    uint32_t n_parcels;
};

static uint32_t count_of(const struct block *b, int array)
{
    return array < CANDIDATE_KEYS ? b->n_rows : b->n_candidates;
}

/* ---- reading ---- */

static void read_arrays(struct reader *r, struct block *b)
{
    static const char *const what[ARRAYS] = {"keys",           "slots",           "rows",  "states",
                                             "candidate keys", "candidate slots", "counts"};
    for (int i = 0; i < ARRAYS; i++)
        if (b->width[i] > 0)
            b->arrays[i] = embd__read_bin(r, what[i], b->width[i] * count_of(b, i));
}

static void read_block(struct reader *r, struct fields *f, struct block *b)
{
    embd__field_str(f, "table", b->table, sizeof b->table, NULL);
    b->partition =
        (embd_partition)embd__field_uint(f, "partition", 0, EMBD_PARTITION_SLOT, FIELD_REQUIRED);
    b->width[KEYS] = b->width[CANDIDATE_KEYS] = sizeof(uint64_t);
    if (b->partition == EMBD_PARTITION_SLOT)
        b->width[SLOTS] = b->width[CANDIDATE_SLOTS] = sizeof(uint16_t);
    b->width[ROWS] = embd__field_uint(f, "row_bytes", 1, LIMIT_FRAME_BYTES, FIELD_REQUIRED);
    b->width[STATES] = embd__field_uint(f, "state_bytes", 0, LIMIT_FRAME_BYTES, FIELD_REQUIRED);
    b->width[COUNTS] = sizeof(uint32_t);
    if (embd__fields_end(f) == EMBD_OK)
        read_arrays(r, b);
}

/* ---- dividing ---- */

/* By the map of the move; `keys`: KEYS or CANDIDATE_KEYS, behind which the slots stand. */
static uint32_t shard_of(const struct move_rows *m, const struct block *b, int keys, uint32_t i)
{
    uint64_t key;
    uint16_t slot = 0;
    memcpy(&key, b->arrays[keys] + i * sizeof key, sizeof key);
    if (b->width[SLOTS] > 0)
        memcpy(&slot, b->arrays[keys + 1] + i * sizeof slot, sizeof slot);
    return embd__placement_shard(&m->job->order.place, b->partition, slot, key);
}

static struct parcel *parcel_new(const struct block *b, uint32_t n_rows, uint32_t n_candidates)
{
    uint64_t bytes = sizeof(struct parcel), at[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        at[i] = bytes;
        bytes += (b->width[i] * (i < CANDIDATE_KEYS ? n_rows : n_candidates) + 7) / 8 * 8;
    }
    struct parcel *p = malloc(bytes);
    if (p == NULL)
        return NULL;
    *p = (struct parcel){.next = NULL};
    memcpy(p->table, b->table, sizeof p->table);
    memcpy(p->width, b->width, sizeof p->width);
    for (int i = 0; i < ARRAYS; i++)
        p->arrays[i] = (uint8_t *)p + at[i];
    return p;
}

/* Element `from` of the block's arrays first .. end - 1 becomes element `to` of the parcel's. */
static void add_element(struct parcel *p, const struct block *b, int first, int end, uint32_t from,
                        uint32_t to)
{
    for (int i = first; i < end; i++)
        if (b->width[i] > 0)
            memcpy(p->arrays[i] + to * b->width[i], b->arrays[i] + from * b->width[i], b->width[i]);
}

static void hand_over(struct move_side *side, struct parcel *p)
{
    uint32_t count = 1;
    if (p->n_rows == 0 && p->n_candidates > 0)
        memcpy(&count, p->arrays[COUNTS], sizeof count);
    p->is_gone = count == 0;
    if (side->first == NULL)
        side->first = p;
    else
        side->last->next = p;
    side->last = p;
    side->n_parcels++;
}

static int divide_for(struct move_rows *m, const struct block *b, uint32_t shard, uint32_t n_rows,
                      uint32_t n_candidates)
{
    struct parcel *p = parcel_new(b, n_rows, n_candidates);
    if (p == NULL)
        return embd__error_set(&m->job->error, EMBD_NO_MEMORY, "no memory for %u rows that move",
                               n_rows);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (shard_of(m, b, KEYS, i) == shard)
            add_element(p, b, KEYS, CANDIDATE_KEYS, i, p->n_rows++);
    for (uint32_t i = 0; i < b->n_candidates; i++)
        if (shard_of(m, b, CANDIDATE_KEYS, i) == shard)
            add_element(p, b, CANDIDATE_KEYS, ARRAYS, i, p->n_candidates++);
    hand_over(&m->sides[shard], p);
    return EMBD_OK;
}

static int divide(struct move_rows *m, const struct block *b)
{
    uint32_t n_shards = m->job->n_shards, *counts = calloc(2 * n_shards, sizeof *counts);
    struct embd__error *e = &m->job->error;
    if (counts == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to divide rows for %u shards",
                               n_shards);
    for (uint32_t i = 0; i < b->n_rows; i++)
        counts[shard_of(m, b, KEYS, i)]++;
    for (uint32_t i = 0; i < b->n_candidates; i++)
        counts[n_shards + shard_of(m, b, CANDIDATE_KEYS, i)]++;
    for (uint32_t s = 0; s < n_shards && e->status == EMBD_OK; s++)
        if (counts[s] + counts[n_shards + s] > 0)
            divide_for(m, b, s, counts[s], counts[n_shards + s]);
    free(counts);
    m->round_rows += b->n_rows + b->n_candidates;
    m->rows += b->n_rows;
    m->bytes += b->n_rows * (b->width[KEYS] + b->width[SLOTS] + b->width[ROWS] + b->width[STATES]);
    return e->status;
}

/* ---- one exchange ---- */

static void take(void *arg, uint32_t shard, struct reader *r)
{
    struct move_rows *m = arg;
    struct move_side *side = &m->sides[shard];
    struct block b = {.n_rows = 0};
    struct fields f;
    if (side->asked != ASKED_ROWS) {
        r->next = r->n_items;
        return;
    }
    embd__read_fields(&f, r, "move");
    side->waits = embd__field_bool(&f, "waits", false);
    side->is_done = embd__field_bool(&f, "done", false);
    b.n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    b.n_candidates = (uint32_t)embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    if (b.n_rows + b.n_candidates == 0) {
        embd__fields_end(&f);
        return;
    }
    read_block(r, &f, &b);
    if (r->error->status == EMBD_OK)
        divide(m, &b);
}

static void ask_rows(struct move_rows *m, uint32_t shard, bool is_final)
{
    struct msg *msg = peers_add(m->job->peers, shard, METHOD_MOVE, CLUSTER_ASK_MS);
    embd__msg_map(msg, 3);
    embd__msg_field_str(msg, "phase", "read");
    embd__msg_field_uint(msg, "id", m->job->id);
    embd__msg_field_bool(msg, "final", is_final);
    m->sides[shard].asked = ASKED_ROWS;
}

static void ask_load(struct move_rows *m, uint32_t shard)
{
    const struct parcel *p = m->sides[shard].first;
    struct msg *msg = peers_add(m->job->peers, shard, METHOD_MOVE_LOAD, CLUSTER_ASK_MS);
    embd__msg_map(msg, 5);
    embd__msg_field_uint(msg, "id", m->job->id);
    embd__msg_field_str(msg, "table", p->table);
    embd__msg_field_uint(msg, "rows", p->n_rows);
    embd__msg_field_uint(msg, "candidates", p->n_candidates);
    embd__msg_field_bool(msg, "gone", p->is_gone);
    for (int i = 0; i < ARRAYS; i++)
        if (p->width[i] > 0)
            embd__msg_bin(msg, p->arrays[i],
                          p->width[i] * (i < CANDIDATE_KEYS ? p->n_rows : p->n_candidates));
    m->sides[shard].asked = ASKED_LOAD;
}

static void end_parcel(struct move_side *side)
{
    struct parcel *p = side->first;
    side->first = p->next;
    side->n_parcels--;
    free(p);
}

/* No shard has so much to load that more should be read. */
static bool has_room(const struct move_rows *m)
{
    for (uint32_t i = 0; i < m->job->n_shards; i++)
        if (m->sides[i].n_parcels >= PARCELS_MAX)
            return false;
    return true;
}

/* How many shards are asked for rows at once: at a rate, for those of a second. */
static uint32_t count_readers(const struct move_rows *m, enum move_round how)
{
    uint64_t rate = how == MOVE_PACED ? job_rate(m->job) : 0, n = rate / BLOCK_BYTES;
    if (!has_room(m))
        return 0;
    return rate == 0 || n >= m->job->n_shards ? m->job->n_shards : n > 0 ? (uint32_t)n : 1;
}

/* What is to be asked of each shard. Returns of how many. */
static uint32_t ask_all(struct move_rows *m, enum move_round how)
{
    uint32_t n = 0, n_readers = count_readers(m, how);
    for (uint32_t i = 0; i < m->job->n_shards; i++) {
        struct move_side *side = &m->sides[i];
        side->asked = ASKED_NOTHING;
        side->waits = false;
        if (side->first != NULL)
            ask_load(m, i);
        else if (!side->is_done && n_readers > 0) {
            ask_rows(m, i, how == MOVE_FINAL);
            n_readers--;
        }
        n += side->asked != ASKED_NOTHING;
    }
    return n;
}

/* Whether nothing came but from shards that have nothing now. */
static bool all_wait(const struct move_rows *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->job->n_shards; i++) {
        const struct move_side *side = &m->sides[i];
        if (side->asked != ASKED_NOTHING && !side->waits)
            return false;
        any |= side->waits;
    }
    return any;
}

static void end_exchange(struct move_rows *m)
{
    for (uint32_t i = 0; i < m->job->n_shards; i++)
        if (m->sides[i].asked == ASKED_LOAD)
            end_parcel(&m->sides[i]);
}

/* ---- the rate ---- */

/* Shards see that the mover lives, and it that they do. */
static int ask_states(struct job *job)
{
    for (uint32_t shard = 0; shard < job->n_shards; shard++) {
        struct msg *msg = peers_add(job->peers, shard, METHOD_MOVE, CLUSTER_ASK_MS);
        embd__msg_map(msg, 1);
        embd__msg_field_str(msg, "phase", "state");
    }
    return peers_run(job->peers, NULL, NULL, &job->error);
}

/* No shard waits meanwhile. */
static int pace(struct move_rows *m, uint64_t bytes)
{
    m->is_paced |= job_rate(m->job) > 0;
    job_owe(m->job, bytes);
    while (job_is_paced(m->job))
        if (ask_states(m->job) != EMBD_OK)
            break;
    return m->job->error.status;
}

/* ---- a round ---- */

int move_rows_round(struct move_rows *m, enum move_round how)
{
    uint64_t paid = m->bytes;
    uint32_t n_waits = 0;
    struct job *job = m->job;
    struct embd__error *e = &job->error;
    m->round_rows = 0;
    for (uint32_t i = 0; i < job->n_shards; i++)
        m->sides[i].is_done = false;
    while (ask_all(m, how) > 0 && peers_run(job->peers, take, m, e) == EMBD_OK) {
        end_exchange(m);
        job_tell(job, 0, m->rows, m->bytes);
        if (how == MOVE_PACED && pace(m, m->bytes - paid) != EMBD_OK)
            break;
        paid = m->bytes;
        if (!all_wait(m))
            continue;
        if (how == MOVE_FINAL && ++n_waits == WAITS_HELD)
            return embd__error_set(e, EMBD_BUSY,
                                   "tables are being compacted, and changes have waited for 1 s; "
                                   "move the keys again");
        nanosleep(&(struct timespec){0, WAIT_NS}, NULL);
    }
    return e->status;
}

/* ---- ---- */

int move_rows_init(struct move_rows *m)
{
    m->sides = calloc(m->job->n_shards, sizeof *m->sides);
    if (m->sides == NULL)
        embd__error_set(&m->job->error, EMBD_NO_MEMORY, "no memory to move keys of %u shards",
                        m->job->n_shards);
    return m->job->error.status;
}

void move_rows_fini(struct move_rows *m)
{
    for (uint32_t i = 0; m->sides != NULL && i < m->job->n_shards; i++)
        while (m->sides[i].first != NULL)
            end_parcel(&m->sides[i]);
    free(m->sides);
}
