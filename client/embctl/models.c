/* models.c - embctl export and import: tables as model folders of HugeCTR. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/jobs.h"
#include "client/embctl/listing.h"
#include "client/embctl/transfer.h"
#include "client/embctl/settings.h"
#include "embd/hugectr.h"
#include "embd/admin.h"

/* ---- arguments ---- */

struct models {
    struct words words;
    const char *table, *state_file;
    bool wants_state;
    uint64_t index;
    struct job_arguments job; /* also of one table: options, settings, iteration */
};

enum {
    OPTION_FORMAT = 0x3000,
    OPTION_KEYS,
    OPTION_INDEX,
    OPTION_ITERATION,
    OPTION_GPUS,
    OPTION_STATE,
    OPTION_STATE_FILE,
    OPTION_GPU_ROWS,
    OPTION_STATE_DTYPE,
    OPTION_STEP,
    OPTION_JOB,
    OPTION_PREFIX,
    OPTION_MODEL,
    OPTION_EMPTY,
    OPTION_NO_STATE,
    OPTION_DRY_RUN,
};

/* Whether `arg` is the second of two names that it can be. */
static bool choice(struct argp_state *state, const char *option, const char *arg, const char *first,
                   const char *second)
{
    if (strcmp(arg, first) && strcmp(arg, second))
        argp_error(state, "--%s is '%s'; it can be %s or %s", option, arg, first, second);
    return !strcmp(arg, second);
}

