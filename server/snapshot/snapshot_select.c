/* snapshot_select.c - see snapshot_select.h.
 *
 * The happy path: take the newest snapshot of the list; read its manifest and those of its bases;
 * verify all bytes of all files, as `embctl verify` does; check that every part of this process's
 * shards exists; and check that the other processes that can be seen have parts of the same cut.
 * One of some tables is joined by the next older one that decides about more, and so on to one of
 * all tables. A snapshot that fails is skipped, with a log line that says why. If an operator named
 * a snapshot, it comes first; if it fails, the process ends. */
#include "server/snapshot/snapshot_select.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "server/log/log.h"
#include "server/snapshot/archived.h"
#include "server/snapshot/elder.h"
#include "server/snapshot/snapshot_verify.h"

struct choice {
    const struct snapshot_kept *kept; /* of `all` */
    struct dump_chain chain;
};

/* Owner: who opened it, but for what is marked. Nothing but those changes after
 * snapshot_select_open. */
struct snapshot_select {
    struct snapshot_select_config config;
    struct snapshot_list all;
    /* Owned by snapshot_select_find's thread until there is a verdict. */
    struct choice *choices; /* [n_choices], room for all */
    uint32_t n_choices;
    struct embd__error why;
    bool has_elder; /* of this sequence and lower ones: elder.h */
    uint64_t elder;
    /* Any thread's. */
    atomic_int state; /* enum snapshot_select_state */
    atomic_uint at;   /* in `all` */
    atomic_ullong done_bytes, total_bytes;
    atomic_bool stops;
};

/* ---- one of them ---- */

static const struct snapshot_kept *find(const struct snapshot_select *c, const char *name)
{
    for (uint32_t i = 0; i < c->all.n; i++)
        if (strcmp(c->all.list[i].name, name) == 0)
            return &c->all.list[i];
    return NULL;
}

/* Its bases are in the data directory themselves: no link leads to them. */
static int check_bases(const struct snapshot_select *c, const struct snapshot_kept *one,
                       struct embd__error *e)
{
    const char *name = one->base.id != 0 ? one->base.name : "";
    for (uint32_t n = 0; name[0] != '\0' && n < c->all.n; n++) {
        const struct snapshot_kept *base = find(c, name);
        if (base == NULL)
            return embd__error_set(
                e, EMBD_INVALID,
                "%s/%s: its base, the snapshot '%s', does not exist or cannot be read",
                c->config.data_dir, one->name, name);
        name = base->base.id != 0 ? base->base.name : "";
    }
    return EMBD_OK;
}

static bool is_placed(const struct snapshot_select *c, const struct manifest *manifest)
{
    struct placement even;
    embd__placement_even(&even, 1, c->config.n_shards);
    return embd__manifest_is_placed(manifest,
                                    c->config.placement != NULL ? c->config.placement : &even);
}

/* Shards were added behind it or have left, and their records are there: a restore of a moment. */
static bool is_resized(const struct snapshot_select *c, const struct manifest *manifest)
{
    return manifest->n_shards != c->config.n_shards &&
           archived_is_there(c->config.data_dir, c->config.first_shard);
}

/* All that the shard is stands in its records. */
static bool is_added(const struct snapshot_select *c, const struct manifest *manifest,
                     uint32_t shard)
{
    return !embd__manifest_has_shard(manifest, shard) &&
           archived_is_there(c->config.data_dir, shard);
}

/* A part of each table for every shard here that it has. */
static int check_parts(const struct snapshot_select *c, const struct dump_dir *dir,
                       struct embd__error *e)
{
    const struct dump_share *share = &dir->shares[0];
    const struct manifest *m = &share->manifest;
    bool resized = is_resized(c, m);
    if (m->n_shards != c->config.n_shards && !resized)
        return embd__error_set(e, EMBD_INVALID,
                               "%s: has %u shards, and this cluster has %u; use embctl load",
                               share->path, m->n_shards, c->config.n_shards);
    if (!resized && !is_placed(c, m))
        return embd__error_set(e, EMBD_INVALID,
                               "%s: its placement of keys on shards is not that of this cluster; "
                               "use embctl load",
                               share->path);
    for (uint32_t j = 0; j < c->config.shards; j++) {
        uint32_t shard = c->config.first_shard + j;
        bool added = is_added(c, m, shard);
        for (uint32_t i = 0; i < m->n_tables && !added; i++) {
            const char *table = m->tables[i].schema.s.name;
            const struct dump_share *ignored;
            if (embd__chain_part(dir, table, shard, &ignored) == NULL)
                return embd__error_set(e, EMBD_INVALID, "%s: table '%s' has no part of shard %u",
                                       share->path, table, shard);
        }
    }
    return EMBD_OK;
}

