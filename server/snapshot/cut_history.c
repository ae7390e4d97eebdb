/* cut_history.c - see cut_history.h.
 *
 * A snapshot has, for each shard, the number of the journal's records at the cut, and the checksum
 * of the last one, which is chained to all before it (SHARD.writers). So where a replay meets that
 * record, the tables are those of the cut, and the records behind it are the changes since. A
 * journal that was compacted since, or another journal, never meets it: such a cut stays unknown,
 * and so does one whose snapshot cannot be read. */
#include "server/snapshot/cut_history.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/snapshot/snapshot_select.h"
#include "server/snapshot/cut.h"
#include "proto/streamsfile.h"

#define CUT_HISTORY_MAX 32u /* of the newest */

struct cut_history {
    struct past_cut {
        uint64_t id, position, chain;
        struct table_scope scope;
    } cuts[CUT_HISTORY_MAX]; /* [n] */
    uint32_t n;
};

/* Reads the file's header into `bytes`; false: it does not exist, is shorter, or cannot be read. */
static bool read_bytes(int dir, uint32_t shard, uint8_t bytes[STREAMSFILE_HEADER_BYTES])
{
    char file[STREAMSFILE_NAME];
    embd__streamsfile_name(file, shard);
    int fd = safe_open(dir, file, O_RDONLY, 0);
    if (fd < 0)
        return false;
    ssize_t n = pread(fd, bytes, STREAMSFILE_HEADER_BYTES, 0);
    close(fd);
    return n == (ssize_t)STREAMSFILE_HEADER_BYTES;
}

/* False: this shard has no part of the snapshot that is of use here. */
static bool read_header(const struct shard *shard, const char *name, struct streamsfile *out)
{
    uint8_t bytes[STREAMSFILE_HEADER_BYTES];
    struct embd__error ignored = {.status = EMBD_OK};
    int dir = safe_open(shard->data_dir, name, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0)
        return false;
    bool is_read = read_bytes(dir, shard->config.index, bytes);
    close(dir);
    return is_read &&
           embd__streamsfile_read_header(bytes, sizeof bytes, out, &ignored) == EMBD_OK &&
           out->shard == shard->config.index && out->n_shards == shard->config.n_shards;
}

static void add_cuts(const struct shard *shard, const struct snapshot_list *all,
                     struct cut_history *history)
{
    for (uint32_t i = 0; i < all->n && history->n < CUT_HISTORY_MAX; i++) {
        struct streamsfile head;
        if (all->list[i].id != 0 && read_header(shard, all->list[i].name, &head))
            history->cuts[history->n++] =
                (struct past_cut){all->list[i].id, head.position, head.chain, all->list[i].scope};
    }
}

int cut_history_open(struct shard *shard, struct embd__error *e)
{
    struct snapshot_list own = {.passes_over = true};
    struct cut_history *history = shard->cut_history = calloc(1, sizeof *history);
    if (history == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a list of snapshots");
    if (shard->config.chosen != NULL)
        add_cuts(shard, snapshot_select_list(shard->config.chosen), history);
    else if (snapshot_list(shard->data_dir, &own, e) == EMBD_OK)
        add_cuts(shard, &own, history);
    free(own.list);
    return e->status;
}

/* Where a table has no memory for it, its next cut has all rows. */
static void note(struct shard *shard, const struct past_cut *past)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++) {
        struct embd__error ignored = {.status = EMBD_OK};
        struct store_cut cut = {.id = past->id};
        if (!embd__scope_covers(&past->scope, tables->by_name[i]->schema.s.name))
            continue;
        tables->ops->freeze(tables->by_name[i]->store, &cut, &ignored);
        tables->ops->thaw(tables->by_name[i]->store);
    }
    cuts_known_add(&shard->cuts, past->id, &past->scope);
}

void cut_history_meet(struct shard *shard, uint64_t position, uint64_t chain)
{
    const struct cut_history *history = shard->cut_history;
    for (uint32_t i = history->n; i > 0; i--)
        if (history->cuts[i - 1].position == position && history->cuts[i - 1].chain == chain)
            note(shard, &history->cuts[i - 1]);
}

void cut_history_close(struct shard *shard)
{
    free(shard->cut_history);
    shard->cut_history = NULL;
}
