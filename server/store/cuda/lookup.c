/* lookup.c - which pulls are kept, and for which pushes. */
#include "server/store/cuda/lookup.h"
#include "server/store/cuda/call.h"
#include "server/store/cuda/memory.h"

#include <string.h>

#define PRINT_KEYS 16u
#define TRUST      16u /* pulls that are kept behind a push that had use for one */
#define REST       64u
#define KEY_BYTES  18u /* of a lookup, about */

/* ---- prints ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Of a few keys, evenly apart; of keys in device memory their number alone is known, and the set of
 * those that take part. */
static uint64_t print_of(const struct call *call)
{
    const struct input *keys = &call->inputs[IN_KEYS];
    const struct key_set *own = call->in.own;
    uint64_t n = call->in.n, print = mix(n);
    for (uint32_t i = 0; own != NULL && i < KEY_SET_WORDS; i++)
        print = mix(print ^ own->words[i]);
    for (uint64_t i = 0; i < PRINT_KEYS && keys->kind != MEMORY_DEVICE; i++)
        print = mix(print ^ ((const uint64_t *)keys->from)[i * (n - 1) / (PRINT_KEYS - 1)]);
    return print;
}

static bool was_pulled(const struct lookups *l, uint64_t print)
{
    for (uint32_t i = 0; i < LOOKUPS_SEEN; i++)
        if (l->seen[i] == print)
            return true;
    return false;
}

/* ---- the lookups that are kept ---- */

static void remove_at(struct lookups *l, uint32_t i)
{
    l->bytes -= l->at[i].bytes;
    l->n--;
    memmove(l->at + i, l->at + i + 1, (l->n - i) * sizeof *l->at);
}

static void drop_oldest(struct store *store)
{
    device_free(store->lookups.at[0].memory, store->stream);
    remove_at(&store->lookups, 0);
}

bool lookup_drop_all(struct store *store)
{
    bool had_some = store->lookups.n > 0;
    while (store->lookups.n > 0)
        drop_oldest(store);
    return had_some;
}

static void lay_out(struct lookup *lookup, bool has_slots, struct arena *arena)
{
    uint64_t n = lookup->n_keys;
    lookup->found.keys = arena_take(arena, (n + lookup->has_own) * sizeof *lookup->found.keys);
    lookup->found.items = arena_take(arena, n * sizeof *lookup->found.items);
    lookup->found.slots = has_slots ? arena_take(arena, n * sizeof *lookup->found.slots) : NULL;
    lookup->bytes = arena->bytes;
}

/* What the sort of a pull's items needs. */
struct sorting {
    uint64_t *unsorted;
    void *temp;
    size_t temp_bytes;
};

static void lay_out_sorting(uint32_t n, struct sorting *s, struct arena *arena)
{
    s->unsorted = arena_take(arena, n * sizeof *s->unsorted);
    s->temp_bytes = sort_items_bytes(n);
    s->temp = arena_take(arena, s->temp_bytes);
}

static struct sorting sorting_of(const struct call *call)
{
    struct sorting s;
    struct arena arena = {.base = call->step_memory};
    lay_out_sorting(call->in.n, &s, &arena);
    return s;
}

/* Takes memory: for the lookup, which stays, and for the sort. */
static bool take_memory(struct call *call, struct lookup *lookup)
{
    struct store *store = call->store;
    struct sorting s;
    bool has_slots = store->view.row_slots != NULL;
    struct arena arena = {.base = NULL}, sorting = {.base = NULL};
    lay_out(lookup, has_slots, &arena);
    lay_out_sorting(call->in.n, &s, &sorting);
    if (device_new(&lookup->memory, arena.bytes, store->stream) != 0)
        return false;
    if (device_new(&call->step_memory, sorting.bytes, store->stream) != 0) {
        device_free(lookup->memory, store->stream);
        return false;
    }
    arena = (struct arena){.base = lookup->memory};
    lay_out(lookup, has_slots, &arena);
    return true;
}

