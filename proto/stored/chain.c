/* chain.c - see chain.h.
 *
 * The happy path: the directory's manifest names its base, which is opened beside it, and so on
 * until a manifest names none. A base is identified by the id of its cut and by the checksum of its
 * manifest, which has the checksums of all its parts: so it is the very snapshot that the changes
 * belong to, or it is refused. A gap is found in the same way: the missing snapshot is the base of
 * another one. */
#include "proto/stored/chain.h"
#include "embd/admin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAIN_MAX 4096u

/* ---- where a base is ---- */

/* PATH/../NAME, simplified if possible. */
static char *beside(const char *path, const char *name, struct embd__error *e)
{
    size_t n = strlen(path), at;
    char *made = malloc(n + strlen(name) + sizeof "/../");
    if (!made) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the path of %s", name);
        return NULL;
    }
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (at = n; at > 0 && path[at - 1] != '/';)
        at--;
    bool is_dots =
        (n - at == 1 && path[at] == '.') || (n - at == 2 && !strncmp(path + at, "..", 2));
    memcpy(made, path, n);
    strcpy(made + (is_dots ? n : at), is_dots ? "/../" : "");
    return strcat(made, name);
}

/* ---- do they belong together? ---- */

static const struct dump_share *find_share(const struct dump_dir *base, uint64_t xxh3)
{
    for (uint32_t i = 0; i < base->n_shares; i++)
        if (base->shares[i].manifest.xxh3 == xxh3)
            return &base->shares[i];
    return NULL;
}

static int check_base(const struct dump_dir *dir, const struct dump_dir *base,
                      struct embd__error *e)
{
    uint64_t found = base->shares[0].manifest.id;
    for (uint32_t i = 0; i < dir->n_shares; i++) {
        const struct dump_share *share = &dir->shares[i];
        const struct manifest_base *wanted = &share->manifest.base;
        if (found != wanted->id)
            return embd__error_set(e, EMBD_INVALID,
                                   "incremental %s needs base '%s' (cut %016" PRIx64
                                   "), found cut %016" PRIx64 " in %s",
                                   share->path, wanted->name, wanted->id, found, base->path);
        if (!find_share(base, wanted->xxh3))
            return embd__error_set(
                e, EMBD_CORRUPT,
                "incremental %s needs a base whose manifest has the checksum %016" PRIx64
                "; %s was changed since, or lacks that process's share",
                share->path, wanted->xxh3, base->path);
    }
    return EMBD_OK;
}

static int check_part(const struct dump_dir *dir, const struct dump_dir *base,
                      const struct manifest_table *table, const struct manifest_part *part,
                      struct embd__error *e)
{
    const struct dump_share *share;
    const char *name = table->schema.s.name;
    if (!part->has_changes)
        return EMBD_OK;
    const struct manifest_table *before = embd__dumpdir_find(base, name);
    const char *differs =
        !before ? NULL : embd__schema_fixed_difference(&before->schema.s, &table->schema.s);
    if (differs)
        return embd__error_set(e, EMBD_CORRUPT, "%s and its base %s: table '%s' differs in %s",
                               dir->path, base->path, name, differs);
    if (embd__chain_part(base, name, part->shard, &share))
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s has changes of table '%s', shard %" PRIu32
                           ", and its base %s does not have that table and shard",
                           dir->path, name, part->shard, base->path);
}

static int check_parts(const struct dump_dir *dir, const struct dump_dir *base,
                       struct embd__error *e)
{
    for (uint32_t i = 0; i < dir->n_shares; i++) {
        const struct manifest *m = &dir->shares[i].manifest;
        for (uint32_t j = 0; j < m->n_tables; j++)
            for (uint32_t k = 0; k < m->tables[j].n_parts; k++)
                if (check_part(dir, base, &m->tables[j], &m->tables[j].parts[k], e))
                    return e->status;
    }
    return EMBD_OK;
}

