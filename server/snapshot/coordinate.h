/* coordinate.h - the phases of `snapshot` by which an admin, or the trainer of a job, has this
 * server make a snapshot over all shards, or an admin a cut whose rows it fetches
 * (server/coordinator). */
#ifndef EMBD_SNAPSHOT_COORDINATE_H
#define EMBD_SNAPSHOT_COORDINATE_H

#include "server/coordinator/coordinator.h"
#include "server/service/state.h"

enum coordinate {
    COORDINATE_START,
    COORDINATE_PROGRESS,
    COORDINATE_GO,
    COORDINATE_CANCEL,
    COORDINATE_RATE
};

#define COORDINATE_TOKEN_MAX 256u
#define COORDINATE_CA_MAX    (1u << 20)

struct coordinate_request {
    struct job_order order; /* but for name, proof and lists */
    uint64_t job;
    bool sets_rate; /* to order.rate */
    char token[COORDINATE_TOKEN_MAX + 1];
    bool has_ca, believes_system;
};

void coordinate_read(struct call *call, struct fields *f, enum coordinate what,
                     struct coordinate_request *out);
/* Reads the rest of the request, does it and answers. */
int coordinate(struct call *call, struct fields *f, enum coordinate what, const char *name,
               struct coordinate_request *request);

#endif
