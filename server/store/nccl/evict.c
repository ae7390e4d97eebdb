/* evict.c - on_full = evict_...: rows of the whole table go so that others can come, those that
 * would go from one device too, or from the host: the capacity is the table's, and a row's rank
 * (use.h) says nothing of where it lies.
 *
 * Every device surveys its rows, and the host adds up how many may go. The rank of the last one to
 * go is then found digit by digit, as one device does it (evict.cu): each counts its rows in a bin
 * for each value of the digit, and the host, which waits for the bins, picks the one in which the
 * number that is to go ends. So it knows how many rows each device loses before one is gone, and
 * all that may fail is done first. A pass is rare: it makes room for a sixteenth of the table. */
#include "server/store/nccl/group.h"

#include <stdlib.h>

#include "server/store/use.h"

/* Pinned, of all devices. */
struct counts {
    struct use_choice choice;
    struct use_survey found[WIRE_MAX];
    uint32_t bins[WIRE_MAX][USE_BINS];
};

struct evicting {
    struct flow *flow;
    struct evict_pass passes[WIRE_MAX];
    struct counts *counts;
    uint64_t n, n_may_go;     /* rows */
    uint64_t leave[WIRE_MAX]; /* of n, those of each device */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- who goes ---- */

static int survey(struct evicting *ev)
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

static int count_digit(struct evicting *ev, const struct use_digit *digit)
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

static uint64_t in_bin(const struct evicting *ev, uint32_t bin)
{
    uint64_t sum = 0;
    for (uint32_t d = 0; d < ev->flow->group->n; d++)
        sum += ev->counts->bins[d][bin];
    return sum;
}

static void take_bin(struct evicting *ev, uint32_t bin)
{
    for (uint32_t d = 0; d < ev->flow->group->n; d++)
        ev->leave[d] += ev->counts->bins[d][bin];
}

/* Rows of lower bins go; of those of the one in which `left` ends, the next digit decides. */
static void pick(struct evicting *ev, const struct use_digit *digit)
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

static void choose_all(struct evicting *ev)
{
    ev->counts->choice = (struct use_choice){
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, .left = ev->n, .shift = 63, .is_done = 1};
    for (uint32_t d = 0; d < ev->flow->group->n; d++)
        ev->leave[d] = ev->counts->found[d].n_may_go;
}

/* Ranks differ, so the last digit at the latest has a bin with as many as are left. */
static int choose(struct evicting *ev)
{
    const struct store *table = ev->flow->group->tables[0];
    struct use_digit digits[USE_DIGITS_MAX];
    struct use_choice *c = &ev->counts->choice;
    uint32_t n = use_digits(cuda_use(table).counts, table->view.row_slots != NULL, digits);
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

/* On every device, before a row of any goes. A device may get as many rows as it has keys that need
 * one, if that is not more than the table may get. */
static int reserve(struct evicting *ev, uint64_t room)
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

static int let_go(struct evicting *ev)
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

/* Which rows go, and the memory for that. EMBD_FULL. */
static int find(struct evicting *ev, uint64_t n_leaders, uint64_t room, struct embd__error *e)
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

static int run_pass(struct evicting *ev, uint64_t n_leaders, uint64_t room, bool *again,
                    struct embd__error *e)
{
    if (find(ev, n_leaders, room, e) != EMBD_OK || ev->n == 0)
        return e->status;
    *again = ev->flow->plan == NULL;
    int status = *again ? let_go(ev) : group_await(ev->flow);
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

static struct evicting *evicting_new(struct flow *flow)
{
    struct evicting *ev = calloc(1, sizeof *ev);
    if (ev == NULL)
        return NULL;
    ev->flow = flow;
    ev->counts = buffer_new(sizeof *ev->counts);
    if (ev->counts != NULL)
        return ev;
    free(ev);
    return NULL;
}

static void evicting_free(struct evicting *ev)
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
    if (!group->tables[0]->evicts || flow->has_evicted || is_vain(group))
        return EMBD_OK;
    flow->has_evicted = true;
    flow->evicting = evicting_new(flow);
    if (flow->evicting == NULL)
        return group_error(group, DEVICE_NO_MEMORY, "to choose rows to evict", e);
    int status = run_pass(flow->evicting, n_leaders, room, again, e);
    if (flow->plan != NULL)
        flow->n_evicted = (uint32_t)flow->evicting->n;
    if (group->failed) /* a device may read and write there yet */
        return status;
    evicting_free(flow->evicting);
    flow->evicting = NULL;
    return status;
}