static void add(struct call *call, uint64_t print)
{
    struct store *store = call->store;
    struct lookups *l = &store->lookups;
    struct lookup lookup = {.print = print, .n_keys = call->in.n};
    lookup.has_own = call->in.own != NULL;
    if (lookup.has_own)
        lookup.own = *call->in.own;
    while (l->n > 0 && (l->n == LOOKUPS_MAX || l->bytes > LOOKUPS_BYTES_MAX / 2))
        drop_oldest(store);
    if ((uint64_t)call->in.n * KEY_BYTES > LOOKUPS_BYTES_MAX / 2 || !take_memory(call, &lookup))
        return;
    if (lookup.has_own && device_fill(lookup.found.keys + call->in.n, 0, sizeof *lookup.found.keys,
                                      store->stream) != 0) {
        device_free(lookup.memory, store->stream);
        return;
    }
    l->bytes += lookup.bytes;
    l->at[l->n++] = lookup;
    call->found = lookup.found;
    call->found.items = sorting_of(call).unsorted;
}

void lookup_begin(struct call *call)
{
    struct lookups *l = &call->store->lookups;
    if (call->in.n < call->store->lookup_keys_min)
        return;
    uint64_t print = print_of(call);
    l->seen[l->n_seen++ % LOOKUPS_SEEN] = print;
    if (l->n_trusted > 0) {
        l->n_trusted--;
        add(call, print);
    } else if (l->n > 0) { /* pulls without pushes: memory goes back */
        drop_oldest(call->store);
    }
}

/* The lookup that the pull has just added is the last. */
int lookup_sort(struct call *call)
{
    struct store *store = call->store;
    if (call->found.items == NULL)
        return 0;
    const struct lookup *lookup = &store->lookups.at[store->lookups.n - 1];
    struct sorting s = sorting_of(call);
    int status = launch_sort_items(s.temp, s.temp_bytes, s.unsorted, lookup->found.items,
                                   call->in.n, ref_bits(store->n_rows), store->stream);
    device_free(call->step_memory, store->stream);
    call->step_memory = NULL;
    return status;
}

void lookup_give_up(struct call *call)
{
    struct lookups *l = &call->store->lookups;
    if (call->found.keys == NULL)
        return;
    device_free(l->at[l->n - 1].memory, call->store->stream);
    remove_at(l, l->n - 1);
    device_free(call->step_memory, call->store->stream);
    call->step_memory = NULL;
    call->found = (struct found_view){0};
}

/* ---- pushes ---- */

/* A push of keys that were pulled: pulls are worth keeping. */
static void trust(struct lookups *l)
{
    if (l->n_resting > 0)
        l->n_resting--;
    else
        l->n_trusted = TRUST;
}

static bool is_of(const struct lookup *lookup, const struct call *call, uint64_t print)
{
    const struct key_set *own = call->in.own;
    return lookup->print == print && lookup->n_keys == call->in.n &&
           lookup->has_own == (own != NULL) &&
           (own == NULL || memcmp(&lookup->own, own, sizeof *own) == 0);
}

bool lookup_take(struct call *call)
{
    struct lookups *l = &call->store->lookups;
    if (call->in.n < call->store->lookup_keys_min)
        return false;
    uint64_t print = print_of(call);
    if (was_pulled(l, print))
        trust(l);
    for (uint32_t i = l->n; i-- > 0;)
        if (is_of(&l->at[i], call, print)) {
            call->found = l->at[i].found;
            call->found_memory = l->at[i].memory;
            remove_at(l, i);
            l->n_used++;
            return true;
        }
    return false;
}

void lookup_reject(struct call *call)
{
    struct lookups *l = &call->store->lookups;
    device_free(call->found_memory, call->store->stream);
    call->found_memory = NULL;
    call->found = (struct found_view){0};
    l->n_used--;
    l->n_trusted = 0;
    l->n_resting = REST;
}
