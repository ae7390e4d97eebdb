/* hugectr_import.c - embd_hugectr_import: fills a table from a HugeCTR model folder.
 *
 * The happy path: open the files and compare their sizes; read `key` and `slot_id` once to check
 * each of them; look whether a table is in the way; create it; read all files once more, block by
 * block, and send every row to the shard that owns its slot or key here; set the step counter. What
 * can fail: the files (then nothing has changed), a table in the way (likewise), or a shard while
 * rows are sent: the table that this import created is then dropped again. A key that is there
 * twice shows in the end, when the table has fewer rows than were sent. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "dtype.h"
#include "hugectr_state.h"
#include "scatter.h"
#include "ticker.h"
#include "vacancy.h"

#define CHUNK_BYTES (4u << 20) /* of rows read at a time */
#define CHUNK_ROWS  (64u << 10)

struct importing {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const embd_schema *schema;
    const embd_hugectr_options *options;
    const char *path;
    struct hugectr_folder folder;
    struct state_reader state; /* open only with options->state_file */
    bool has_slots, has_state_file;
    uint32_t n_state; /* floats of state beside a row */
    struct scatter scatter;
    struct ticker ticker;
    /* A block being read: arrays of `capacity` rows, one allocation. */
    uint32_t capacity;
    void *memory;
    uint64_t *keys, *wide_slots;
    uint16_t *slots;
    float *vectors, *states;
    uint8_t *rows;
};

/* ---- the block ---- */

static void *cut(uint8_t **next, size_t bytes)
{
    void *piece = *next;
    *next += (bytes + 63) / 64 * 64;
    return piece;
}

static int allocate(struct importing *m)
{
    size_t dim = m->schema->dim, row_bytes = (2 * dim + m->n_state) * sizeof(float);
    size_t n = CHUNK_BYTES / row_bytes;
    n = n < 1 ? 1 : n > CHUNK_ROWS ? CHUNK_ROWS : n;
    uint8_t *next = m->memory = aligned_alloc(64, (n * (row_bytes + 18) + 12 * 64) / 64 * 64);
    if (!next)
        return embd__error_set(m->e, EMBD_NO_MEMORY, "no memory to read %s", m->path);
    m->capacity = (uint32_t)n;
    m->keys = cut(&next, n * sizeof *m->keys);
    m->wide_slots = cut(&next, n * sizeof *m->wide_slots);
    m->slots = cut(&next, n * sizeof *m->slots);
    m->vectors = cut(&next, n * dim * sizeof(float));
    m->rows = cut(&next, n * dim * sizeof(float));
    m->states = cut(&next, n * m->n_state * sizeof(float));
    return EMBD_OK;
}

static int check_keys(struct importing *m, uint64_t first, uint32_t n)
{
    for (uint32_t i = 0; m->options->u32_keys && i < n; i++)
        if (m->keys[i] > UINT32_MAX)
            return embd__error_set(m->e, EMBD_INVALID,
                                   "%s: row %" PRIu64 " has key %" PRIu64
                                   ", which is beyond 32 bits",
                                   m->folder.key.path, first + i, m->keys[i]);
    for (uint32_t i = 0; m->has_slots && i < n; i++) {
        if (m->wide_slots[i] >= m->schema->slots)
            return embd__error_set(
                m->e, EMBD_CORRUPT,
                "%s: row %" PRIu64 " has slot %" PRIu64 ", the table has %" PRIu32,
                m->folder.slot.path, first + i, m->wide_slots[i], m->schema->slots);
        m->slots[i] = (uint16_t)m->wide_slots[i];
    }
    return EMBD_OK;
}

static int read_keys(struct importing *m, uint64_t first, uint32_t n)
{
    if (embd__plain_read(&m->folder.key, 8 * first, m->keys, 8 * (uint64_t)n, m->e))
        return m->e->status;
    if (m->has_slots &&
        embd__plain_read(&m->folder.slot, 8 * first, m->wide_slots, 8 * (uint64_t)n, m->e))
        return m->e->status;
    return check_keys(m, first, n);
}

