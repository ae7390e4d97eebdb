/* imports.c - embctl import: tables from model folders of HugeCTR, one or all of a job (jobs.c), or
 * from folders of other systems (foreign.c). */
#include <stdio.h>
#include <string.h>

#include "client/embctl/listing.h"
#include "client/embctl/models.h"
#include "embd/admin.h"
#include "embd/hugectr.h"

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
    {"format", OPTION_FORMAT, "NAME", 0,
     "hugectr, sok, tfra, hkv or dynamicemb (default: what the names of the files say, else "
     "hugectr)",
     0},
    {"table", 't', "NAME", 0,
     "The table to fill; it must be empty or not exist. Formats other than hugectr: what the "
     "folder's one table is called here (default: as there, in lower case)",
     0},
    {"only", OPTION_ONLY, "NAME", 0,
     "Formats other than hugectr: import the table that is called NAME there (default: all)", 0},
    {"value-dtype", OPTION_VALUE_DTYPE, "f32|f16|bf16", 0,
     "tfra, hkv: values in the files, which do not say it (default: f32)", 0},
    {"scores", OPTION_SCORES, "ignore|counts", 0,
     "hkv: counts: scores are how often keys were touched (kLfu), for a table with evict_lfu "
     "(default: ignore)",
     0},
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
    {"no-optimizer-state", OPTION_NO_STATE, NULL, 0,
     "--job, formats other than hugectr: do not read optimizer states", 0},
    {"dry-run", OPTION_DRY_RUN, NULL, 0,
     "--job, formats other than hugectr: check all files and definitions, print what an import "
     "would do, and change nothing",
     0},
    {"keys", OPTION_KEYS, "i64|u32|i32", 0,
     "u32: a key beyond 32 bits is refused. tfra, hkv: u32 and i32 are keys of 4 bytes (default: "
     "i64)",
     0},
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
    return job->prefix || job->model || job->has_iteration || job->is_empty;
}

static bool has_foreign_options(const struct foreign_arguments *f)
{
    return f->only || f->dtype != EMBD_DTYPE_F32 || f->counts || f->key == EMBD_ARRAYS_I32;
}

static int import_foreign(struct models *m)
{
    m->foreign.folder = m->words.list[0];
    m->foreign.table = m->table;
    m->foreign.skips_state = m->job.skips_state;
    m->foreign.is_dry = m->job.is_dry;
    m->foreign.step = m->job.options.step;
    m->foreign.has_step = m->job.has_step;
    m->foreign.settings = m->job.settings;
    if (m->state_file || m->job.has_gpus || m->job.options.gpu_rows || m->job.options.state_dtype)
        return usage("--optimizer-state, --gpus, --gpu-rows and --state-dtype are for hugectr; "
                     "other formats find the states in the folder");
    return foreign_import(&m->foreign);
}

static int import_folder(struct models *m)
{
    if (!m->has_format && m->words.n)
        m->foreign.format = foreign_detect(m->words.list[0]);
    if (has_job_options(&m->job))
        return usage("--prefix, --iteration, --model and --empty need --job");
    if (m->foreign.format != FOREIGN_NONE && m->words.n)
        return import_foreign(m);
    if (m->job.skips_state || m->job.is_dry || has_foreign_options(&m->foreign))
        return usage(
            "--no-optimizer-state and --dry-run need --job or another format than hugectr, "
            "--only, --value-dtype, --scores and --keys i32 another format");
    if (!m->words.n || !m->table)
        return usage("name a folder and, with --table, a table; or --job FILE");
    return import_one(m);
}

int command_import(int argc, char **argv)
{
    static const struct argp_child children[] = {
        {&settings_argp, 0, "Definition of a table that is created:", 0}, {0}};
    static const struct argp argp = {
        .options = import_options,
        .parser = models_parse,
        .children = children,
        .args_doc = "FOLDER --table NAME\n--job FILE\nFOLDER --format NAME",
        .doc =
            "Fills a table from a model folder of HugeCTR, or tables from files of SOK, TensorFlow "
            "Recommenders Addons, HierarchicalKV or DynamicEmb, on any number of shards. Without "
            "--dim, --set and other fields of a definition, a table for a model folder must exist "
            "and be empty.\v"
            "Sizes and slots are checked before anything changes; a file that is missing, "
            "truncated or foreign to the folder is refused. A folder with slot_id needs "
            "a table with partition = slot: rows go where their slot belongs. Without "
            "--optimizer-state rows start with the state of new ones.\n"
            "\n"
            "--job GRAPH: a table FILE-TOP for each sparse embedding, with the dim, slots, "
            "combiner "
            "and optimizer of the graph. Its capacity is what workspace_size_per_gpu_in_mb has "
            "room for on all GPUs of the job, divided by the shards; beyond it keys are refused, "
            "as there, unless --on-full is given. The learning rate is not in the graph: --lr. "
            "All tables are imported or none.\n"
            "\n"
            "--job ps.json: a table MODEL-NAME for each folder in sparse_files, with dim, name and "
            "default value as the file says; relative paths count from here. They are looked up by "
            "key alone, so that slot_id is not read.\n"
            "\n"
            "Other members of the file are named on stderr.\n"
            "\n"
            "--format sok, tfra, hkv or dynamicemb: all tables of a folder that sok.dump, "
            "save_to_file_system, LocalKVFile or DynamicEmbDump wrote, each under its name there. "
            "dim follows from the sizes of the files, the optimizer from the names of its states "
            "(dynamicemb: from the file of its parameters); --dim, --optimizer and --set override "
            "them. Without such options a table that exists keeps its definition. States of "
            "optimizers whose formula differs here are refused; --no-optimizer-state leaves them "
            "out. All tables are imported or none; what is not read is named on stderr.\n"
            "\n"
            "Examples:\n"
            "  embctl import wdl0_sparse_2000.model --table items --dim 16 --optimizer adam\n"
            "  embctl import dlrm1_sparse_0.model -t ads --dim 64 --slots 26 --partition slot\n"
            "  embctl import wdl0_sparse_2000.model -t items --dim 16 --optimizer adam \\\n"
            "      --gpus 8 --optimizer-state wdl0_opt_sparse_2000.model --step 2000\n"
            "  embctl import --job wdl.json --lr 0.001 --dry-run\n"
            "  embctl import --job ps.json\n"
            "  embctl import ./dump --format dynamicemb --dry-run\n"
            "  embctl import ./sok_weights --lr 0.001 --step 2000"};
    struct models m = {.words = {.max = 1}};
    int code;
    embd_hugectr_options_init(&m.job.options);
    parse_command(&argp, argc, argv, &m);
    if (m.job.file && (m.words.n || m.table || m.state_file || m.foreign.format ||
                       has_foreign_options(&m.foreign)))
        code = usage("--job names the folders and tables; remove FOLDER, --table, --format, "
                     "--optimizer-state and what other formats have");
    else
        code = m.job.file ? jobs_import(&m.job) : import_folder(&m);
    settings_fini(&m.job.settings);
    return code;
}
