/* move_rows.c - see move_rows.h.
 *
 * The happy path: each shard is asked for its next rows as soon as its last ones have come, until
 * it has sent them all. What was read for a shard is loaded there in the order in which it came,
 * some blocks at once, so that one is written to the disk while the next one is on its way. Shards
 * read meanwhile, but where one has much to load. */
#include "server/coordinator/move_rows.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/coordinator/cluster_hold.h"
#include "server/coordinator/coordinator_inside.h"

#define BLOCK_BYTES  (512u << 10) /* that a shard answers at most */
#define READ_LANE    0u           /* of peers.h; those behind it are for loads */
#define PARCEL_BYTES (64u << 10)  /* of rows that are loaded together: others wait as long there */
#define PARCELS_MAX  8u           /* for each shard, on their way: what is read waits then */
#define WAIT_NS      20000000u    /* for tables that cannot be frozen now */
#define WAITS_HELD   50u          /* so often while changes wait */

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
    uint32_t lane; /* by which it is on its way; 0: it waits */
    char table[EMBD_NAME_MAX + 1];
    uint32_t n_rows, most_rows, n_candidates; /* most_rows: there is room for */
    bool is_gone;                             /* the candidates are keys to be forgotten */
    uint64_t width[ARRAYS];
    uint8_t *arrays[ARRAYS];
};

