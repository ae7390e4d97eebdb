/* disk_phase.c - see disk_phase.h. */
#include "server/snapshot/disk_phase.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/files/errand.h"
#include "server/snapshot/snapshot_rights.h"
#include "server/snapshot/snapshot_watch.h"

struct disk_phase *disk_phase_new(struct shard *shard, struct call *call,
                                  const struct disk_phase_order *order, struct embd__error *e)
{
    const struct disk_phase *other = shard->disk_phase;
    if (other != NULL) {
        embd__error_set(e, EMBD_BUSY,
                        "snapshot %s '%s': the disk is still busy with %s of a snapshot%s; try "
                        "again",
                        order->what, order->name, other->order.what,
                        snapshot_shown_name(call, other->name).text);
        return NULL;
    }
    struct disk_phase *phase = calloc(1, sizeof *phase);
    if (phase == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for snapshot %s", order->what);
        return NULL;
    }
    phase->order = *order;
    phase->shard = shard;
    phase->request = call != NULL ? call->request : NULL;
    phase->session = call != NULL ? call->request->session : NULL;
    memcpy(phase->name, order->name, strlen(order->name)); /* its length was checked */
    phase->in.data_dir = shard->data_dir;
    phase->in.dir = -1;
    return phase;
}

static void take_use(struct shard *shard, struct snapshot_use *use)
{
    if (!use->is_known)
        return;
    snapshot_use_fini(&shard->snapshot_use);
    shard->snapshot_use = *use;
    *use = (struct snapshot_use){.n = 0};
}

/* The result's head is written before its fields. */
static void finish(struct disk_phase *phase)
{
    struct request *request = phase->request;
    struct msg *m = request != NULL && phase->error.status == EMBD_OK ? &request->answer : NULL;
    phase->shard->disk_phase = NULL;
    take_use(phase->shard, &phase->in.use);
    if (m != NULL)
        embd__msg_result(m, request->frame->msgid);
    phase->order.done(phase, m);
    if (m != NULL)
        embd__msg_end(m);
    if (phase->in.dir >= 0)
        close(phase->in.dir);
    free(phase->in.text);
    free(phase->in.base_tables.names);
}

static void on_thread(void *arg)
{
    struct disk_phase *phase = arg;
    phase->order.run(phase);
}

static void begin(struct disk_phase *phase)
{
    const struct shard_config *config = &phase->shard->config;
    const struct errand_config errand = {on_thread, phase, config->wake, config->wake_arg};
    if (phase->error.status != EMBD_OK)
        return;
    if (config->wake == NULL)
        phase->order.run(phase);
    else if ((phase->errand = errand_start(&errand)) == NULL)
        embd__error_set(&phase->error, EMBD_NO_MEMORY, "no thread for snapshot %s",
                        phase->order.what);
}

int disk_phase_start(struct disk_phase *phase, struct embd__error *e)
{
    struct shard *shard = phase->shard;
    shard->disk_phase = phase;
    begin(phase);
    if (phase->errand != NULL)
        return CALL_LATER;
    if (phase->error.status == EMBD_OK) {
        disk_phase_close(shard);
        return CALL_LATER;
    }
    finish(phase);
    *e = phase->error;
    free(phase);
    return e->status;
}

void disk_phase_close(struct shard *shard)
{
    struct disk_phase *phase = shard->disk_phase;
    if (phase == NULL)
        return;
    if (phase->errand != NULL)
        errand_end(phase->errand);
    finish(phase);
    if (phase->error.status != EMBD_OK && phase->request != NULL)
        snapshot_watch_failed(shard, phase->order.what, phase->name, &phase->error);
    if (phase->request != NULL)
        call_answer(shard, phase->request, &phase->error);
    free(phase);
}

void disk_phase_collect(struct shard *shard)
{
    if (shard->disk_phase != NULL && errand_is_over(shard->disk_phase->errand))
        disk_phase_close(shard);
}

/* Bytes of the request that the thread reads stay until it has read them. */
void disk_phase_forget(struct shard *shard, const struct request *request)
{
    struct disk_phase *phase = shard->disk_phase;
    if (phase == NULL || phase->request != request)
        return;
    phase->request = NULL;
    if (phase->in.piece.data != NULL)
        disk_phase_close(shard);
}

void disk_phase_leave(struct shard *shard, const struct shard_session *session)
{
    if (shard->disk_phase != NULL && shard->disk_phase->session == session)
        shard->disk_phase->session = NULL;
}

bool disk_phase_has_cut(const struct shard *shard)
{
    return shard->disk_phase != NULL && shard->disk_phase->in.cut != NULL;
}
