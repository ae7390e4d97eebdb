/* chosen.c - see chosen.h.
 *
 * The happy path: the newest snapshot of the list; its manifest and those of the snapshots it is
 * upon; all bytes of all files, as `embctl verify` reads them; every part of this process's shards
 * is there; and the other processes that can be seen have theirs of the same cut. What does not
 * hold is passed over, with a line that says why, and the next older one is taken. One that an
 * operator named is taken or nothing is: then the process ends. */
#include "server/shard/snapshot/chosen.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/log/log.h"
#include "server/shard/snapshot/verified.h"

/* Owner: who opened it, but for what is marked. Nothing but those changes after chosen_open. */
struct chosen {
    struct chosen_config config;
    struct snapshot_list all;
    /* Of chosen_find's thread until there is a verdict. */
    struct dump_chain chain;
    struct embd__error why;
    /* Any thread's. */
    atomic_int state; /* enum chosen_state */
    atomic_uint at;   /* in `all` */
    atomic_ullong done_bytes, total_bytes;
    atomic_bool stops;
};

/* ---- one of them ---- */

static const struct snapshot_kept *find(const struct chosen *c, const char *name)
{
    for (uint32_t i = 0; i < c->all.n; i++)
        if (strcmp(c->all.list[i].name, name) == 0)
            return &c->all.list[i];
    return NULL;
}

/* Those it is upon lie in the data directory themselves: no link leads to them. */
static int check_bases(const struct chosen *c, const struct snapshot_kept *one,
                       struct embd__error *e)
{
    const char *name = one->base.id != 0 ? one->base.name : "";
    for (uint32_t n = 0; name[0] != '\0' && n < c->all.n; n++) {
        const struct snapshot_kept *base = find(c, name);
        if (base == NULL)
            return embd__error_set(
                e, EMBD_INVALID,
                "%s/%s: it is upon the snapshot '%s', which is not there or cannot be read",
                c->config.data_dir, one->name, name);
        name = base->base.id != 0 ? base->base.name : "";
    }
    return EMBD_OK;
}

/* A part of each table for every shard here. */
static int check_parts(const struct chosen *c, const struct dump_dir *dir, struct embd__error *e)
{
    const struct dump_share *share = &dir->shares[0];
    if (share->manifest.n_shards != c->config.n_shards)
        return embd__error_set(e, EMBD_INVALID,
                               "%s: is of %u shards, and this cluster has %u; embctl load takes it",
                               share->path, share->manifest.n_shards, c->config.n_shards);
    for (uint32_t i = 0; i < share->manifest.n_tables; i++)
        for (uint32_t j = 0; j < c->config.shards; j++) {
            const char *table = share->manifest.tables[i].schema.s.name;
            uint32_t shard = c->config.first_shard + j;
            const struct dump_share *ignored;
            if (embd__chain_part(dir, table, shard, &ignored) == NULL)
                return embd__error_set(e, EMBD_INVALID, "%s: table '%s' has no part of shard %u",
                                       share->path, table, shard);
        }
    return EMBD_OK;
}

static void on_begin(void *arg, uint64_t bytes)
{
    struct chosen *c = arg;
    atomic_store(&c->done_bytes, 0);
    atomic_store(&c->total_bytes, bytes);
}

static int on_progress(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done)
{
    struct chosen *c = arg;
    (void)rows_done;
    (void)rows_total;
    atomic_store(&c->done_bytes, bytes_done);
    return atomic_load(&c->stops);
}

static int try_one(struct chosen *c, const struct snapshot_kept *one, struct embd__error *e)
{
    const struct chosen_config *config = &c->config;
    const struct verified_watch watch = {on_begin, on_progress, c};
    if (check_bases(c, one, e) != EMBD_OK ||
        verified_open(config->data_dir, one->name, &watch, &c->chain, e) != EMBD_OK)
        return e->status;
    if (check_parts(c, embd__chain_last(&c->chain), e) != EMBD_OK ||
        peers_check(config->peers, config->n_peers, config->data_dir, one->name, one->id, &watch,
                    e) != EMBD_OK)
        embd__chain_fini(&c->chain);
    return e->status;
}

