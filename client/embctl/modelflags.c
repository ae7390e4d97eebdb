/* modelflags.c - parses the options of embctl export and import. */
#include <string.h>

#include "client/embctl/models.h"

/* Whether `arg` is the second of two names that it can be. */
static bool choice(struct argp_state *state, const char *option, const char *arg, const char *first,
                   const char *second)
{
    if (strcmp(arg, first) && strcmp(arg, second))
        argp_error(state, "--%s is '%s'; it can be %s or %s", option, arg, first, second);
    return !strcmp(arg, second);
}

static void set_format(struct argp_state *state, struct models *m, const char *arg)
{
    bool is_import = m->words.max == 1;
    m->foreign.format = is_import ? foreign_format_of(arg) : FOREIGN_NONE;
    m->has_format = true;
    if (m->foreign.format == FOREIGN_NONE && strcmp(arg, "hugectr") != 0)
        argp_error(state, "--format is '%s'; it can be hugectr%s", arg,
                   is_import ? ", sok, tfra, hkv or dynamicemb" : "");
}

static void set_keys(struct argp_state *state, struct models *m, const char *arg)
{
    m->foreign.key = !strcmp(arg, "i32")   ? EMBD_ARRAYS_I32
                     : !strcmp(arg, "u32") ? EMBD_ARRAYS_U32
                                           : EMBD_ARRAYS_64;
    if (m->foreign.key != EMBD_ARRAYS_I32)
        m->job.options.u32_keys = choice(state, "keys", arg, "i64", "u32");
}

static void set_dtype(struct argp_state *state, struct models *m, const char *arg)
{
    for (int dtype = EMBD_DTYPE_F32; dtype <= EMBD_DTYPE_BF16; dtype++)
        if (!strcmp(arg, embd_dtype_name((embd_dtype)dtype))) {
            m->foreign.dtype = (embd_dtype)dtype;
            return;
        }
    argp_error(state, "--value-dtype is '%s'; it can be f32, f16 or bf16", arg);
}

static int parse_foreign(int key, char *arg, struct argp_state *state)
{
    struct models *m = state->input;
    switch (key) {
    case OPTION_ONLY:
        m->foreign.only = arg;
        return 0;
    case OPTION_VALUE_DTYPE:
        set_dtype(state, m, arg);
        return 0;
    case OPTION_SCORES:
        m->foreign.counts = choice(state, "scores", arg, "ignore", "counts");
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int parse_option(int key, char *arg, struct argp_state *state)
{
    struct models *m = state->input;
    switch (key) {
    case OPTION_FORMAT:
        set_format(state, m, arg);
        return 0;
    case OPTION_KEYS:
        set_keys(state, m, arg);
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
        return parse_foreign(key, arg, state);
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

int models_parse(int key, char *arg, struct argp_state *state)
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
