/* move_job.c - keys move to a later map of shards while trainers go on.
 *
 * The happy path: `move begin` brings the map to all shards. Rows that leave are read and loaded
 * where they come to, in rounds (move_rows.c): first all of them, then what has changed since the
 * round before, until that is little. Then all shards are held; the last round is read and loaded;
 * the map takes the place of the one before, on all shards or on none (cluster_replace.c). Pushes
 * that came meanwhile go on, and their clients split them again. At last the shards remove the rows
 * that left; when they have, the job is done.
 *
 * What can fail before shard 0 has the map changes nothing: the connections end, and shards remove
 * what came. Behind it nothing is undone. */
#include <time.h>

#include "proto/placement_wire.h"
#include "server/coordinator/cluster_hold.h"
#include "server/coordinator/cluster_replace.h"
#include "server/coordinator/move_rows.h"

#define LITTLE_ROWS 1024u     /* are moved under the hold without another round before */
#define ROUNDS_SURE 8u        /* rounds behind the first, in which shards read ever faster */
#define ROUNDS_MAX  20u       /* where each further one has less than 3/4 of the one before */
#define LOOK_NS     50000000u /* whether rows are removed, or followers ready */
#define READY_LOOKS 400u      /* as many */

/* What leaves the shards, about. */
struct leaving {
    uint64_t rows, bytes;
};

/* Servers of earlier versions do not say it. */
static void take_begun(void *arg, uint32_t shard, struct reader *r)
{
    struct leaving *leaving = arg;
    struct fields f;
    (void)shard;
    embd__read_fields(&f, r, "move");
    leaving->rows += embd__field_uint(&f, "rows", 0, UINT64_MAX, 0);
    leaving->bytes += embd__field_uint(&f, "bytes", 0, UINT64_MAX, 0);
    embd__fields_end(&f);
}

static int begin_all(struct job *job)
{
    struct leaving leaving = {0};
    for (uint32_t shard = 0; shard < job->n_shards; shard++) {
        struct msg *m = peers_add(job->peers, shard, METHOD_MOVE, CLUSTER_ASK_MS);
        embd__msg_map(m, 3);
        embd__msg_field_str(m, "phase", "begin");
        embd__msg_field_uint(m, "id", job->id);
        embd__placement_write(m, &job->order.place);
    }
    peers_run(job->peers, take_begun, &leaving, &job->error);
    job_tell_expected(job, leaving.rows, leaving.bytes);
    return job->error.status;
}

/* A round may be no smaller than the one before, since the next one reads faster. At a rate none
 * does. */
static bool is_sure(const struct move_rows *m, enum move_round how, uint32_t rounds)
{
    bool is_paced = how == MOVE_PACED && m->is_paced;
    return rounds <= (is_paced ? 1 : ROUNDS_SURE);
}

/* While pushes go on: rounds, until there is little to copy, or it becomes hardly less. */
static int copy(struct move_rows *m, enum move_round how)
{
    uint64_t before;
    uint32_t rounds = 0;
    do {
        before = m->round_rows;
        if (!job_enter(m->job, JOB_READ) || move_rows_round(m, how) != EMBD_OK)
            return m->job->error.status;
        rounds++;
    } while (m->round_rows > LITTLE_ROWS && rounds < ROUNDS_MAX &&
             (is_sure(m, how, rounds) || m->round_rows < before / 4 * 3));
    return EMBD_OK;
}

/* At the rate, where there is one. Rows that trainers change faster than that are copied without
 * it: else they would be left for the hold, and pushes wait for them. */
static int copy_all(struct move_rows *m)
{
    if (copy(m, MOVE_PACED) != EMBD_OK || !m->is_paced || m->round_rows <= LITTLE_ROWS)
        return m->job->error.status;
    return copy(m, MOVE_UNPACED);
}

static int change_map(struct move_rows *m)
{
    struct job *job = m->job;
    const struct cluster_replace replace = {
        .id = job->id, .decision = job->id, .n_shards = job->n_shards, .is_place = true};
    if (move_rows_round(m, MOVE_FINAL) != EMBD_OK ||
        cluster_check_replace(job->peers, &replace, &job->error) != EMBD_OK ||
        !job_enter(job, JOB_COMMIT))
        return job->error.status;
    return cluster_apply_replace(job->peers, &replace, &job->error);
}

static int move_held(struct move_rows *m)
{
    struct job *job = m->job;
    uint64_t pause_us = 0;
    if (!job_enter(job, JOB_HOLD) ||
        cluster_hold(job->peers, job->n_shards, true, &pause_us, &job->error) != EMBD_OK)
        return job->error.status;
    change_map(m);
    cluster_release(job->peers, job->n_shards, &pause_us);
    job_tell_pause(job, pause_us);
    return job->error.status;
}

/* ---- rows that left ---- */

static void take_state(void *arg, uint32_t shard, struct reader *r)
{
    uint32_t *n_moving = arg;
    struct fields f;
    (void)shard;
    embd__read_fields(&f, r, "move");
    embd__field_uint(&f, "version", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "removed", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_uint(&f, "unready", 0, UINT16_MAX, 0);
    *n_moving += embd__field_bool(&f, "moving", false);
    embd__fields_end(&f);
}

static void ask_state(struct job *job, uint32_t n_shards)
{
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        struct msg *msg = peers_add(job->peers, shard, METHOD_MOVE, CLUSTER_ASK_MS);
        embd__msg_map(msg, 1);
        embd__msg_field_str(msg, "phase", "state");
    }
}

/* The keys have moved: what fails here is no failure of the move, and shards go on by themselves.
 */
void move_job_await_removal(struct job *job)
{
    struct embd__error ignored = {.status = EMBD_OK};
    uint32_t n_moving = 1;
    while (n_moving > 0 && ignored.status == EMBD_OK && job_enter(job, JOB_KEEP)) {
        n_moving = 0;
        ask_state(job, job->order.place.n_shards);
        if (peers_run(job->peers, take_state, &n_moving, &ignored) == EMBD_OK && n_moving > 0)
            nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    job->error = (struct embd__error){0};
}

/* Servers of earlier versions, which have no followers then, do not say it. */
static void take_unready(void *arg, uint32_t shard, struct reader *r)
{
    uint32_t *n_unready = arg;
    struct fields f;
    (void)shard;
    embd__read_fields(&f, r, "move");
    *n_unready += (uint32_t)embd__field_uint(&f, "unready", 0, UINT16_MAX, 0);
}

void move_job_await_followers(struct job *job)
{
    uint32_t n_unready = 1;
    for (uint32_t looks = 0; n_unready > 0 && looks < READY_LOOKS; looks++) {
        n_unready = 0;
        ask_state(job, job->n_shards);
        if (peers_run(job->peers, take_unready, &n_unready, &job->error) != EMBD_OK ||
            !job_enter(job, JOB_BEGIN))
            return;
        if (n_unready > 0)
            nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
}

void move_job_run(struct job *job)
{
    struct move_rows m = {.job = job};
    if (move_rows_init(&m) == EMBD_OK && job_enter(job, JOB_BEGIN) && begin_all(job) == EMBD_OK &&
        copy_all(&m) == EMBD_OK && move_held(&m) == EMBD_OK && job_renew(job) == EMBD_OK)
        move_job_await_removal(job);
    move_rows_fini(&m);
}
