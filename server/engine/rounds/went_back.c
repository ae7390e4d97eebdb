/* went_back.c - see went_back.h. */
#include "server/engine/rounds/went_back.h"

#include <string.h>

#include "server/engine/engine.h"

static const struct sources *sources_of(const struct engine *engine, const struct table *table)
{
    return table_is_journaled(table) ? &engine->journaled_sources : &engine->sources;
}

bool went_back_is_named(const struct table *table, const char *job)
{
    const char *name = table->schema.s.name;
    size_t n = strlen(job);
    return strncmp(name, job, n) == 0 && strncmp(name + n, "--", 2) == 0;
}

void went_back_note(const struct engine *engine, struct table *table)
{
    table->n_sources_before = sources_of(engine, table)->n_ever;
}

static bool is_of_before(const struct engine *engine, const struct table *table, uint64_t client)
{
    uint32_t born =
        table->n_sources_before > 0 ? sources_born(sources_of(engine, table), client) : 0;
    return born > 0 && born <= table->n_sources_before;
}

static int refuse(const struct table *table, struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           "this client had pushed before table '%s' went back to a checkpoint, or "
                           "was loaded: it is of a job that is over; a new client takes part in "
                           "the next one",
                           table->schema.s.name);
}

int went_back_check_push(const struct op *push, struct embd__error *e)
{
    for (uint32_t i = 0; i < push->n_parts; i++)
        if (is_of_before(push->engine, push->parts[i].table, push->source.client))
            return refuse(push->parts[i].table, e);
    return EMBD_OK;
}

int went_back_check_job(const struct engine *engine, const char *job, uint64_t client,
                        struct embd__error *e)
{
    for (uint32_t i = 0; i < engine->tables.n; i++) {
        const struct table *table = engine->tables.by_name[i];
        if (is_of_before(engine, table, client) && went_back_is_named(table, job))
            return refuse(table, e);
    }
    return EMBD_OK;
}
