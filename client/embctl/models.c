/* models.c - embctl export and import: tables as model folders of HugeCTR. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/progress.h"
#include "client/embctl/psjson.h"
#include "client/embctl/transfer.h"
#include "client/embctl/settings.h"
#include "embd/hugectr.h"
#include "embd/admin.h"

/* ---- arguments ---- */

struct models {
    struct words words;
    const char *table, *state_file, *ps;
    bool wants_state;
    uint64_t index, iteration;
    embd_hugectr_options options;
    struct settings settings;
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
    OPTION_PS,
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
        m->options.u32_keys = choice(state, "keys", arg, "i64", "u32");
        return 0;
    case OPTION_GPUS:
        m->options.n_gpus = (uint32_t)parse_uint(state, "--gpus", arg, 0, UINT32_MAX);
        return 0;
    case OPTION_GPU_ROWS:
        m->options.gpu_rows = parse_uint(state, "--gpu-rows", arg, 0, UINT64_MAX);
        return 0;
    case OPTION_STATE_DTYPE:
        m->options.state_dtype =
            choice(state, "state-dtype", arg, "f32", "f16") ? EMBD_DTYPE_F16 : EMBD_DTYPE_F32;
        return 0;
    case OPTION_INDEX:
        m->index = parse_uint(state, "--index", arg, 0, UINT32_MAX);
        return 0;
    case OPTION_ITERATION:
        m->iteration = parse_uint(state, "--iteration", arg, 0, UINT64_MAX);
        return 0;
    case OPTION_STEP:
        m->options.step = parse_uint(state, "--step", arg, 0, UINT64_MAX);
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int parse(int key, char *arg, struct argp_state *state)
{
    struct models *m = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[1] = &m->settings;
        return 0;
    case OPTION_STATE:
        m->wants_state = true;
        return 0;
    case OPTION_STATE_FILE:
        m->state_file = arg;
        return 0;
    case OPTION_PS:
        m->ps = arg;
        return 0;
    case 't':
        m->table = arg;
        return 0;
    default:
        return parse_option(key, arg, state);
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
                     what, (unsigned long long)m->iteration);
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
    return embd_hugectr_export(client, x->m->words.list[0], x->folder, &x->m->options, progress,
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
    embd_hugectr_options_init(&m.options);
    parse_command(&argp, argc, argv, &m);
    char *folder = model_path(&m, "sparse"), *state = model_path(&m, "opt_sparse");
    m.options.state_file = m.wants_state ? state : NULL;
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
static const struct column ignored_columns[] = {{"key", CELL_TEXT}};

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

static int import_folder(embd_client *client, const embd_schema *schema, const char *folder,
                         const embd_hugectr_options *options, struct listing *done)
{
    struct progress progress;
    embd_dump_report report;
    progress_begin(&progress, "check", "import");
    int status =
        embd_hugectr_import(client, schema, folder, options, progress_report, &progress, &report);
    uint64_t elapsed_us = progress_end(&progress);
    if (status == EMBD_OK)
        add_import(done, schema->name, folder, &report, elapsed_us);
    return status;
}

/* ---- import of one folder ---- */

/* The definition: that of the settings or, without any, of the existing table. */
static int find_schema(embd_client *client, const struct models *m, embd_schema *schema,
                       uint64_t *storage, char *why, size_t why_bytes)
{
    embd_table *table;
    if (m->settings.n)
        return settings_apply(&m->settings, m->table, schema, storage, why, why_bytes);
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
    m->options.state_file = m->state_file;
    status = import_folder(client, &schema, m->words.list[0], &m->options, &done);
    if (status == EMBD_OK)
        listing_print_fields(&done);
    listing_fini(&done);
    return end_client(client, status);
}

/* ---- import of the tables of a ps.json ---- */

/* Applies the file's definition of a table, then that of the command line. */
static int ps_schema(const struct models *m, const struct ps_table *table, embd_schema *schema,
                     uint64_t *storage, char *why, size_t why_bytes)
{
    char dim[16], value[32];
    snprintf(dim, sizeof dim, "%u", table->dim);
    snprintf(value, sizeof value, "%.9g", (double)table->default_value);
    const struct setting own[] = {{"dim", dim},
                                  {"combiner", "concat"},
                                  {"initializer", "constant"},
                                  {"initializer.a", value}};
    size_t n_own = sizeof own / sizeof own[0];
    struct settings all = {.list = calloc(n_own + m->settings.n, sizeof *all.list)};
    if (!all.list)
        return EMBD_NO_MEMORY;
    memcpy(all.list, own, sizeof own);
    if (m->settings.n)
        memcpy(all.list + n_own, m->settings.list, m->settings.n * sizeof *all.list);
    all.n = n_own + m->settings.n;
    int status = settings_apply(&all, table->name, schema, storage, why, why_bytes);
    settings_fini(&all);
    return status;
}

static int import_ps_table(embd_client *client, struct models *m, const struct ps_table *table,
                           struct listing *done, bool *is_new_out, char *why, size_t why_bytes)
{
    uint64_t slot_sizes[EMBD_SLOTS_MAX];
    embd_schema schema;
    embd_table *unused;
    int status = ps_schema(m, table, &schema, slot_sizes, why, why_bytes);
    if (status)
        return status;
    *is_new_out = embd_table_open(client, table->name, &unused) == EMBD_UNKNOWN_TABLE;
    status = import_folder(client, &schema, table->folder, &m->options, done);
    if (status)
        snprintf(why, why_bytes, "%s", embd_error_text());
    return status;
}

/* All tables, or none: after a failure those that this command made are dropped. */
static int import_ps_tables(embd_client *client, struct models *m, const struct ps_file *ps,
                            struct listing *done, char *why, size_t why_bytes)
{
    int status = EMBD_OK;
    bool *is_new = calloc(ps->n_tables + 1, sizeof *is_new);
    size_t i = 0;
    if (!is_new)
        return EMBD_NO_MEMORY;
    for (; i < ps->n_tables && status == EMBD_OK; i++)
        status = import_ps_table(client, m, &ps->tables[i], done, &is_new[i], why, why_bytes);
    for (size_t j = 0; status && j + 1 < i; j++)
        if (is_new[j])
            embd_table_drop(client, ps->tables[j].name);
    free(is_new);
    return status;
}

static void tell_ignored(const struct ps_file *ps, const char *path, struct listing *l)
{
    for (size_t i = 0; i < ps->n_ignored; i++) {
        fprintf(stderr, "embctl: %s: ignoring %s\n", path, ps->ignored[i]);
        listing_row(l);
        listing_text(l, 0, ps->ignored[i]);
    }
}

static int import_ps_file(struct models *m, const struct ps_file *ps)
{
    char why[1024] = "";
    struct listing done, ignored;
    embd_client *client;
    int status = connect_servers(&client);
    if (status)
        return status;
    listing_init(&done, "import", import_columns, 5);
    listing_init(&ignored, "ignored", ignored_columns, 1);
    m->options.u32_keys = m->options.u32_keys || ps->u32_keys;
    m->options.ignore_slots = true;
    tell_ignored(ps, m->ps, &ignored);
    status = import_ps_tables(client, m, ps, &done, why, sizeof why);
    if (status == EMBD_OK)
        listing_print_pair(&done, &ignored);
    listing_fini(&done);
    listing_fini(&ignored);
    embd_close(client);
    return end_with(status, why);
}

static int import_ps(struct models *m)
{
    struct ps_file ps;
    char why[1024] = "";
    int status = ps_read(m->ps, &ps, why, sizeof why);
    int code = status ? end_with(status, why) : import_ps_file(m, &ps);
    ps_fini(&ps);
    return code;
}

/* ---- import ---- */

static const struct argp_option import_options[] = {
    {"format", OPTION_FORMAT, "NAME", 0, "hugectr, the only format (default)", 0},
    {"table", 't', "NAME", 0, "The table to fill; it must be empty or not exist", 0},
    {"ps", OPTION_PS, "FILE", 0,
     "Import all tables that this configuration of a parameter server (ps.json) names", 0},
    {"keys", OPTION_KEYS, "i64|u32", 0, "u32: a key beyond 32 bits is refused (default: i64)", 0},
    {"optimizer-state", OPTION_STATE_FILE, "FILE", 0,
     "Read the optimizer's state as well; needs --gpus", 0},
    {"gpus", OPTION_GPUS, "N", 0, "GPUs of the job that wrote FILE (default: 1)", 0},
    {"gpu-rows", OPTION_GPU_ROWS, "ROWS", 0,
     "Rows of a GPU's state buffer in FILE (default: what follows from its size)", 0},
    {"state-dtype", OPTION_STATE_DTYPE, "f32|f16", 0,
     "Floats of the state file; f16: mixed precision (default: f32)", 0},
    {"step", OPTION_STEP, "N", 0,
     "Pushes the table has seen, which adam counts; the files do not contain it (default: 0)", 0},
    {0},
};

static int usage(const char *what)
{
    fprintf(stderr, "embctl import: %s\n", what);
    return EXIT_USAGE;
}

int command_import(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&settings_argp, 0, "Definition of a table that is created:", 0}, {0}};
    static const struct argp argp = {
        .options = import_options,
        .parser = parse,
        .children = children,
        .args_doc = "FOLDER --table NAME\n--ps FILE",
        .doc =
            "Fills a table from a model folder of HugeCTR, on any number of shards. Without --dim, "
            "--set and other fields of a definition, the table must exist and be empty.\v"
            "Sizes and slots are checked before anything changes; a file that is missing, "
            "truncated or foreign to the folder is refused. A folder with slot_id needs "
            "a table with partition = slot: rows go where their slot belongs. Without "
            "--optimizer-state rows start with the state of new ones.\n"
            "\n"
            "--ps: a table MODEL-NAME for each folder in sparse_files, with dim, name and default "
            "value as the file says; relative paths count from here. They are looked up by key "
            "alone, so that slot_id is not read. Other members of the file are named on stderr.\n"
            "\n"
            "Examples:\n"
            "  embctl import wdl0_sparse_2000.model --table items --dim 16 --optimizer adam\n"
            "  embctl import dlrm1_sparse_0.model -t ads --dim 64 --slots 26 --partition slot\n"
            "  embctl import wdl0_sparse_2000.model -t items --dim 16 --optimizer adam \\\n"
            "      --gpus 8 --optimizer-state wdl0_opt_sparse_2000.model --step 2000\n"
            "  embctl import --ps ps.json"};
    struct models m = {.words = {.max = 1}};
    int code;
    embd_hugectr_options_init(&m.options);
    parse_command(&argp, argc, argv, &m);
    if (m.ps && (m.words.n || m.table || m.state_file))
        code = usage("--ps names the folders and tables; remove FOLDER, --table and "
                     "--optimizer-state");
    else if (!m.ps && (!m.words.n || !m.table))
        code = usage("name a folder and, with --table, a table; or --ps FILE");
    else
        code = m.ps ? import_ps(&m) : import_one(&m);
    settings_fini(&m.settings);
    return code;
}
