/* backup_plan.c - what a backup is upon, and which older ones go once it is complete. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/backup/making.h"
#include "client/backup/sequence.h"
#include "client/formats/snapshot_files.h"
#include "client/formats/table_copy.h"
#include "embd/embd.h"

int making_fail(struct making *m, int status)
{
    const struct embd__error *theirs = embd__copy_error(m->client);
    return embd__error_set(m->e, status, "%s", theirs->status ? theirs->text : embd_error_text());
}

/* ---- what to make ---- */

static int take_scope(struct making *m)
{
    const struct backup_order *o = m->order;
    struct table_scope *scope = &m->record.scope;
    catalog_set_job(scope, o->job, m->e);
    for (uint32_t i = 0; i < o->n_tables && m->e->status == EMBD_OK; i++)
        embd__scope_add(scope, o->tables[i], strlen(o->tables[i]), m->e);
    return m->e->status;
}

static int take_name(struct making *m)
{
    struct timespec now;
    struct tm day;
    char *name = m->record.name, prefix[SEQUENCE_PREFIX_BYTES] = "backup-";
    clock_gettime(CLOCK_REALTIME, &now);
    m->record.time_s = (uint64_t)now.tv_sec;
    gmtime_r(&now.tv_sec, &day);
    if (m->order->name != NULL && strlen(m->order->name) > SNAPSHOT_NAME_MAX)
        return embd__error_set(m->e, EMBD_INVALID, "the name '%.80s' is longer than %d bytes",
                               m->order->name, SNAPSHOT_NAME_MAX);
    if (m->order->name != NULL) {
        snprintf(name, sizeof m->record.name, "%s", m->order->name);
        return EMBD_OK;
    }
    if (m->order->sequence != NULL)
        sequence_prefix(&m->record.scope, prefix);
    size_t n = (size_t)snprintf(name, sizeof m->record.name, "%s", prefix);
    n += strftime(name + n, sizeof m->record.name - n, "%Y%m%d-%H%M%S", &day);
    snprintf(name + n, sizeof m->record.name - n, "-%03ld", now.tv_nsec / 1000000);
    return EMBD_OK;
}

/* Servers that lost their disks are another cluster: their backups would take the places of those
 * that have the rows. */
static int check_cluster(struct making *m, const struct catalog *c)
{
    const char *name = NULL;
    uint64_t there = catalog_cluster(c, &name);
    int status = embd__copy_lineage(m->client, &m->record.cluster);
    if (status != EMBD_OK)
        return making_fail(m, status);
    if (there == 0 || m->record.cluster == 0 || there == m->record.cluster ||
        m->order->accepts_other)
        return EMBD_OK;
    return embd__error_set(m->e, EMBD_INVALID,
                           "%s: the newest backup there, '%s', is of another cluster (%016" PRIx64
                           ") than these servers (%016" PRIx64
                           "). If they lost their disks, restore "
                           "it; then name another place, or go on here once with --other-cluster",
                           m->place->url, name, there, m->record.cluster);
}

/* What this sequence left where it was cut off. */
static int remove_remains(struct making *m, const struct catalog *c)
{
    for (uint32_t i = 0; i < c->n && m->e->status == EMBD_OK; i++)
        if (c->entries[i].state == BACKUP_CUT_OFF &&
            sequence_is_name(&m->record.scope, c->entries[i].name))
            catalog_remove(m->place, c->entries[i].name, m->e);
    return m->e->status;
}

/* The servers refuse one that is not theirs: another is tried then, or none. */
static void take_upon(struct making *m, uint32_t i, const struct catalog_entry *entry)
{
    if (entry == NULL)
        return;
    memcpy(m->upon[i].name, entry->name, sizeof m->upon[i].name);
    m->upon[i].id = entry->record.id;
}

static void choose_upon(struct making *m, const struct catalog *c,
                        const struct catalog_entry *newest)
{
    const struct backup_sequence *sequence = m->order->sequence;
    const struct catalog_entry *upon = newest;
    if (sequence != NULL)
        upon = sequence_upon(c, &m->record.scope, sequence, m->record.time_s, &m->is_due);
    if (m->order->has_all || (sequence == NULL && !m->order->is_incremental))
        upon = NULL;
    take_upon(m, 0, upon);
    if (upon != NULL && upon != newest)
        take_upon(m, 1, newest);
}

static int plan_upon(struct making *m, const struct catalog *c)
{
    const struct catalog_entry *newest = catalog_newest(c, &m->record.scope, NULL, UINT64_MAX);
    if (catalog_find(c, m->record.name) != NULL)
        return embd__error_set(m->e, EMBD_EXISTS, "%s: a backup '%s' is there, or part of one",
                               m->place->url, m->record.name);
    if (newest != NULL && m->record.time_s < newest->record.time_s) /* a clock that was set back */
        m->record.time_s = newest->record.time_s + (newest->record.time_s < UINT32_MAX);
    choose_upon(m, c, newest);
    return m->order->sequence != NULL && !m->order->is_beside ? remove_remains(m, c) : EMBD_OK;
}

int making_plan(struct making *m)
{
    struct catalog c;
    if (take_scope(m) != EMBD_OK || take_name(m) != EMBD_OK ||
        catalog_read(m->place, &c, m->e) != EMBD_OK)
        return m->e->status;
    if (check_cluster(m, &c) == EMBD_OK)
        plan_upon(m, &c);
    catalog_fini(&c);
    return m->e->status;
}

/* ---- which ones go ---- */

static int remove_thinned(struct making *m, const struct catalog *c, uint32_t *n_out,
                          struct embd__error *e)
{
    uint8_t *marks = malloc((c->n + 1) * sizeof *marks);
    if (marks == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the list of backups");
    sequence_thin(c, &m->record.scope, m->order->sequence, m->record.time_s, marks);
    for (uint32_t i = c->n; i-- > 0 && e->status == EMBD_OK;) /* bases after what is upon them */
        if (!(marks[i] & SEQUENCE_STAYS) &&
            catalog_remove(m->place, c->entries[i].name, e) == EMBD_OK)
            ++*n_out;
    free(marks);
    return e->status;
}

static int thin(struct making *m, uint32_t *n_out, struct embd__error *e)
{
    struct catalog c;
    if (catalog_read(m->place, &c, e) == EMBD_OK)
        remove_thinned(m, &c, n_out, e);
    catalog_fini(&c);
    return e->status;
}

int making_keep(struct making *m, struct backup_made *out)
{
    struct embd__error inner = {0};
    if (m->order->sequence != NULL)
        thin(m, &out->n_removed, &inner);
    else if (m->order->keep != 0)
        catalog_keep(m->place, out->name, m->order->keep, &out->n_removed, &inner);
    if (inner.status == EMBD_OK)
        return EMBD_OK;
    return embd__error_set(
        m->e, inner.status,
        "the backup '%s' is complete, but older ones could not be removed: %.250s", out->name,
        inner.text);
}
