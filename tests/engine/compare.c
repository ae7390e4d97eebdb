/* compare.c - see compare.h. */
#include "tests/engine/compare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/store/image.h"

/* ---- models ---- */

static void compare_streams(const struct world *w, bool is_journaled)
{
    const struct pushers *pushers =
        is_journaled ? &w->engine.journaled_pushers : &w->engine.pushers;
    struct push_stream list[STREAMS];
    uint32_t n_open = 0;
    for (uint32_t i = 0; i < STREAMS; i++)
        n_open += w->streams[is_journaled][i].is_open;
    assert_int_equal(pushers->n, n_open);
    assert_int_equal(pushers_list(pushers, list, NULL), n_open);
    for (uint32_t i = 0; i < n_open; i++) {
        const struct stream *stream = &w->streams[is_journaled][list[i].stream];
        struct push_number id = stream_id((uint32_t)list[i].stream);
        assert_true(stream->is_open);
        assert_true(list[i].high == id.high && list[i].low == id.low);
        assert_true(list[i].last == stream->last && list[i].principal == stream->principal);
    }
}

static void compare_losses(const struct row_losses *lost, const struct model_losses *expected)
{
    for (int policy = 0; policy <= EMBD_ON_FULL_EVICT_SCORE; policy++)
        assert_int_equal(lost->evicted[policy], expected->evicted[policy]);
    assert_int_equal(lost->shrunk, expected->shrunk);
    assert_int_equal(lost->erased, expected->erased);
}

void compare_with_models(struct world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < TABLES; i++) {
        if (!world_has(w, i))
            continue;
        pair_compare(&w->tables[i]);
        compare_losses(&world_table(w, i)->lost, &w->tables[i].model->lost);
        n++;
    }
    assert_int_equal(w->engine.tables.n, n);
    for (uint32_t i = 0; i < TABLES; i++)
        if (w->staged[i].model != NULL)
            pair_compare(&w->staged[i]);
    compare_streams(w, false);
    compare_streams(w, true);
}

/* ---- copies ---- */

static void compare_table(struct world *w, uint32_t i, struct copy *copy)
{
    struct embd__error e = {.status = EMBD_OK};
    const char *name = w->tables[i].schema.s.name;
    struct table *table = tables_find(&copy->engine.tables, name, &e);
    if (table == NULL)
        fail_msg("the copy: %s", e.text);
    assert_null(embd__schema_difference(&w->tables[i].schema.s, &table->schema.s));
    struct pair other = {.ops = &store_host,
                         .store = table->store,
                         .schema = table->schema,
                         .model = w->tables[i].model};
    compare_losses(&table->lost, &other.model->lost);
    struct image own = scan_all(&w->tables[i]), copied = scan_all(&other);
    compare_images(&copied, &own);
    struct store_stats stats, copied_stats;
    w->ops->stats(w->tables[i].store, &stats);
    store_host.stats(table->store, &copied_stats);
    assert_int_equal(stats.steps, copied_stats.steps);
}

void compare_with_copy(struct world *w, struct copy *copy)
{
    struct push_stream list[STREAMS], copied[STREAMS];
    uint32_t n = 0, n_streams = pushers_list(&w->engine.journaled_pushers, list, NULL);
    for (uint32_t i = 0; i < TABLES; i++) {
        if (!world_has(w, i) || !world_is_journaled(w, i))
            continue;
        compare_table(w, i, copy);
        n++;
    }
    assert_int_equal(copy->engine.tables.n, n);
    assert_int_equal(copy->engine.journaled_pushers.n, n_streams);
    assert_int_equal(copy->engine.pushers.n, 0);
    assert_int_equal(pushers_list(&copy->engine.journaled_pushers, copied, NULL), n_streams);
    if (n_streams > 0)
        assert_memory_equal(copied, list, n_streams * sizeof *list);
}
