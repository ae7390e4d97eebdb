/* models.h - the arguments of embctl export and import. */
#ifndef EMBCTL_MODELS_H
#define EMBCTL_MODELS_H

#include "client/embctl/embctl.h"
#include "client/embctl/foreign.h"
#include "client/embctl/jobs.h"

struct models {
    struct words words;
    const char *table, *state_file;
    bool wants_state;
    uint64_t index;
    struct job_arguments job;         /* also of one table: options, settings, iteration */
    struct foreign_arguments foreign; /* what a folder of another system has beside these */
    bool has_format;
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
    OPTION_ONLY,
    OPTION_VALUE_DTYPE,
    OPTION_SCORES,
};

/* A parser of these options and of words; its input is a struct models, whose words.max is 1 for an
 * import. */
int models_parse(int key, char *arg, struct argp_state *state);

#endif
