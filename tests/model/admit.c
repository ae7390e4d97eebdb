/* admit.c - which keys of a request get a row: those that have been seen often enough, the first of
 * them where there is not room for all. A request that comes when there are as many candidates as
 * rows, and least_candidates, forgets all of them first. */
#include "tests/model/inside.h"

void model_decide_candidates(struct model *model, const struct model_request *request)
{
    uint64_t most = model->least_candidates;
    if (model->n_rows > most)
        most = model->n_rows;
    model->forgets =
        model->schema.admit_after > 1 && request->n_distinct > 0 && model->n_candidates >= most;
}

void model_forget_candidates(struct model *model)
{
    model->lost.forgotten += model->n_candidates;
    for (uint64_t i = 0; i < model->n_keys; i++)
        if (model->keys[i]->sights > 0)
            model_become(model, model->keys[i], false, 0);
    model->forgets = false;
}

void model_admit_after(struct model *model, uint32_t n)
{
    model->schema.admit_after = n;
    for (uint64_t i = 0; i < model->n_keys && n <= 1; i++)
        if (model->keys[i]->sights > 0)
            model_become(model, model->keys[i], false, 0);
}

uint64_t model_room(const struct model *model)
{
    uint64_t capacity = model->schema.capacity;
    if (model->schema.on_full == EMBD_ON_FULL_GROW || capacity == 0)
        return UINT32_MAX; /* no request has more keys */
    return capacity > model->n_rows ? capacity - model->n_rows : 0;
}

struct model_counts model_judge(const struct model *model, const struct model_request *request,
                                uint64_t room)
{
    struct model_counts counts = {0};
    for (uint32_t i = 0; i < request->n_distinct; i++) {
        struct model_key *k = request->distinct[i];
        if (k->has_row) {
            k->status = EMBD_KEY_HIT;
        } else if ((model->forgets ? 0 : k->sights) + 1 < model->schema.admit_after) {
            k->status = EMBD_KEY_FILTERED;
            counts.n_filtered++;
        } else if (counts.n_inserted < room) {
            k->status = EMBD_KEY_INSERTED;
            counts.n_inserted++;
        } else {
            k->status = EMBD_KEY_FULL;
            counts.n_full++;
        }
    }
    return counts;
}