/* ---- the chain ---- */

/* Takes the path. The newest comes first until all are read. */
static int add(struct dump_chain *chain, char *path, struct embd__error *e)
{
    struct dump_dir *dirs = realloc(chain->dirs, (chain->n + 1) * sizeof *dirs);
    if (dirs)
        chain->dirs = dirs;
    char **paths = realloc(chain->paths, (chain->n + 1) * sizeof *paths);
    if (paths)
        chain->paths = paths;
    if (!dirs || !paths || !path) {
        free(path);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a chain of snapshots");
    }
    if (embd__dumpdir_open(path, &dirs[chain->n], e)) {
        free(path);
        return e->status;
    }
    paths[chain->n++] = path;
    return EMBD_OK;
}

static int add_base(struct dump_chain *chain, struct embd__error *e)
{
    const struct dump_share *share = &chain->dirs[chain->n - 1].shares[0];
    const char *name = share->manifest.base.name;
    char *path = beside(chain->paths[chain->n - 1], name, e);
    if (!path)
        return e->status;
    if (access(path, F_OK) && errno == ENOENT) {
        embd__error_set(e, EMBD_INVALID,
                        "%s needs its base, the snapshot '%s', beside it: %s does not exist",
                        share->path, name, path);
        free(path);
        return e->status;
    }
    if (chain->n == CHAIN_MAX) {
        free(path);
        return embd__error_set(e, EMBD_INVALID,
                               "%s: the chain of increments has more than %u snapshots, the limit",
                               share->path, CHAIN_MAX);
    }
    if (add(chain, path, e))
        return e->status;
    const struct dump_dir *dir = &chain->dirs[chain->n - 2], *base = &chain->dirs[chain->n - 1];
    return check_base(dir, base, e) ? e->status : check_parts(dir, base, e);
}

static void turn_round(struct dump_chain *chain)
{
    for (uint32_t i = 0, j = chain->n - 1; i < j; i++, j--) {
        struct dump_dir dir = chain->dirs[i];
        char *path = chain->paths[i];
        chain->dirs[i] = chain->dirs[j];
        chain->paths[i] = chain->paths[j];
        chain->dirs[j] = dir;
        chain->paths[j] = path;
    }
}

int embd__chain_open(const char *path, struct dump_chain *out, struct embd__error *e)
{
    *out = (struct dump_chain){0};
    int status = add(out, strdup(path), e);
    while (status == EMBD_OK && out->dirs[out->n - 1].shares[0].manifest.base.id != 0)
        status = add_base(out, e);
    if (status == EMBD_OK)
        turn_round(out);
    else
        embd__chain_fini(out);
    return status;
}

void embd__chain_fini(struct dump_chain *chain)
{
    for (uint32_t i = 0; i < chain->n; i++) {
        embd__dumpdir_fini(&chain->dirs[i]);
        free(chain->paths[i]);
    }
    free(chain->dirs);
    free(chain->paths);
    *chain = (struct dump_chain){0};
}

void embd__chain_totals(const struct dump_chain *chain, const char *only, embd_dump_report *out)
{
    *out = (embd_dump_report){0};
    for (uint32_t i = 0; i < chain->n; i++) {
        embd_dump_report one;
        embd__dumpdir_totals(&chain->dirs[i], only, &one);
        out->rows += one.rows;
        out->bytes += one.bytes;
    }
}

const struct manifest_part *embd__chain_part(const struct dump_dir *dir, const char *table,
                                             uint32_t shard, const struct dump_share **share_out)
{
    for (uint32_t i = 0; i < dir->n_shares; i++) {
        const struct manifest_table *t = embd__dumpdir_table(&dir->shares[i], table);
        for (uint32_t j = 0; t && j < t->n_parts; j++)
            if (t->parts[j].shard == shard) {
                *share_out = &dir->shares[i];
                return &t->parts[j];
            }
    }
    return NULL;
}
