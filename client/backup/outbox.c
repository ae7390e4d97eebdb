/* outbox.c - see outbox.h. */
#include "client/backup/outbox.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/embd.h"

struct parcel {
    struct parcel *next;
    char name[PLACE_NAME_BYTES];
    uint8_t *bytes;
    size_t n;
};

struct outbox {
    struct place *place; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t news;
    struct parcel *first, *last;
    uint64_t n_bytes;
    bool ends;
    struct embd__error error; /* the first */
};

static void free_parcel(struct parcel *parcel)
{
    free(parcel->bytes);
    free(parcel);
}

/* The next one; NULL: there will be none. */
static struct parcel *next(struct outbox *o)
{
    while (o->first == NULL && !o->ends)
        pthread_cond_wait(&o->news, &o->lock);
    return o->first;
}

static void drop_first(struct outbox *o)
{
    struct parcel *parcel = o->first;
    o->first = parcel->next;
    o->last = o->first == NULL ? NULL : o->last;
    o->n_bytes -= parcel->n;
    free_parcel(parcel);
    pthread_cond_broadcast(&o->news);
}

static void *run(void *arg)
{
    struct outbox *o = arg;
    pthread_mutex_lock(&o->lock);
    for (struct parcel *parcel; (parcel = next(o)) != NULL; drop_first(o)) {
        struct embd__error e = {0};
        bool has_failed = o->error.status != EMBD_OK;
        pthread_mutex_unlock(&o->lock);
        if (!has_failed)
            o->place->ops->put(o->place, parcel->name, 0, true, parcel->bytes, parcel->n, &e);
        pthread_mutex_lock(&o->lock);
        o->error = has_failed ? o->error : e;
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Signals are for the thread that was there before. */
static int start(struct outbox *o)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&o->thread, NULL, run, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int outbox_open(const struct backup_where *to, struct outbox **out, struct embd__error *e)
{
    struct outbox *o = calloc(1, sizeof *o);
    *out = NULL;
    if (o == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to write files");
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->news, NULL);
    if (place_open(to, false, &o->place, e) == EMBD_OK && start(o) != 0)
        embd__error_set(e, EMBD_NO_MEMORY, "cannot start a thread to write files");
    if (e->status == EMBD_OK) {
        *out = o;
        return EMBD_OK;
    }
    place_close(o->place);
    free(o);
    return e->status;
}

int outbox_add(struct outbox *o, const char *name, uint8_t *bytes, size_t n, struct embd__error *e)
{
    struct parcel *parcel = calloc(1, sizeof *parcel);
    if (parcel == NULL) {
        free(bytes);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to write %s", name);
    }
    snprintf(parcel->name, sizeof parcel->name, "%s", name);
    parcel->bytes = bytes;
    parcel->n = n;
    pthread_mutex_lock(&o->lock);
    while (o->n_bytes > 0 && o->n_bytes + n > OUTBOX_BYTES && o->error.status == EMBD_OK)
        pthread_cond_wait(&o->news, &o->lock);
    *(o->last == NULL ? &o->first : &o->last->next) = parcel;
    o->last = parcel;
    o->n_bytes += n;
    if (o->error.status != EMBD_OK)
        *e = o->error;
    pthread_cond_broadcast(&o->news);
    pthread_mutex_unlock(&o->lock);
    return e->status;
}

bool outbox_is_empty(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool is_empty = o->first == NULL && o->error.status == EMBD_OK;
    pthread_mutex_unlock(&o->lock);
    return is_empty;
}

int outbox_close(struct outbox *o, struct embd__error *e)
{
    if (o == NULL)
        return e->status;
    pthread_mutex_lock(&o->lock);
    o->ends = true;
    pthread_cond_broadcast(&o->news);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    if (e->status == EMBD_OK && o->error.status != EMBD_OK)
        *e = o->error;
    place_close(o->place);
    pthread_cond_destroy(&o->news);
    pthread_mutex_destroy(&o->lock);
    free(o);
    return e->status;
}
