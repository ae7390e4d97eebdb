/* writing.c - see writing.h. The mutex hands the blocks over and back; their content is touched
 * without it. The thread syncs files, so that no other thread waits for the disk. */
#include "server/files/writing.h"

#include <pthread.h>
#include <stdlib.h>

#include "server/files/thread.h"
#include "server/files/whole.h"

/* Owner: the thread that started it, but for what is marked. */
struct writing {
    struct part_rows rows; /* first; the writing thread's */
    const struct writing_config *config;
    pthread_t thread;
    struct manifest_part
        *parts; /* [n_tables] the writing thread's until it has ended; so is error */
    struct embd__error error;
    bool has_taken; /* the writing thread's: it has the first full block */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct writing_block blocks[WRITING_BLOCKS];
    uint32_t first_full, n_full; /* guarded */
    bool stops, has_ended;       /* guarded */
};

/* ---- the thread ---- */

/* NULL: it is to stop. */
static const struct writing_block *take(struct writing *w)
{
    pthread_mutex_lock(&w->mutex);
    while (w->n_full == 0 && !w->stops)
        pthread_cond_wait(&w->changed, &w->mutex);
    const struct writing_block *block = w->stops ? NULL : &w->blocks[w->first_full];
    pthread_mutex_unlock(&w->mutex);
    w->has_taken = block != NULL;
    return block;
}

/* Whether it was the last of its table. */
static bool give_back(struct writing *w)
{
    pthread_mutex_lock(&w->mutex);
    bool is_last = w->blocks[w->first_full].is_last;
    w->first_full = (w->first_full + 1) % WRITING_BLOCKS;
    w->n_full--;
    pthread_mutex_unlock(&w->mutex);
    w->has_taken = false;
    w->config->wake(w->config->wake_arg);
    return is_last;
}

static int next_rows(struct part_rows *rows, struct row_block *out, struct embd__error *e)
{
    struct writing *w = (struct writing *)(void *)rows;
    while (!w->has_taken || !give_back(w)) {
        const struct writing_block *block = take(w);
        if (block == NULL)
            return embd__error_set(e, EMBD_CLOSED, "the snapshot was cancelled");
        if (block->error.status != EMBD_OK) {
            *e = block->error;
            return e->status;
        }
        *out = block->rows;
        if (out->n_rows + out->n_candidates > 0)
            return 1;
    }
    return 0;
}

static void *run(void *arg)
{
    struct writing *w = arg;
    const struct writing_config *config = w->config;
    thread_name("embd-writer");
    whole_write(config->dir, config->file.name, config->file.bytes, config->file.n, &w->error);
    for (uint32_t i = 0; i < config->n_tables && w->error.status == EMBD_OK; i++)
        part_write(config->dir, config->schemas[i], config->shard, &w->rows, &w->parts[i],
                   &w->error);
    pthread_mutex_lock(&w->mutex);
    w->has_ended = true;
    pthread_mutex_unlock(&w->mutex);
    config->wake(config->wake_arg);
    return NULL;
}

/* ---- its owner ---- */

static void free_writing(struct writing *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    free(w->parts);
    free(w);
}

int writing_start(const struct writing_config *config, struct writing **out, struct embd__error *e)
{
    struct writing *w = calloc(1, sizeof *w);
    if (w == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to write a snapshot");
    w->rows.next = next_rows;
    w->config = config;
    w->parts = calloc(config->n_tables + 1, sizeof *w->parts);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (w->parts == NULL || thread_start(&w->thread, run, w) != 0) {
        free_writing(w);
        return embd__error_set(e, EMBD_NO_MEMORY, "cannot start the thread that writes a snapshot");
    }
    *out = w;
    return EMBD_OK;
}

struct writing_block *writing_empty(struct writing *w, uint32_t *number_out)
{
    pthread_mutex_lock(&w->mutex);
    bool has_one = w->n_full < WRITING_BLOCKS && !w->stops && !w->has_ended;
    *number_out = (w->first_full + w->n_full) % WRITING_BLOCKS;
    pthread_mutex_unlock(&w->mutex);
    return has_one ? &w->blocks[*number_out] : NULL;
}

void writing_hand_over(struct writing *w)
{
    pthread_mutex_lock(&w->mutex);
    w->n_full++;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

bool writing_has_ended(struct writing *w)
{
    pthread_mutex_lock(&w->mutex);
    bool has_ended = w->has_ended;
    pthread_mutex_unlock(&w->mutex);
    return has_ended;
}

void writing_stop(struct writing *w)
{
    pthread_mutex_lock(&w->mutex);
    w->stops = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

int writing_end(struct writing *w, struct manifest_part *parts_out, struct embd__error *e)
{
    pthread_join(w->thread, NULL);
    for (uint32_t i = 0; i < w->config->n_tables; i++)
        parts_out[i] = w->parts[i];
    if (w->error.status != EMBD_OK)
        *e = w->error;
    int status = w->error.status;
    free_writing(w);
    return status;
}