static void on_begin(void *arg, uint64_t bytes)
{
    struct snapshot_select *c = arg;
    atomic_store(&c->done_bytes, 0);
    atomic_store(&c->total_bytes, bytes);
}

static int on_progress(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done)
{
    struct snapshot_select *c = arg;
    (void)rows_done;
    (void)rows_total;
    atomic_store(&c->done_bytes, bytes_done);
    return atomic_load(&c->stops);
}

static int try_one(struct snapshot_select *c, const struct snapshot_kept *one,
                   struct embd__error *e)
{
    struct dump_chain chain;
    const struct snapshot_select_config *config = &c->config;
    const struct snapshot_verify_watch watch = {on_begin, on_progress, c};
    if (check_bases(c, one, e) != EMBD_OK ||
        snapshot_verify_open(config->data_dir, one->name, &watch, &chain, e) != EMBD_OK)
        return e->status;
    if (check_parts(c, embd__chain_last(&chain), e) != EMBD_OK ||
        peer_shares_check(config->peers, config->n_peers, config->data_dir, one->name, one->id,
                          &watch, e) != EMBD_OK)
        embd__chain_fini(&chain);
    else
        c->choices[c->n_choices++] = (struct choice){one, chain};
    return e->status;
}

/* ---- all of them ---- */

/* Whether one that was chosen covers all that it does. */
static bool is_decided(const struct snapshot_select *c, const struct snapshot_kept *one)
{
    bool is_hidden = false;
    for (uint32_t i = 0; i < c->n_choices; i++)
        is_hidden = is_hidden || embd__scope_hides(&c->choices[i].kept->scope, &one->scope);
    return is_hidden;
}

static bool is_elder(const struct snapshot_select *c, const struct snapshot_kept *one)
{
    return c->has_elder && one->sequence <= c->elder;
}

/* False: an error that ends the start. */
static bool look_at(struct snapshot_select *c, uint32_t i, bool is_named)
{
    struct embd__error e = {.status = EMBD_OK};
    const struct snapshot_kept *one = &c->all.list[i];
    if (is_decided(c, one))
        return true;
    if (is_elder(c, one) && !is_named) {
        log_event(LOG_INFO, "snapshot_passed_over",
                  "snapshot=%s why=\"another process has served in the place of this one since it "
                  "was made; --restore names it\"",
                  one->name);
        return true;
    }
    atomic_store(&c->at, i);
    if (try_one(c, one, &e) == EMBD_OK || atomic_load(&c->stops))
        return true;
    if (is_named || e.status == EMBD_NO_MEMORY) { /* which says nothing of the snapshot */
        embd__error_set(&c->why, e.status, "snapshot '%s'%s: %.350s", one->name,
                        is_named ? ", which --restore names" : "", e.text);
        return false;
    }
    log_event(LOG_WARN, "snapshot_passed_over", "snapshot=%s why=\"%s\"", one->name, e.text);
    return true;
}

static bool look_at_named(struct snapshot_select *c)
{
    for (uint32_t i = 0; i < c->all.n; i++)
        if (strcmp(c->config.name, c->all.list[i].name) == 0)
            return look_at(c, i, true);
    embd__error_set(&c->why, EMBD_INVALID,
                    "the snapshot '%.64s', which --restore names, does not exist in '%.200s'",
                    c->config.name, c->config.data_dir);
    return false;
}