static uint32_t gpu_of(const struct importing *m, uint32_t i)
{
    return embd__hugectr_gpu(m->schema, m->options->n_gpus, m->has_slots ? m->slots[i] : 0,
                             m->keys[i]);
}

/* The rows from `first` on that fit into the block. */
static uint32_t block_rows(const struct importing *m, uint64_t first)
{
    uint64_t left = m->folder.n_rows - first;
    return left < m->capacity ? (uint32_t)left : m->capacity;
}

/* ---- before anything changes ---- */

static int open_files(struct importing *m)
{
    struct hugectr_wanted wanted = {
        .dim = m->schema->dim,
        .has_slots = m->has_slots,
        .ignore_slots = m->options->ignore_slots,
        .why_no_slots =
            "the table's partition is not slot: a localized embedding has rows of (slot, "
            "key)"};
    if (embd__hugectr_open(&m->folder, m->path, &wanted, m->e))
        return m->e->status;
    m->has_state_file = m->options->state_file != NULL;
    return m->has_state_file ? embd__state_open(&m->state, m->schema, m->options, m->e) : EMBD_OK;
}

/* Reads all keys and slots, for what is wrong with them and for the keys of each GPU. */
static int count_gpus(struct importing *m, uint64_t *counts)
{
    for (uint64_t first = 0; first < m->folder.n_rows;) {
        uint32_t n = block_rows(m, first);
        if (read_keys(m, first, n))
            return m->e->status;
        for (uint32_t i = 0; i < n; i++)
            counts[gpu_of(m, i)]++;
        first += n;
        if (embd__ticker_add(&m->ticker, n, (m->has_slots ? 16 : 8) * (uint64_t)n, m->e))
            return m->e->status;
    }
    return m->has_state_file ? embd__state_check(&m->state, counts, m->e) : EMBD_OK;
}

static int check(struct importing *m, embd_progress *progress, void *arg)
{
    if (embd__hugectr_check(m->options, m->e) || embd__schema_check(m->schema, m->e) ||
        open_files(m) || allocate(m))
        return m->e->status;
    uint64_t *counts = calloc(m->options->n_gpus, sizeof *counts);
    if (!counts)
        return embd__error_set(m->e, EMBD_NO_MEMORY, "no memory for the keys of %" PRIu32 " GPUs",
                               m->options->n_gpus);
    embd__ticker_begin(&m->ticker, progress, arg, m->folder.n_rows);
    if (count_gpus(m, counts) == EMBD_OK)
        embd__ticker_end(&m->ticker, m->e);
    free(counts);
    return m->e->status;
}

/* ---- rows ---- */

/* The value that new rows' state starts at, as the servers have it. */
static float first_state(const embd_optimizer *o)
{
    bool accumulates = o->kind == EMBD_ADAGRAD || o->kind == EMBD_ROWWISE_ADAGRAD;
    return accumulates ? o->initial_accumulator : 0.0f;
}

static int read_states(struct importing *m, uint32_t n)
{
    float first = first_state(&m->schema->optimizer);
    uint32_t n_own = embd__schema_optimizer_floats(m->schema); /* stamps and uses start at 0 */
    for (size_t i = 0; !m->has_state_file && i < (size_t)n * m->n_state; i++)
        m->states[i] = i % m->n_state < n_own ? first : 0.0f;
    for (uint32_t i = 0; m->has_state_file && i < n; i++)
        if (embd__state_next(&m->state, gpu_of(m, i), m->states + (size_t)i * m->n_state, m->e))
            return m->e->status;
    return EMBD_OK;
}