/* ---- all of them ---- */

static enum chosen_state look(struct chosen *c)
{
    for (uint32_t i = 0; i < c->all.n && !atomic_load(&c->stops); i++) {
        struct embd__error e = {.status = EMBD_OK};
        const struct snapshot_kept *one = &c->all.list[i];
        if (c->config.name != NULL && strcmp(c->config.name, one->name) != 0)
            continue;
        atomic_store(&c->at, i);
        if (try_one(c, one, &e) == EMBD_OK)
            return CHOSEN_ONE;
        if (atomic_load(&c->stops))
            break;
        if (c->config.name != NULL ||
            e.status == EMBD_NO_MEMORY) { /* which says nothing of the snapshot */
            embd__error_set(&c->why, e.status, "snapshot '%s'%s: %.350s", one->name,
                            c->config.name != NULL ? ", which --restore names" : "", e.text);
            return CHOSEN_FAILED;
        }
        log_event(LOG_WARN, "snapshot_passed_over", "snapshot=%s why=\"%s\"", one->name, e.text);
    }
    if (c->config.name == NULL || atomic_load(&c->stops))
        return CHOSEN_NONE;
    embd__error_set(&c->why, EMBD_INVALID,
                    "there is no snapshot '%.64s', which --restore names, in '%.200s'",
                    c->config.name, c->config.data_dir);
    return CHOSEN_FAILED;
}

void chosen_find(struct chosen *c)
{
    if (atomic_load(&c->state) == CHOSEN_LOOKING)
        atomic_store(&c->state, look(c));
}

void chosen_stop(struct chosen *c)
{
    atomic_store(&c->stops, true);
}

static int list(struct chosen *c, struct embd__error *e)
{
    int dir = open(c->config.data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return embd__error_set(e, EMBD_IO, "data directory '%s' cannot be opened: %m",
                               c->config.data_dir);
    snapshot_list(dir, &c->all, e);
    close(dir);
    return e->status;
}

int chosen_open(const struct chosen_config *config, struct chosen **out, struct embd__error *e)
{
    struct chosen *c = calloc(1, sizeof *c);
    if (c == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of snapshots");
    c->config = *config;
    c->all.passes_over = true;
    if (list(c, e) != EMBD_OK) {
        chosen_free(c);
        return e->status;
    }
    bool is_over = config->is_off || (c->all.n == 0 && config->name == NULL);
    atomic_init(&c->state, is_over ? CHOSEN_NONE : CHOSEN_LOOKING);
    *out = c;
    return EMBD_OK;
}

void chosen_free(struct chosen *c)
{
    if (c == NULL)
        return;
    embd__chain_fini(&c->chain);
    free(c->all.list);
    free(c);
}

/* ---- for shards ---- */

enum chosen_state chosen_state(const struct chosen *c)
{
    return c == NULL ? CHOSEN_NONE : (enum chosen_state)atomic_load(&c->state);
}

const struct embd__error *chosen_why(const struct chosen *c)
{
    return &c->why;
}

const struct dump_chain *chosen_chain(const struct chosen *c)
{
    return &c->chain;
}

const char *chosen_name(const struct chosen *c)
{
    return c == NULL || c->all.n == 0 ? "" : c->all.list[atomic_load(&c->at)].name;
}

void chosen_progress(const struct chosen *c, uint64_t *done_bytes_out, uint64_t *total_bytes_out)
{
    *done_bytes_out = c == NULL ? 0 : atomic_load(&c->done_bytes);
    *total_bytes_out = c == NULL ? 0 : atomic_load(&c->total_bytes);
}

const struct snapshot_list *chosen_list(const struct chosen *c)
{
    return &c->all;
}
