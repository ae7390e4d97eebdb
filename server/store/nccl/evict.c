/* evict.c - on_full = evict_...: removes rows of the whole table to make room. The capacity is the
 * table's, and a row's rank (use.h) does not depend on its device, so the same rows go as on one
 * device or the host.
 *
 * Every device surveys its rows, and the host sums how many may go. The rank of the last row to go
 * is then found digit by digit, as on one device (evict.cu): each device counts its rows in a bin
 * for each value of the digit, and the host, which waits for the bins, picks the bin that contains
 * the wanted count. So the host knows how many rows each device loses before one is removed, and
 * takes all memory first. A pass is rare: it makes room for a sixteenth of the table. */
#include "server/store/cuda/evict.h"
#include "server/store/nccl/group.h"

#include <stdlib.h>

#include "server/store/use.h"

/* Pinned memory, for all devices. */
struct counts {
    struct use_choice choice;
    struct use_survey found[WIRE_MAX];
    uint32_t bins[WIRE_MAX][USE_BINS];
};

struct group_eviction {
    struct flow *flow;
    struct evict_pass passes[WIRE_MAX];
    struct counts *counts;
    uint64_t n, n_may_go;     /* rows */
    uint64_t leave[WIRE_MAX]; /* rows to remove from each device */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- who goes ---- */

static int survey(struct group_eviction *ev)
{
    struct group *group = ev->flow->group;
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = evict_survey(ev->flow->members[d].call, &ev->passes[d], &ev->counts->found[d]);
    }
    if (status == 0)
        status = group_await(ev->flow);
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        evict_note_survey(group->tables[d], &ev->counts->found[d]);
        ev->n_may_go += ev->counts->found[d].n_may_go;
    }
    return status;
}

static int count_digit(struct group_eviction *ev, const struct use_digit *digit)
{
    struct group *group = ev->flow->group;
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        struct store *table = group->tables[d];
        const struct evict_view *view = &ev->passes[d].view;
        uint64_t bytes = sizeof ev->counts->bins[d];
        status = device_use(table->device);
        if (status == 0)
            status =
                device_copy(view->choice, &ev->counts->choice, sizeof *view->choice, table->stream);
        if (status == 0)
            status = device_fill(view->bins, 0, bytes, table->stream);
        if (status == 0)
            status = launch_count_digit(table->view, cuda_use(table), *view, *digit, table->stream);
        if (status == 0)
            status = device_copy(ev->counts->bins[d], view->bins, bytes, table->stream);
    }
    return status ? status : group_await(ev->flow);
}

static uint64_t in_bin(const struct group_eviction *ev, uint32_t bin)
{
    uint64_t sum = 0;
    for (uint32_t d = 0; d < ev->flow->group->n; d++)
        sum += ev->counts->bins[d][bin];
    return sum;
}

static void take_bin(struct group_eviction *ev, uint32_t bin)
{
    for (uint32_t d = 0; d < ev->flow->group->n; d++)
        ev->leave[d] += ev->counts->bins[d][bin];
}

/* All rows of lower bins go. The next digit decides about the bin in which `left` ends. */
static void pick(struct group_eviction *ev, const struct use_digit *digit)
{
    struct use_choice *c = &ev->counts->choice;
    uint32_t bin = 0;
    for (; bin + 1 < USE_BINS && in_bin(ev, bin) < c->left; bin++) {
        c->left -= in_bin(ev, bin);
        take_bin(ev, bin);
    }
    c->bound[digit->word] |= (uint64_t)bin << digit->shift;
    c->word = digit->word;
    c->shift = digit->shift;
    c->is_done = in_bin(ev, bin) == c->left;
    if (c->is_done)
        take_bin(ev, bin);
}

static void choose_all(struct group_eviction *ev)
{
    ev->counts->choice = (struct use_choice){
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, .left = ev->n, .shift = 63, .is_done = 1};
    for (uint32_t d = 0; d < ev->flow->group->n; d++)
        ev->leave[d] = ev->counts->found[d].n_may_go;
}

/* Ranks are unique, so at the last digit a bin ends exactly at the wanted count. */
static int choose(struct group_eviction *ev)
{
    const struct store *table = ev->flow->group->tables[0];
    struct use_digit digits[USE_DIGITS_MAX];
    struct use_choice *c = &ev->counts->choice;
    struct use_view use = cuda_use(table);
    uint32_t n = use_digits(&use.rule, table->view.row_slots != NULL, digits);
    int status = 0;
    *c = (struct use_choice){.left = ev->n, .shift = 63};
    if (ev->n == ev->n_may_go)
        choose_all(ev);
    for (uint32_t i = 0; i < n && status == 0 && !c->is_done; i++) {
        status = count_digit(ev, &digits[i]);
        if (status == 0)
            pick(ev, &digits[i]);
    }
    return status;
}