static enum snapshot_select_state look(struct snapshot_select *c)
{
    if (c->config.name != NULL && !look_at_named(c))
        return SNAPSHOT_SELECT_FAILED;
    for (uint32_t i = 0; i < c->all.n && !atomic_load(&c->stops); i++)
        if (!look_at(c, i, false))
            return SNAPSHOT_SELECT_FAILED;
    return c->n_choices > 0 && !atomic_load(&c->stops) ? SNAPSHOT_SELECT_FOUND
                                                       : SNAPSHOT_SELECT_NONE;
}

void snapshot_select_find(struct snapshot_select *c)
{
    if (atomic_load(&c->state) == SNAPSHOT_SELECT_LOOKING)
        atomic_store(&c->state, look(c));
}

void snapshot_select_stop(struct snapshot_select *c)
{
    atomic_store(&c->stops, true);
}

static int list(struct snapshot_select *c, struct embd__error *e)
{
    int dir = open(c->config.data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return embd__error_set(e, EMBD_IO, "data directory '%s' cannot be opened: %m",
                               c->config.data_dir);
    if (snapshot_list(dir, &c->all, e) == EMBD_OK)
        elder_read(dir, &c->has_elder, &c->elder, e);
    close(dir);
    return e->status;
}

int snapshot_select_open(const struct snapshot_select_config *config, struct snapshot_select **out,
                         struct embd__error *e)
{
    struct snapshot_select *c = calloc(1, sizeof *c);
    if (c == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of snapshots");
    c->config = *config;
    c->all.passes_over = true;
    if (list(c, e) != EMBD_OK) {
        snapshot_select_free(c);
        return e->status;
    }
    c->choices = calloc(c->all.n + 1u, sizeof *c->choices);
    if (c->choices == NULL) {
        snapshot_select_free(c);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of snapshots");
    }
    bool is_over = config->is_off || (c->all.n == 0 && config->name == NULL);
    atomic_init(&c->state, is_over ? SNAPSHOT_SELECT_NONE : SNAPSHOT_SELECT_LOOKING);
    *out = c;
    return EMBD_OK;
}

void snapshot_select_free(struct snapshot_select *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < c->n_choices; i++)
        embd__chain_fini(&c->choices[i].chain);
    free(c->choices);
    free(c->all.list);
    free(c);
}

/* ---- for shards ---- */

enum snapshot_select_state snapshot_select_state(const struct snapshot_select *c)
{
    return c == NULL ? SNAPSHOT_SELECT_NONE : (enum snapshot_select_state)atomic_load(&c->state);
}

const struct embd__error *snapshot_select_why(const struct snapshot_select *c)
{
    return &c->why;
}

const char *snapshot_select_name(const struct snapshot_select *c)
{
    return c == NULL || c->all.n == 0 ? "" : c->all.list[atomic_load(&c->at)].name;
}

void snapshot_select_progress(const struct snapshot_select *c, uint64_t *done_bytes_out,
                              uint64_t *total_bytes_out)
{
    *done_bytes_out = c == NULL ? 0 : atomic_load(&c->done_bytes);
    *total_bytes_out = c == NULL ? 0 : atomic_load(&c->total_bytes);
}

uint32_t snapshot_select_count(const struct snapshot_select *c)
{
    return c->n_choices;
}

const char *snapshot_select_chosen(const struct snapshot_select *c, uint32_t i)
{
    return c->choices[i].kept->name;
}

const struct dump_chain *snapshot_select_chain(const struct snapshot_select *c, uint32_t i)
{
    return &c->choices[i].chain;
}

bool snapshot_select_decides(const struct snapshot_select *c, uint32_t i, const char *table)
{
    bool is_decided = false;
    for (uint32_t j = 0; j < i; j++)
        is_decided = is_decided || embd__scope_covers(&c->choices[j].kept->scope, table);
    return !is_decided && embd__scope_covers(&c->choices[i].kept->scope, table);
}

uint64_t snapshot_select_cut(const struct snapshot_select *c)
{
    uint64_t cut = c->choices[0].kept->id;
    for (uint32_t i = 1; i < c->n_choices; i++)
        cut = XXH3_64bits_withSeed(&c->choices[i].kept->id, sizeof cut, cut);
    return cut;
}

const struct snapshot_list *snapshot_select_list(const struct snapshot_select *c)
{
    return &c->all;
}
