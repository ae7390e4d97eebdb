/* staging.c - see staging.h.
 *
 * The happy path: a few threads take one file after the other, each with a connection and a piece
 * of its own: a service answers one connection slower than the wire allows. The first error ends
 * all of them. The files are not synced: they go when they are loaded. */
#include "client/backup/staging.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "client/backup/contents.h"
#include "embd/embd.h"

#define THREADS 6

int staging_make(const char *in, struct staging *out, struct embd__error *e)
{
    const char *tmp = getenv("TMPDIR");
    if (in == NULL)
        in = tmp != NULL && *tmp ? tmp : "/tmp";
    int n = snprintf(out->path, sizeof out->path, "%s/embd-restore-XXXXXX", in);
    if (n < (int)sizeof out->path && mkdtemp(out->path) != NULL)
        return EMBD_OK;
    return embd__error_set(e, EMBD_IO, "%s: cannot create a directory there: %s", in,
                           strerror(errno));
}

/* ---- filling ---- */

/* The threads' shared state. */
struct filling {
    const struct staging *staging;
    const struct restore_order *order;
    const struct record *record;
    pthread_mutex_t lock; /* of all below */
    struct ticker *ticker;
    struct embd__error *e;
    uint32_t next; /* file */
};

/* Of one thread. */
struct copying {
    struct filling *shared;
    struct place *from, *to;
    struct embd__error error;
    char path[PLACE_NAME_BYTES];
};

/* Parts of tables that are not restored stay where they are. */
static bool is_wanted(const struct restore_order *o, const char *file)
{
    const char *name = strchr(file, '/') + 1;
    size_t n = strlen(name);
    bool is_part = n > 5 && strcmp(name + n - 5, ".part") == 0, wanted = !is_part || !o->n_tables;
    for (uint32_t i = 0; i < o->n_tables; i++) {
        size_t n_table = strlen(o->tables[i]);
        wanted = wanted || (strncmp(name, o->tables[i], n_table) == 0 && name[n_table] == '.');
    }
    return wanted;
}

/* NULL: there are no more, or one has failed. */
static const struct record_file *next_file(struct filling *f)
{
    const struct record_file *file = NULL;
    pthread_mutex_lock(&f->lock);
    while (f->e->status == EMBD_OK && file == NULL && f->next < f->record->n_files) {
        file = &f->record->files[f->next++];
        if (!is_wanted(f->order, file->name))
            file = NULL;
    }
    pthread_mutex_unlock(&f->lock);
    return file;
}

static int count(struct filling *f, uint64_t bytes)
{
    pthread_mutex_lock(&f->lock);
    int status = f->e->status ? f->e->status : embd__ticker_add(f->ticker, 0, bytes, f->e);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static int put(void *arg, uint32_t piece, bool is_last, const void *data, size_t bytes)
{
    struct copying *c = arg;
    if (c->to->ops->put(c->to, c->path, piece, is_last, data, bytes, &c->error) != EMBD_OK)
        return c->error.status;
    return count(c->shared, bytes);
}

static void copy_files(struct copying *c)
{
    struct filling *f = c->shared;
    for (const struct record_file *file; !c->error.status && (file = next_file(f)) != NULL;) {
        record_path(c->path, f->record->name, file->name);
        if (contents_read(c->from, f->record, file, put, c, NULL, &c->error) != 0)
            return;
    }
}

static void *run(void *arg)
{
    struct filling *f = arg;
    struct copying c = {.shared = f};
    if (place_open(&f->order->from, false, &c.from, &c.error) == EMBD_OK &&
        place_open_directory(f->staging->path, false, &c.to, &c.error) == EMBD_OK) {
        c.to->is_temporary = true;
        copy_files(&c);
    }
    pthread_mutex_lock(&f->lock);
    if (c.error.status != EMBD_OK)
        embd__error_set(f->e, c.error.status, "%s", c.error.text);
    pthread_mutex_unlock(&f->lock);
    if (c.to != NULL)
        c.to->ops->close(c.to);
    place_close(c.from);
    return NULL;
}

int staging_fill(const struct staging *staging, const struct restore_order *order,
                 const struct record *record, struct ticker *ticker, struct embd__error *e)
{
    struct filling f = {
        .staging = staging, .order = order, .record = record, .ticker = ticker, .e = e};
    pthread_t threads[THREADS];
    uint32_t n = 0;
    pthread_mutex_init(&f.lock, NULL);
    while (n + 1 < THREADS && n < record->n_files && !pthread_create(&threads[n], NULL, run, &f))
        n++;
    run(&f);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&f.lock);
    return e->status;
}

/* ---- the end ---- */

static int note(void *arg, const char *name)
{
    return json_array_append_new(arg, json_string(name));
}

void staging_remove(const struct staging *staging)
{
    struct embd__error ignored = {0};
    struct place *place = NULL;
    json_t *names = json_array();
    if (place_open_directory(staging->path, false, &place, &ignored) == EMBD_OK) {
        place->ops->list(place, note, names, &ignored);
        for (size_t i = 0; i < json_array_size(names); i++)
            place->ops->remove(place, json_string_value(json_array_get(names, i)), &ignored);
        place->ops->close(place);
    }
    json_decref(names);
    rmdir(staging->path);
}