struct move_side {
    bool is_done;                /* it has sent its last rows */
    bool waits;                  /* it had none to send now: it is asked again */
    uint64_t again_ns;           /* then, or when nothing else is on its way */
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

/* With room for as many rows. */
static struct parcel *parcel_new(const struct block *b, uint32_t most_rows, uint32_t n_candidates)
{
    uint64_t bytes = sizeof(struct parcel), at[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        at[i] = bytes;
        bytes += (b->width[i] * (i < CANDIDATE_KEYS ? most_rows : n_candidates) + 7) / 8 * 8;
    }
    struct parcel *p = malloc(bytes);
    if (p == NULL)
        return NULL;
    *p = (struct parcel){.most_rows = most_rows};
    memcpy(p->table, b->table, sizeof p->table);
    memcpy(p->width, b->width, sizeof p->width);
    for (int i = 0; i < ARRAYS; i++)
        p->arrays[i] = (uint8_t *)p + at[i];
    return p;
}

/* Rows that come while a parcel waits go with it. In later rounds a shard may begin a cut again,
 * and send a key twice. */
static bool takes_more(const struct move_rows *m, const struct move_side *side,
                       const struct block *b, uint32_t n_rows)
{
    const struct parcel *p = side->last;
    return m->n_rounds == 1 && side->first != NULL && p->lane == 0 && p->n_candidates == 0 &&
           n_rows <= p->most_rows - p->n_rows && strcmp(p->table, b->table) == 0 &&
           memcmp(p->width, b->width, sizeof p->width) == 0;
}

static uint32_t room_for(const struct block *b, uint32_t n_rows)
{
    uint64_t most =
        PARCEL_BYTES / (b->width[KEYS] + b->width[SLOTS] + b->width[ROWS] + b->width[STATES]);
    return most > n_rows ? (uint32_t)most : n_rows;
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
    struct move_side *side = &m->sides[shard];
    bool goes_along = n_candidates == 0 && takes_more(m, side, b, n_rows);
    uint32_t most_rows = n_candidates == 0 ? room_for(b, n_rows) : n_rows;
    struct parcel *p = goes_along ? side->last : parcel_new(b, most_rows, n_candidates);
    if (p == NULL)
        return embd__error_set(&m->job->error, EMBD_NO_MEMORY, "no memory for %u rows that move",
                               n_rows);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (shard_of(m, b, KEYS, i) == shard)
            add_element(p, b, KEYS, CANDIDATE_KEYS, i, p->n_rows++);
    for (uint32_t i = 0; i < b->n_candidates; i++)
        if (shard_of(m, b, CANDIDATE_KEYS, i) == shard)
            add_element(p, b, CANDIDATE_KEYS, ARRAYS, i, p->n_candidates++);
    if (!goes_along)
        hand_over(side, p);
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

/* ---- requests ---- */

static void take(void *arg, uint32_t shard, uint32_t lane, struct reader *r)
{
    struct move_rows *m = arg;
    struct move_side *side = &m->sides[shard];
    struct block b = {.n_rows = 0};
    struct fields f;
    if (lane != READ_LANE) {
        r->next = r->n_items;
        return;
    }
    embd__read_fields(&f, r, "move");
    side->waits = embd__field_bool(&f, "waits", false);
    side->again_ns = monotonic_ns() + WAIT_NS;
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

static int refuse_request(struct move_rows *m, uint32_t shard)
{
    return embd__error_set(&m->job->error, EMBD_NO_MEMORY, "no memory to ask shard %u", shard);
}

static int ask_rows(struct move_rows *m, uint32_t shard, bool is_final)
{
    struct msg *msg = peers_add_to(m->job->peers, shard, READ_LANE, METHOD_MOVE, CLUSTER_ASK_MS);
    if (msg == NULL)
        return refuse_request(m, shard);
    embd__msg_map(msg, 3);
    embd__msg_field_str(msg, "phase", "read");
    embd__msg_field_uint(msg, "id", m->job->id);
    embd__msg_field_bool(msg, "final", is_final);
    return EMBD_OK;
}

static int ask_load(struct move_rows *m, uint32_t shard, struct parcel *p, uint32_t lane)
{
    struct msg *msg = peers_add_to(m->job->peers, shard, lane, METHOD_MOVE_LOAD, CLUSTER_ASK_MS);
    if (msg == NULL)
        return refuse_request(m, shard);
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
    p->lane = lane;
    return EMBD_OK;
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
static uint32_t count_readers(const struct move_rows *m, uint64_t rate)
{
    uint64_t n = rate / BLOCK_BYTES;
    if (!has_room(m))
        return 0;
    return rate == 0 || n >= m->job->n_shards ? m->job->n_shards : n > 0 ? (uint32_t)n : 1;
}

/* In the order in which they came: those on their way are the first. */
static void ask_loads(struct move_rows *m, uint32_t shard)
{
    struct parcel *p = m->sides[shard].first;
    while (p != NULL && p->lane != 0)
        p = p->next;
    for (uint32_t lane = READ_LANE + 1; p != NULL && lane < PEERS_LANES; lane++)
        if (!peers_is_busy(m->job->peers, shard, lane)) {
            if (ask_load(m, shard, p, lane) != EMBD_OK)
                return;
            p = p->next;
        }
}

/* What is to be asked of each shard. Returns of how many something is on its way. */
static uint32_t ask_all(struct move_rows *m, uint64_t rate, bool is_final)
{
    uint32_t n = 0, n_readers = count_readers(m, rate);
    for (uint32_t i = 0; i < m->job->n_shards && m->job->error.status == EMBD_OK; i++) {
        struct move_side *side = &m->sides[i];
        bool reads = peers_is_busy(m->job->peers, i, READ_LANE);
        ask_loads(m, i);
        bool may_ask = !side->waits || monotonic_ns() >= side->again_ns;
        if (!reads && !side->is_done && may_ask && n_readers > 0) {
            side->waits = false;
            reads = ask_rows(m, i, is_final) == EMBD_OK;
            n_readers--;
        }
        n += reads || side->first != NULL;
    }
    return n;
}

/* Loads that have ended are the first. */
static void end_loads(struct move_rows *m)
{
    for (uint32_t i = 0; i < m->job->n_shards; i++) {
        struct move_side *side = &m->sides[i];
        struct parcel *p;
        while ((p = side->first) != NULL && p->lane != 0 &&
               !peers_is_busy(m->job->peers, i, p->lane)) {
            side->first = p->next;
            side->n_parcels--;
            free(p);
        }
    }
}

/* Of what is on its way when something has failed, nothing else comes. */
static void end_all(struct move_rows *m)
{
    const struct peers_taker nobody = {.take = NULL};
    struct embd__error ignored = {.status = EMBD_OK};
    peers_wait(m->job->peers, &nobody, true, &ignored);
    for (uint32_t i = 0; m->sides != NULL && i < m->job->n_shards; i++) {
        struct parcel *next;
        for (struct parcel *p = m->sides[i].first; p != NULL; p = next) {
            next = p->next;
            free(p);
        }
        m->sides[i].first = NULL;
        m->sides[i].n_parcels = 0;
    }
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

static void begin_round(struct move_rows *m)
{
    m->round_rows = 0;
    m->n_rounds++;
    for (uint32_t i = 0; i < m->job->n_shards; i++)
        m->sides[i].is_done = m->sides[i].waits = false;
}

/* Nothing is on its way. Whether shards have rows that they cannot send now, which are asked again
 * after a while. */
static bool await_tables(struct move_rows *m, bool is_final, uint32_t *n_waits)
{
    bool any = false;
    for (uint32_t i = 0; i < m->job->n_shards; i++) {
        any |= m->sides[i].waits;
        m->sides[i].waits = false;
    }
    if (any && is_final && ++*n_waits == WAITS_HELD)
        embd__error_set(&m->job->error, EMBD_BUSY,
                        "tables are being compacted, and changes have waited for 1 s; "
                        "move the keys again");
    else if (any)
        nanosleep(&(struct timespec){0, WAIT_NS}, NULL);
    return any;
}

/* At a rate nothing is on its way while it is waited for. */
static int exchange(struct move_rows *m, enum move_round how, uint64_t rate)
{
    const struct peers_taker taker = {.take = take, .arg = m};
    struct job *job = m->job;
    uint64_t paid = m->bytes;
    if (peers_wait(job->peers, &taker, rate > 0, &job->error) != EMBD_OK)
        return job->error.status;
    end_loads(m);
    job_tell(job, 0, m->rows, m->bytes);
    return how == MOVE_PACED ? pace(m, m->bytes - paid) : EMBD_OK;
}

int move_rows_round(struct move_rows *m, enum move_round how)
{
    uint32_t n_waits = 0;
    struct embd__error *e = &m->job->error;
    begin_round(m);
    while (e->status == EMBD_OK) {
        uint64_t rate = how == MOVE_PACED ? job_rate(m->job) : 0;
        if (ask_all(m, rate, how == MOVE_FINAL) > 0)
            exchange(m, how, rate);
        else if (e->status == EMBD_OK && !await_tables(m, how == MOVE_FINAL, &n_waits))
            break;
    }
    if (e->status != EMBD_OK)
        end_all(m);
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
    if (m->sides != NULL && m->job->peers != NULL)
        end_all(m);
    free(m->sides);
}
