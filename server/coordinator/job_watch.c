/* job_watch.c - the jobs that a coordinator remembers, for those who ask: how far one is, that it
 * may go on, that it is to end. */
#include "server/coordinator/coordinator_inside.h"
#include "server/coordinator/job.h"

#include <string.h>
#include <time.h>

/* ---- the list, with the mutex held ---- */

struct job_report *coordinator_newest(struct coordinator *c)
{
    return &c->jobs[c->n_jobs - 1];
}

static bool is_seen(const struct job_viewer *viewer, const struct job_report *report)
{
    return viewer->may_see == NULL || viewer->may_see(viewer->arg, report);
}

static struct job_report *find(struct coordinator *c, const struct job_viewer *viewer,
                               const char *name)
{
    for (uint32_t i = c->n_jobs; i > 0; i--)
        if ((name[0] == '\0' || strcmp(c->jobs[i - 1].name, name) == 0) &&
            is_seen(viewer, &c->jobs[i - 1]))
            return &c->jobs[i - 1];
    return NULL;
}

static bool is_running(struct coordinator *c, const struct job_viewer *viewer, const char *name)
{
    return c->runs && strcmp(coordinator_newest(c)->name, name) == 0 &&
           is_seen(viewer, coordinator_newest(c));
}

/* A commit goes on: the snapshot is complete in one process and not in another meanwhile. So does
 * the clean-up after a cancelled job, until the server ends. */
void coordinator_end_job(struct coordinator *c)
{
    bool cleans_up = c->is_cancelled && !c->is_stopped;
    c->is_cancelled = true;
    if (c->is_open && !cleans_up && coordinator_newest(c)->phase != JOB_COMMIT)
        peers_stop(c->job->peers);
    pthread_cond_broadcast(&c->news);
}

/* ---- watching ---- */

static int refuse_name(const char *name, struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           name[0] != '\0'
                               ? "this server knows no snapshot '%s': none was started since the "
                                 "server's start, or eight later ones were"
                               : "no snapshot was started on this server since its start",
                           name);
}

int coordinator_look(struct coordinator *c, const struct job_viewer *viewer, const char *name,
                     struct job_report *out, struct embd__error *e)
{
    pthread_mutex_lock(&c->mutex);
    const struct job_report *found = find(c, viewer, name);
    if (found != NULL) {
        *out = *found;
        if (found->state == JOB_RUNNING)
            out->elapsed_us = (monotonic_ns() - c->began_ns) / 1000;
    }
    pthread_mutex_unlock(&c->mutex);
    return found != NULL ? EMBD_OK : refuse_name(name, e);
}

static int refuse_rate(struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID, "snapshot rate: no keys are being moved from here");
}

int coordinator_set_rate(struct coordinator *c, const char *name, uint64_t rate,
                         struct job_report *out, struct embd__error *e)
{
    pthread_mutex_lock(&c->mutex);
    struct job_report *job = c->runs ? coordinator_newest(c) : NULL;
    bool is_it = job != NULL && job->is_move && (name[0] == '\0' || strcmp(job->name, name) == 0);
    if (is_it) {
        pace_set(&c->pace, rate, monotonic_ns());
        job->rate = rate;
        *out = *job;
        pthread_cond_broadcast(&c->news);
    }
    pthread_mutex_unlock(&c->mutex);
    return is_it ? EMBD_OK : refuse_rate(e);
}

void coordinator_leave(struct coordinator *c, uint64_t id)
{
    pthread_mutex_lock(&c->mutex);
    const struct job_report *job = c->runs ? coordinator_newest(c) : NULL;
    if (job != NULL && job->id == id && !c->goes && (job->is_read || job->phase <= JOB_FILES)) {
        c->is_left = true;
        coordinator_end_job(c);
    }
    pthread_mutex_unlock(&c->mutex);
}

void coordinator_hear(struct coordinator *c, const struct job_viewer *viewer, const char *name)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->mutex);
    if (is_running(c, viewer, name))
        c->heard_ns = monotonic_ns();
    pthread_mutex_unlock(&c->mutex);
}

void coordinator_hear_files(struct coordinator *c, const char *name, uint64_t bytes)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->mutex);
    if (is_running(c, &(struct job_viewer){NULL, NULL}, name)) {
        c->heard_ns = monotonic_ns();
        c->files_bytes += bytes;
    }
    pthread_mutex_unlock(&c->mutex);
}

int coordinator_go(struct coordinator *c, const struct job_viewer *viewer, const char *name,
                   uint64_t id, struct embd__error *e)
{
    pthread_mutex_lock(&c->mutex);
    bool is_it = is_running(c, viewer, name) && coordinator_newest(c)->id == id;
    c->goes = c->goes || is_it;
    pthread_cond_broadcast(&c->news);
    pthread_mutex_unlock(&c->mutex);
    return is_it
               ? EMBD_OK
               : embd__error_set(e, EMBD_INVALID, "snapshot go: no job '%s' of that id runs", name);
}

int coordinator_cancel(struct coordinator *c, const struct job_viewer *viewer, const char *name,
                       struct embd__error *e)
{
    pthread_mutex_lock(&c->mutex);
    if (!is_running(c, viewer, name))
        embd__error_set(e, EMBD_INVALID, "snapshot cancel: no job '%s' runs here", name);
    else if (coordinator_newest(c)->phase == JOB_COMMIT || coordinator_newest(c)->phase == JOB_KEEP)
        embd__error_set(e, EMBD_BUSY,
                        "snapshot '%s' is being committed: it will be complete in a moment", name);
    else
        coordinator_end_job(c);
    pthread_mutex_unlock(&c->mutex);
    return e->status;
}
