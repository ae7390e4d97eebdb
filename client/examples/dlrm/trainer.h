/* trainer.h - the model on a cluster: embeddings there, the dense part here. */
#ifndef DLRM_TRAINER_H
#define DLRM_TRAINER_H

#include "client/examples/dlrm/click_log.h"
#include "client/examples/dlrm/model.h"

#define DLRM_TABLE "dlrm"

/* One batch on its way: samples, and the rows of their keys, later the rows' gradients. */
typedef struct stage {
    embd_batch *batch; /* the reader's */
    float *rows;       /* [batch_samples * SLOTS][DIM] */
    embd_call *call;   /* the pull or push that uses them, or NULL */
} stage;

typedef struct trainer {
    embd_client *client;
    embd_table *table;
    model model;
    uint32_t batch_samples;
    uint32_t threads; /* of the reader */
    bool prefetch;    /* the next rows travel while this batch is computed */
    stage stages[2];
} trainer;

typedef struct pass_report {
    uint64_t samples;
    double loss;             /* mean, of learning */
    double auc, planted_auc; /* of evaluation */
    double seconds;
    double pull_us,
        waited_us; /* a pull takes, and was waited for when its rows were needed; means */
} pass_report;

/* Connects and creates the table; one that is there already, of the same definition, keeps its
 * rows. All functions: false with a sentence on stderr. The trainer is to be closed after a failure
 * too. */
bool trainer_open(trainer *t, const char *servers, uint32_t batch_samples, uint32_t threads,
                  bool prefetch);
void trainer_close(trainer *t);

/* One pass over a data set, norm:LIST or raw:FILE. Evaluation changes nothing. */
bool trainer_learn(trainer *t, const char *data, pass_report *report_out);
bool trainer_evaluate(trainer *t, const char *data, pass_report *report_out);

#endif