static int parse_option(int key, char *arg, struct argp_state *state)
{
    struct models *m = state->input;
    switch (key) {
    case OPTION_FORMAT:
        if (strcmp(arg, "hugectr"))
            argp_error(state, "--format is '%s'; it can be hugectr", arg);
        return 0;
    case OPTION_KEYS:
        m->job.options.u32_keys = choice(state, "keys", arg, "i64", "u32");
        return 0;
    case OPTION_GPUS:
        m->job.options.n_gpus = (uint32_t)parse_uint(state, "--gpus", arg, 0, UINT32_MAX);
        m->job.has_gpus = true;
        return 0;
    case OPTION_GPU_ROWS:
        m->job.options.gpu_rows = parse_uint(state, "--gpu-rows", arg, 0, UINT64_MAX);
        return 0;
    case OPTION_STATE_DTYPE:
        m->job.options.state_dtype =
            choice(state, "state-dtype", arg, "f32", "f16") ? EMBD_DTYPE_F16 : EMBD_DTYPE_F32;
        return 0;
    case OPTION_INDEX:
        m->index = parse_uint(state, "--index", arg, 0, UINT32_MAX);
        return 0;
    case OPTION_ITERATION:
        m->job.iteration = parse_uint(state, "--iteration", arg, 0, UINT64_MAX);
        m->job.has_iteration = true;
        return 0;
    case OPTION_STEP:
        m->job.options.step = parse_uint(state, "--step", arg, 0, UINT64_MAX);
        m->job.has_step = true;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int parse_job(int key, char *arg, struct argp_state *state)
{
    struct job_arguments *job = &((struct models *)state->input)->job;
    switch (key) {
    case OPTION_JOB:
        job->file = arg;
        return 0;
    case OPTION_PREFIX:
        job->prefix = arg;
        return 0;
    case OPTION_MODEL:
        job->model = arg;
        return 0;
    case OPTION_EMPTY:
        job->is_empty = true;
        return 0;
    case OPTION_NO_STATE:
        job->skips_state = true;
        return 0;
    case OPTION_DRY_RUN:
        job->is_dry = true;
        return 0;
    default:
        return parse_option(key, arg, state);
    }
}

static int parse(int key, char *arg, struct argp_state *state)
{
    struct models *m = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[1] = &m->job.settings;
        return 0;
    case OPTION_STATE:
        m->wants_state = true;
        return 0;
    case OPTION_STATE_FILE:
        m->state_file = arg;
        return 0;
    case 't':
        m->table = arg;
        return 0;
    default:
        return parse_job(key, arg, state);
    }
}

/* ---- export ---- */

static const struct argp_option export_options[] = {
    {"format", OPTION_FORMAT, "NAME", 0, "hugectr, the only format (default)", 0},
    {"keys", OPTION_KEYS, "i64|u32", 0,
     "u32: a key beyond 32 bits is refused; both are 8 bytes in the file (default: i64)", 0},
    {"index", OPTION_INDEX, "I", 0, "Number of the embedding in the file names (default: 0)", 0},
    {"iteration", OPTION_ITERATION, "N", 0, "Iteration in the file names (default: 0)", 0},
    {"gpus", OPTION_GPUS, "N", 0, "GPUs of the job that will load it (default: 1)", 0},
    {"optimizer-state", OPTION_STATE, NULL, 0, "Write the optimizer's state as well", 0},
    {"gpu-rows", OPTION_GPU_ROWS, "ROWS", 0,
     "Rows of a GPU's state buffer, max_vocabulary_size_per_gpu of the job "
     "(default: as many as the fullest GPU needs)",
     0},
    {"state-dtype", OPTION_STATE_DTYPE, "f32|f16", 0,
     "Floats of the state file; f16: mixed precision (default: f32)", 0},
    {0},
};

/* <prefix><index>_<what>_<iteration>.model, malloc'd. */
static char *model_path(const struct models *m, const char *what)
{
    char *path;
    int n = asprintf(&path, "%s%llu_%s_%llu.model", m->words.list[1], (unsigned long long)m->index,
                     what, (unsigned long long)m->job.iteration);
    return n < 0 ? NULL : path;
}

struct exported {
    const struct models *m;
    const char *folder;
};

static int export_table(embd_client *client, void *arg, embd_progress *progress, void *told,
                        embd_dump_report *report)
{
    const struct exported *x = arg;
    return embd_hugectr_export(client, x->m->words.list[0], x->folder, &x->m->job.options, progress,
                               told, report);
}

int command_export(int argc, char **argv)
{
    static const struct argp argp = {
        .options = export_options,
        .parser = parse,
        .args_doc = "TABLE PREFIX",
        .doc =
            "Writes a table as the model folder PREFIX<I>_sparse_<N>.model of HugeCTR: key, "
            "emb_vector and, with partition = slot, slot_id; with --optimizer-state also the file "
            "PREFIX<I>_opt_sparse_<N>.model. One consistent cut. Pushes wait only for the moment "
            "of the cut; rows are read while they go on.\v"
            "Rows are ordered by GPU (slot % N with partition = slot, else key % N), slot and key, "
            "unsigned: the same bytes from any number of shards. Values are f32. " NEEDS_ADMINS "\n"
            "Examples:\n"
            "  embctl export items ./wdl --iteration 2000\n"
            "  embctl export ads ./dlrm --index 1 --gpus 8 --optimizer-state \\\n"
            "      --gpu-rows 1000000"};
    struct models m = {
        .words = {.min = 2, .max = 2, .wanted = "name a table and the prefix of the folder"}};
    embd_hugectr_options_init(&m.job.options);
    parse_command(&argp, argc, argv, &m);
    char *folder = model_path(&m, "sparse"), *state = model_path(&m, "opt_sparse");
    m.job.options.state_file = m.wants_state ? state : NULL;
    struct exported exported = {&m, folder};
    const struct transfer transfer = {.what = "export",
                                      .place = folder,
                                      .label = "export",
                                      .has_pause = true,
                                      .is_ahead = true,
                                      .run = export_table};
    int code = folder && state ? transfer_run(&transfer, &exported) : end_with(EMBD_NO_MEMORY, "");
    free(folder);
    free(state);
    return code;
}

/* ---- import: what came of it ---- */

static const struct column import_columns[] = {{"table", CELL_TEXT},
                                               {"directory", CELL_TEXT},
                                               {"rows", CELL_COUNT},
                                               {"bytes", CELL_BYTES},
                                               {"elapsed_us", CELL_MICROS}};

static void add_import(struct listing *l, const char *table, const char *folder,
                       const embd_dump_report *report, uint64_t elapsed_us)
{
    listing_row(l);
    listing_text(l, 0, table);
    listing_text(l, 1, folder);
    listing_uint(l, 2, report->rows);
    listing_uint(l, 3, report->bytes);
    listing_uint(l, 4, elapsed_us);
}

/* ---- import of one folder ---- */

/* The definition: that of the settings or, without any, of the existing table. */
static int find_schema(embd_client *client, const struct models *m, embd_schema *schema,
                       uint64_t *storage, char *why, size_t why_bytes)
{
    embd_table *table;
    if (m->job.settings.n)
        return settings_apply(&m->job.settings, m->table, schema, storage, why, why_bytes);
    int status = embd_table_open(client, m->table, &table);
    if (status == EMBD_OK)
        *schema = *embd_table_schema(table);
    else
        snprintf(why, why_bytes, "%s%s", embd_error_text(),
                 status == EMBD_UNKNOWN_TABLE ? " (use --dim N ... to create it)" : "");
    return status;
}

static int import_one(struct models *m)
{
    static uint64_t slot_sizes[EMBD_SLOTS_MAX];
    char why[512] = "";
    struct listing done;
    embd_dump_report report;
    uint64_t elapsed_us;
    embd_schema schema;
    embd_client *client;
    int status = connect_servers(&client);
    if (status)
        return status;
    status = find_schema(client, m, &schema, slot_sizes, why, sizeof why);
    if (status) {
        embd_close(client);
        return end_with(status, why);
    }
    listing_init(&done, "import", import_columns, 5);
    m->job.options.state_file = m->state_file;
    status = jobs_import_folder(client, &schema, m->words.list[0], &m->job.options, &report,
                                &elapsed_us);
    if (status == EMBD_OK) {
        add_import(&done, schema.name, m->words.list[0], &report, elapsed_us);
        listing_print_fields(&done);
    }
    listing_fini(&done);
    return end_client(client, status);
}

/* ---- import ---- */

static const struct argp_option import_options[] = {
    {"format", OPTION_FORMAT, "NAME", 0, "hugectr, the only format (default)", 0},
    {"table", 't', "NAME", 0, "The table to fill; it must be empty or not exist", 0},
    {"job", OPTION_JOB, "FILE", 0,
     "Import all tables of a HugeCTR job: FILE is its graph (model.graph_to_json) or a parameter "
     "server's configuration (ps.json)",
     0},
    {"ps", OPTION_JOB, "FILE", OPTION_ALIAS, NULL, 0},
    {"prefix", OPTION_PREFIX, "PREFIX", 0,
     "--job with a graph: what the files of the saved model begin with (default: FILE without its "
     "ending)",
     0},
    {"iteration", OPTION_ITERATION, "N", 0,
     "--job with a graph: iteration in the file names (default: the only one there is)", 0},
    {"model", OPTION_MODEL, "NAME", 0,
     "--job with a graph: tables are called NAME-TOP, TOP the embedding's (default: FILE's name)",
     0},
    {"empty", OPTION_EMPTY, NULL, 0, "--job: create the tables without rows", 0},
    {"no-optimizer-state", OPTION_NO_STATE, NULL, 0, "--job: do not read optimizer states", 0},
    {"dry-run", OPTION_DRY_RUN, NULL, 0,
     "--job: check all files and definitions, print what would be done, and change nothing", 0},
    {"keys", OPTION_KEYS, "i64|u32", 0, "u32: a key beyond 32 bits is refused (default: i64)", 0},
    {"optimizer-state", OPTION_STATE_FILE, "FILE", 0,
     "Read the optimizer's state as well; needs --gpus", 0},
    {"gpus", OPTION_GPUS, "N", 0, "GPUs of the job that wrote FILE (default: 1)", 0},
    {"gpu-rows", OPTION_GPU_ROWS, "ROWS", 0,
     "Rows of a GPU's state buffer in FILE (default: what follows from its size)", 0},
    {"state-dtype", OPTION_STATE_DTYPE, "f32|f16", 0,
     "Floats of the state file; f16: mixed precision (default: f32)", 0},
    {"step", OPTION_STEP, "N", 0,
     "Pushes the table has seen, which adam counts; the files do not contain it (default: 0; "
     "--job with a graph: the iteration)",
     0},
    {0},
};

static int usage(const char *what)
{
    fprintf(stderr, "embctl import: %s\n", what);
    return EXIT_USAGE;
}

static bool has_job_options(const struct job_arguments *job)
{
    return job->prefix || job->model || job->has_iteration || job->is_empty || job->skips_state ||
           job->is_dry;
}

int command_import(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&settings_argp, 0, "Definition of a table that is created:", 0}, {0}};
    static const struct argp argp = {
        .options = import_options,
        .parser = parse,
        .children = children,
        .args_doc = "FOLDER --table NAME\n--job FILE",
        .doc =
            "Fills a table from a model folder of HugeCTR, on any number of shards. Without --dim, "
            "--set and other fields of a definition, the table must exist and be empty.\v"
            "Sizes and slots are checked before anything changes; a file that is missing, "
            "truncated or foreign to the folder is refused. A folder with slot_id needs "
            "a table with partition = slot: rows go where their slot belongs. Without "
            "--optimizer-state rows start with the state of new ones.\n"
            "\n"
            "--job GRAPH: a table FILE-TOP for each sparse embedding, with the dim, slots, "
            "combiner "
            "and optimizer of the graph. Its capacity is what workspace_size_per_gpu_in_mb has "
            "room for on all GPUs of the job, divided by the shards; beyond it keys are refused, "
            "as there (--on-full says otherwise). The learning rate is not in the graph: --lr. "
            "All tables are imported or none.\n"
            "\n"
            "--job ps.json: a table MODEL-NAME for each folder in sparse_files, with dim, name and "
            "default value as the file says; relative paths count from here. They are looked up by "
            "key alone, so that slot_id is not read.\n"
            "\n"
            "Other members of the file are named on stderr.\n"
            "\n"
            "Examples:\n"
            "  embctl import wdl0_sparse_2000.model --table items --dim 16 --optimizer adam\n"
            "  embctl import dlrm1_sparse_0.model -t ads --dim 64 --slots 26 --partition slot\n"
            "  embctl import wdl0_sparse_2000.model -t items --dim 16 --optimizer adam \\\n"
            "      --gpus 8 --optimizer-state wdl0_opt_sparse_2000.model --step 2000\n"
            "  embctl import --job wdl.json --lr 0.001 --dry-run\n"
            "  embctl import --job ps.json"};
    struct models m = {.words = {.max = 1}};
    int code;
    embd_hugectr_options_init(&m.job.options);
    parse_command(&argp, argc, argv, &m);
    if (m.job.file && (m.words.n || m.table || m.state_file))
        code = usage("--job names the folders and tables; remove FOLDER, --table and "
                     "--optimizer-state");
    else if (!m.job.file && has_job_options(&m.job))
        code = usage("--prefix, --iteration, --model, --empty, --no-optimizer-state and --dry-run "
                     "need --job");
    else if (!m.job.file && (!m.words.n || !m.table))
        code = usage("name a folder and, with --table, a table; or --job FILE");
    else
        code = m.job.file ? jobs_import(&m.job) : import_one(&m);
    settings_fini(&m.job.settings);
    return code;
}