/* ---- going ---- */

/* Takes memory on every device before a row of any is removed. A device may get as many rows as it
 * has keys that need one, but not more than the table may get. */
static int reserve(struct group_eviction *ev, uint64_t room)
{
    struct flow *flow = ev->flow;
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        struct call *call = flow->members[d].call;
        status = device_use(flow->group->tables[d]->device);
        if (status == 0)
            status = evict_reserve(call, &ev->passes[d], ev->leave[d],
                                   least(call->report->n_leaders, room));
    }
    return status;
}

static int remove_rows(struct group_eviction *ev)
{
    struct flow *flow = ev->flow;
    int status = 0;
    for (uint32_t d = 0; d < flow->group->n && status == 0; d++) {
        const struct store *table = flow->group->tables[d];
        if (ev->leave[d] == 0)
            continue;
        status = device_use(table->device);
        if (status == 0)
            status = device_copy(ev->passes[d].view.choice, &ev->counts->choice,
                                 sizeof ev->counts->choice, table->stream);
        if (status == 0)
            status = evict_chosen(flow->members[d].call, &ev->passes[d], ev->leave[d]);
    }
    flow->n_evicted = (uint32_t)ev->n;
    return status ? status : group_await(flow);
}

/* Decides which rows go, and takes the memory for that. EMBD_FULL. */
static int find(struct group_eviction *ev, uint64_t n_leaders, uint64_t room, struct embd__error *e)
{
    struct group *group = ev->flow->group;
    int status = survey(ev);
    if (status != 0)
        return group_error(group, status, "to choose rows to evict", e);
    ev->n = least(evict_most(&group->schema->s, n_leaders - room), ev->n_may_go);
    if (n_leaders > room + ev->n && !ev->flow->may_drop)
        return group_refuse(group, n_leaders, room + ev->n, e);
    if (ev->n == 0)
        return EMBD_OK;
    status = choose(ev);
    if (status == 0)
        status = reserve(ev, room + ev->n);
    return status ? group_error(group, status, "to evict rows", e) : EMBD_OK;
}

static int run_pass(struct group_eviction *ev, uint64_t n_leaders, uint64_t room, bool *again,
                    struct embd__error *e)
{
    if (find(ev, n_leaders, room, e) != EMBD_OK || ev->n == 0)
        return e->status;
    *again = !ev->flow->is_only_planned;
    int status = *again ? remove_rows(ev) : group_await(ev->flow);
    return status ? group_error(ev->flow->group, status, "evicting rows", e) : EMBD_OK;
}

/* Whether no row of any device can have expired. */
static bool is_vain(const struct group *group)
{
    for (uint32_t d = 0; d < group->n; d++)
        if (!evict_is_vain(group->tables[d]))
            return false;
    return true;
}

static struct group_eviction *eviction_new(struct flow *flow)
{
    struct group_eviction *ev = calloc(1, sizeof *ev);
    if (ev == NULL)
        return NULL;
    ev->flow = flow;
    ev->counts = buffer_new(sizeof *ev->counts);
    if (ev->counts != NULL)
        return ev;
    free(ev);
    return NULL;
}

static void eviction_free(struct group_eviction *ev)
{
    struct group *group = ev->flow->group;
    for (uint32_t d = 0; d < group->n; d++) {
        device_use(group->tables[d]->device);
        evict_free(group->tables[d], &ev->passes[d]);
    }
    buffer_free(ev->counts, sizeof *ev->counts);
    free(ev);
}

int group_evict(struct flow *flow, uint64_t n_leaders, uint64_t room, bool *again,
                struct embd__error *e)
{
    struct group *group = flow->group;
    if (!group->tables[0]->evicts || flow->state == FLOW_REPLANNED || is_vain(group))
        return EMBD_OK;
    flow->eviction = eviction_new(flow);
    if (flow->eviction == NULL)
        return group_error(group, DEVICE_NO_MEMORY, "to choose rows to evict", e);
    int status = run_pass(flow->eviction, n_leaders, room, again, e);
    if (flow->is_only_planned)
        flow->n_evicted = (uint32_t)flow->eviction->n;
    if (group->failed) /* a device may still read and write there */
        return status;
    eviction_free(flow->eviction);
    flow->eviction = NULL;
    return status;
}
