/* jobs.c - embctl import --job: makes and fills all tables of a HugeCTR job.
 *
 * The happy path: read the file; find each table's folder and state file; work out each table's
 * definition, whose capacity is what HugeCTR's workspace has room for; check all folders; then
 * import table after table. What can fail: anything before the first import, and then nothing has
 * changed; or an import, and then the tables that this command made are dropped again. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/embctl/embctl.h"
#include "client/embctl/importall.h"
#include "client/embctl/jobfile.h"
#include "client/embctl/jobfiles.h"
#include "client/embctl/jobs.h"
#include "client/embctl/listing.h"
#include "client/embctl/progress.h"

/* One table on its way. */
struct moving {
    const struct job_table *table;
    char *folder, *state_file; /* NULL: none */
    struct import_table to;
    embd_hugectr_options options;
};

struct job {
    const struct job_arguments *a;
    struct job_file file;
    char *model, *prefix; /* as given, or from the file's name */
    uint64_t iteration;
    embd_client *client;
    struct moving *tables; /* [file.n_tables] */
    char why[1024];
};

static int refuse(struct job *j, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct job *j, int status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(j->why, sizeof j->why, format, list);
    va_end(list);
    return status;
}

/* ---- what bounds a table in HugeCTR ---- */

/* Keys of the fullest GPU, where a slot's keys are slot_sizes[slot] and it lies on GPU slot % n. */
static uint64_t largest_gpu(const struct job_table *table, uint32_t n_gpus)
{
    uint64_t largest = 0;
    for (uint32_t gpu = 0; gpu < n_gpus; gpu++) {
        uint64_t sum = 0;
        for (size_t slot = gpu; slot < table->n_slot_sizes; slot += n_gpus)
            sum += table->slot_sizes[slot];
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

/* The job's GPUs: its rows by those of one GPU. */
static int find_gpus(struct job *j, struct moving *m, uint64_t gpu_rows)
{
    uint64_t all = m->table->global_rows;
    if (gpu_rows == 0 || all == 0)
        return EMBD_OK;
    if (all % gpu_rows != 0 || all / gpu_rows > UINT32_MAX)
        return refuse(j, EMBD_INVALID,
                      "%s: max_vocabulary_size_global of '%s' is %" PRIu64
                      "; workspace_size_per_gpu_in_mb %" PRIu64 " is room for %" PRIu64
                      " rows on each GPU; expected a multiple of that",
                      j->a->file, m->table->name, all, m->table->workspace_mb, gpu_rows);
    uint32_t n_gpus = (uint32_t)(all / gpu_rows);
    if (j->a->has_gpus && n_gpus != m->options.n_gpus)
        return refuse(j, EMBD_INVALID, "--gpus is %" PRIu32 "; %s is of a job with %" PRIu32,
                      m->options.n_gpus, j->a->file, n_gpus);
    m->options.n_gpus = n_gpus;
    return EMBD_OK;
}

/* Rows of a GPU, which a state file has as well; then a shard's share of all. */
static int find_bounds(struct job *j, struct moving *m, uint64_t *capacity)
{
    const struct job_table *table = m->table;
    uint64_t gpu_rows = 0, shards = embd_shard_count(j->client);
    *capacity = 0;
    if (table->workspace_mb > 0 &&
        embd_hugectr_gpu_rows(&m->to.schema, table->workspace_mb, &gpu_rows) != EMBD_OK)
        return refuse(j, EMBD_UNSUPPORTED, "%s", embd_error_text());
    if (find_gpus(j, m, gpu_rows) != EMBD_OK)
        return EMBD_INVALID;
    if (table->slot_sizes)
        gpu_rows = largest_gpu(table, m->options.n_gpus);
    if (m->options.gpu_rows == 0)
        m->options.gpu_rows = gpu_rows;
    if (gpu_rows > 0)
        *capacity = (gpu_rows * m->options.n_gpus + shards - 1) / shards;
    return EMBD_OK;
}

/* ---- definitions ---- */

static void add(struct settings *s, const char *field, const char *value)
{
    s->list[s->n++] = (struct setting){field, value};
}

static int apply(struct job *j, struct moving *m)
{
    return settings_apply(&m->to.all, m->table->name, &m->to.schema, m->to.slot_sizes, j->why,
                          sizeof j->why);
}

/* The file's definition, the capacity that follows from it, then the command line's. */
static int define(struct job *j, struct moving *m)
{
    const struct job_table *table = m->table;
    const struct settings *given = &j->a->settings;
    char capacity_text[24];
    uint64_t capacity;
    m->to.all.list = calloc(table->n_own + 2 + given->n, sizeof *m->to.all.list);
    if (!m->to.all.list)
        return refuse(j, EMBD_NO_MEMORY, "no memory");
    for (size_t i = 0; i < table->n_own; i++)
        add(&m->to.all, table->own[i].field, table->own[i].value);
    int status = apply(j, m);
    if (status == EMBD_OK)
        status = find_bounds(j, m, &capacity);
    if (status != EMBD_OK)
        return status;
    snprintf(capacity_text, sizeof capacity_text, "%" PRIu64, capacity);
    if (capacity > 0) {
        add(&m->to.all, "capacity", capacity_text);
        add(&m->to.all, "on_full", "error");
    }
    for (size_t i = 0; i < given->n; i++)
        add(&m->to.all, given->list[i].field, given->list[i].value);
    return apply(j, m);
}

static bool has_field(const struct settings *s, const char *field)
{
    for (size_t i = 0; i < s->n; i++)
        if (!strcmp(s->list[i].field, field))
            return true;
    return false;
}

/* ---- files ---- */

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static int find_state(struct job *j, struct moving *m, size_t number)
{
    if (j->a->skips_state || m->to.schema.optimizer.kind == EMBD_OPTIMIZER_SGD)
        return EMBD_OK;
    m->state_file = job_state_file(j->prefix, number, j->iteration);
    if (!m->state_file)
        return refuse(j, EMBD_NO_MEMORY, "no memory");
    if (!exists(m->state_file))
        return refuse(j, EMBD_IO,
                      "%s: cannot open: %s; use --no-optimizer-state to begin with new states",
                      m->state_file, strerror(errno));
    m->options.state_file = m->state_file;
    return EMBD_OK;
}

/* Where the table's rows are, and its state. */
static int find_files(struct job *j, struct moving *m, size_t number)
{
    if (j->a->is_empty)
        return EMBD_OK;
    m->folder =
        m->table->folder ? strdup(m->table->folder) : job_folder(j->prefix, number, j->iteration);
    if (!m->folder)
        return refuse(j, EMBD_NO_MEMORY, "no memory");
    return j->file.is_graph ? find_state(j, m, number) : EMBD_OK;
}

/* ---- import ---- */

int jobs_import_folder(embd_client *client, const embd_schema *schema, const char *folder,
                       const embd_hugectr_options *options, embd_dump_report *report,
                       uint64_t *elapsed_us)
{
    struct progress progress;
    progress_begin(&progress, "check", "import");
    int status =
        embd_hugectr_import(client, schema, folder, options, progress_report, &progress, report);
    *elapsed_us = progress_end(&progress);
    return status;
}

static struct import_table *table_of(void *arg, size_t i)
{
    return &((struct job *)arg)->tables[i].to;
}

static int run_one(void *arg, size_t i, bool checks, embd_dump_report *report, uint64_t *elapsed_us)
{
    struct job *j = arg;
    struct moving *m = &j->tables[i];
    m->options.check_only = checks;
    return jobs_import_folder(j->client, &m->to.schema, m->folder, &m->options, report, elapsed_us);
}

/* ---- preparation ---- */

/* Names that follow from the file's own. */
static int find_names(struct job *j)
{
    j->model = j->a->model ? strdup(j->a->model) : job_name_of(j->a->file);
    j->prefix = j->a->prefix ? strdup(j->a->prefix) : job_prefix_of(j->a->file);
    return j->model && j->prefix ? EMBD_OK : refuse(j, EMBD_NO_MEMORY, "no memory");
}

static int find_iteration(struct job *j)
{
    j->iteration = j->a->iteration;
    if (!j->file.is_graph || j->a->is_empty || j->a->has_iteration)
        return EMBD_OK;
    return job_find_iteration(j->prefix, &j->iteration, j->why, sizeof j->why) ? EMBD_IO : EMBD_OK;
}

/* A graph has neither learning rate nor, in old ones, an optimizer. */
static int check_settings(struct job *j)
{
    const struct settings *given = &j->a->settings;
    if (!j->file.is_graph)
        return EMBD_OK;
    if (!has_field(given, "optimizer.lr"))
        return refuse(j, EMBD_INVALID,
                      "%s has no learning rate, which HugeCTR's solver has: set --lr X",
                      j->a->file);
    for (size_t i = 0; i < j->file.n_tables; i++) {
        bool has_own = false;
        for (size_t k = 0; k < j->file.tables[i].n_own; k++)
            has_own |= !strcmp(j->file.tables[i].own[k].field, "optimizer");
        if (!has_own && !has_field(given, "optimizer"))
            return refuse(j, EMBD_INVALID, "%s: '%s' has no member 'optimizer': set --optimizer",
                          j->a->file, j->file.tables[i].name);
    }
    return EMBD_OK;
}

static int prepare(void *arg)
{
    struct job *j = arg;
    const struct job_arguments *a = j->a;
    j->tables = calloc(j->file.n_tables + 1, sizeof *j->tables);
    int status = j->tables ? check_settings(j) : refuse(j, EMBD_NO_MEMORY, "no memory");
    if (status == EMBD_OK)
        status = find_iteration(j);
    for (size_t i = 0; i < j->file.n_tables && status == EMBD_OK; i++) {
        struct moving *m = &j->tables[i];
        m->table = &j->file.tables[i];
        m->options = a->options;
        m->options.u32_keys |= j->file.u32_keys;
        m->options.ignore_slots = !j->file.is_graph;
        if (j->file.is_graph && !a->has_step)
            m->options.step = j->iteration;
        status = define(j, m);
        if (status == EMBD_OK)
            status = find_files(j, m, i);
        m->to.place = m->folder;
        m->to.state_file = m->state_file;
        m->to.n_gpus = m->options.n_gpus;
    }
    return status;
}

static void fini(struct job *j)
{
    for (size_t i = 0; j->tables && i < j->file.n_tables; i++) {
        free(j->tables[i].folder);
        free(j->tables[i].state_file);
        settings_fini(&j->tables[i].to.all);
    }
    free(j->tables);
    free(j->model);
    free(j->prefix);
    job_fini(&j->file);
}

static int run(struct job *j)
{
    const struct import_all all = {.client = j->client,
                                   .path = j->a->file,
                                   .file = &j->file,
                                   .is_empty = j->a->is_empty,
                                   .is_dry = j->a->is_dry,
                                   .prepare = prepare,
                                   .table = table_of,
                                   .run = run_one,
                                   .arg = j,
                                   .why = j->why,
                                   .why_bytes = sizeof j->why};
    return import_all(&all);
}

int jobs_import(const struct job_arguments *a)
{
    struct job j = {.a = a};
    int status = find_names(&j);
    if (status == EMBD_OK)
        status = job_read(a->file, j.model, &j.file, j.why, sizeof j.why);
    int code = status == EMBD_OK ? connect_servers(&j.client) : end_with(status, j.why);
    if (code == EXIT_DONE) {
        code = end_with(run(&j), j.why);
        embd_close(j.client);
    }
    fini(&j);
    return code;
}
