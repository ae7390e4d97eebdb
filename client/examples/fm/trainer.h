/* trainer.h - the model's tables on the cluster, and passes over samples that pull from and push
 * to them. */
#ifndef FM_TRAINER_H
#define FM_TRAINER_H

#include "client/examples/fm/auc.h"
#include "client/examples/fm/sampler.h"

#include <embd/embd.h>

#define LINEAR_TABLE  "fm-linear"
#define FACTORS_TABLE "fm-factors"

/* One batch on its way: keys out, values in, gradients out. */
typedef struct stage {
    batch samples;
    float *linear;   /* [room * SLOTS] pooled weights, then their gradient */
    float *factors;  /* [room * SLOTS][dim] */
    embd_call *call; /* the pull or push that uses the arrays, or NULL */
} stage;

typedef struct trainer {
    embd_client *client;
    embd_table *linear, *factors;
    uint32_t dim;
    stage stages[2]; /* one is computed while the other is pulled */
} trainer;

typedef struct pass_report {
    uint64_t samples;
    uint64_t keys;
    double loss; /* mean */
    double auc;  /* evaluation only */
    double seconds;
} pass_report;

/* Connects; creates the two tables unless `existing`, where it takes them (and their dim) as
 * they are. All functions: false with a sentence on stderr. The trainer is to be closed also
 * after a failure. */
bool trainer_open(trainer *t, const char *servers, uint32_t dim, uint32_t room, bool existing);
void trainer_close(trainer *t);

/* One pass over the samples with a push for every batch. */
bool trainer_learn(trainer *t, sampler *samples, pass_report *report_out);

/* One pass without pushes. The rows are pooled by the client, in the order of the keys, so that
 * the result is the same to the last bit for any number of shards. */
bool trainer_evaluate(trainer *t, sampler *samples, pass_report *report_out);

/* Pulls factor rows of single keys into rows [n_keys][dim]. */
bool trainer_pull_factors(trainer *t, const uint64_t *keys, uint32_t n_keys, float *rows);

#endif
