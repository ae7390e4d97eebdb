/* models.c - embctl export: a table as a model folder of HugeCTR. */
#include <stdio.h>
#include <stdlib.h>

#include "client/embctl/models.h"
#include "client/embctl/transfer.h"
#include "embd/admin.h"
#include "embd/hugectr.h"

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
        .parser = models_parse,
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