static int send_rows(struct importing *m, uint64_t first, uint32_t n)
{
    size_t dim = m->schema->dim;
    uint64_t row_bytes = 4 * dim;
    if (read_keys(m, first, n) ||
        embd__plain_read(&m->folder.vector, first * row_bytes, m->vectors, n * row_bytes, m->e))
        return m->e->status;
    bool is_f32 = m->schema->dtype == EMBD_F32;
    if (!is_f32)
        embd__from_f32(m->rows, m->schema->dtype, m->vectors, n * dim);
    if (read_states(m, n))
        return m->e->status;
    struct row_block block = {.n_rows = n,
                              .keys = m->keys,
                              .slots = m->has_slots ? m->slots : NULL,
                              .rows = is_f32 ? (const void *)m->vectors : m->rows,
                              .states = m->n_state ? m->states : NULL};
    if (embd__scatter_block(&m->scatter, &block))
        return m->e->status;
    return embd__ticker_add(&m->ticker, n, n * (row_bytes + (m->has_slots ? 16 : 8)), m->e);
}

/* Fewer rows than keys were sent: some were the same. */
static int check_distinct(struct importing *m)
{
    uint64_t rows = 0;
    for (uint32_t shard = 0; shard < embd_shard_count(m->client); shard++) {
        struct description found;
        if (embd__admin_describe(m->client, shard, m->schema->name, &found))
            return m->e->status;
        rows += found.rows;
        embd__schema_fini(&found.schema);
    }
    if (rows >= m->folder.n_rows)
        return EMBD_OK;
    return embd__error_set(m->e, EMBD_CORRUPT,
                           "%s: has %" PRIu64 " keys, but only %" PRIu64 " different ones",
                           m->folder.key.path, m->folder.n_rows, rows);
}

static int send_all(struct importing *m)
{
    for (uint64_t first = 0; first < m->folder.n_rows;) {
        uint32_t n = block_rows(m, first);
        if (send_rows(m, first, n))
            return m->e->status;
        first += n;
    }
    if (embd__scatter_finish(&m->scatter) || check_distinct(m))
        return m->e->status;
    for (uint32_t shard = 0; shard < embd_shard_count(m->client); shard++)
        if (embd__admin_set_step(m->client, shard, m->schema, m->options->step))
            return m->e->status;
    return embd__ticker_end(&m->ticker, m->e);
}

/* ---- the phases ---- */

/* After a failure, keeping its error. */
static void undo(struct importing *m)
{
    struct embd__error kept = *m->e;
    embd_table_drop(m->client, m->schema->name);
    *m->e = kept;
}

static int fill(struct importing *m, embd_progress *progress, void *arg)
{
    int is_new = embd__vacancy(m->client, m->schema, m->path);
    if (is_new < 0)
        return is_new;
    embd__ticker_begin(&m->ticker, progress, arg, m->folder.n_rows);
    int status = embd_table_create(m->client, m->schema);
    if (status == EMBD_OK)
        status = embd__scatter_open(&m->scatter, m->client, m->schema);
    if (status == EMBD_OK)
        status = send_all(m);
    if (status && is_new)
        undo(m);
    return status;
}

static void fini(struct importing *m)
{
    embd__scatter_close(&m->scatter);
    embd__hugectr_close(&m->folder);
    embd__state_close(&m->state);
    free(m->memory);
}

EMBD_API int embd_hugectr_import(embd_client *client, const embd_schema *schema, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out)
{
    embd_hugectr_options defaults;
    embd_hugectr_options_init(&defaults);
    struct importing m = {.client = client,
                          .e = embd__client_error(client),
                          .schema = schema,
                          .options = options ? options : &defaults,
                          .path = folder,
                          .has_slots = schema->partition == EMBD_SLOT,
                          .n_state = embd__schema_state_floats(schema),
                          .folder = {{.fd = -1}, {.fd = -1}, {.fd = -1}, 0},
                          .state = {.file = {.fd = -1}}};
    *m.e = (struct embd__error){0};
    int status = check(&m, progress, arg);
    if (status == EMBD_OK)
        status = fill(&m, progress, arg);
    if (status == EMBD_OK && report_out)
        *report_out = (embd_dump_report){
            .rows = m.folder.n_rows,
            .bytes = m.folder.key.bytes + (m.has_slots ? m.folder.slot.bytes : 0) +
                     m.folder.vector.bytes + (m.has_state_file ? m.state.file.bytes : 0)};
    fini(&m);
    return status;
}
