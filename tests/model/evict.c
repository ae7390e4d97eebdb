/* evict.c - which rows go when there is no room for new ones: as many as are missing, or a
 * sixteenth of the capacity at once, the least used first. Rows of the request's own keys stay. */
#include <math.h>
#include <stdlib.h>

#include "tests/model/inside.h"

static bool evicts(const struct model *model)
{
    embd_on_full on_full = model->schema.on_full;
    return on_full == EMBD_ON_FULL_EVICT_LRU || on_full == EMBD_ON_FULL_EVICT_LFU ||
           on_full == EMBD_ON_FULL_EVICT_TTL || on_full == EMBD_ON_FULL_EVICT_SCORE;
}

/* The step of the request at hand, or its second where rows expire by these. */
static uint64_t now_of(const struct model *model)
{
    if (!model_is_timed(model))
        return model->step;
    return model->seconds > model->clock ? model->seconds : model->clock;
}

/* The last step, or second, that used the row; evict_lfu: then how many pushes have; evict_score:
 * then the score. */
static float *use_of(const struct model *model, const struct model_key *k)
{
    return k->state + model->use_at;
}

/* Steps are divided into epochs; counts are halved where one begins. */
static uint64_t epoch_of(const struct model *model, uint64_t step)
{
    return model->schema.lfu_half_life == 0 ? 0 : step / model->schema.lfu_half_life;
}

static float count_of(const struct model *model, float *use, uint32_t occurrences)
{
    uint32_t count = (uint32_t)use[2];
    for (uint64_t epoch = epoch_of(model, model_read_step(use));
         epoch < epoch_of(model, model->step) && count > 0; epoch++)
        count /= 2;
    if (occurrences > 0)
        count += model->schema.lfu_occurrences ? occurrences : 1;
    return count < 16777215 ? (float)count : 16777215.0f;
}

void model_note_use(const struct model *model, struct model_key *k, uint32_t occurrences)
{
    if (!evicts(model))
        return;
    if (model->schema.on_full == EMBD_ON_FULL_EVICT_LFU)
        use_of(model, k)[2] = count_of(model, use_of(model, k), occurrences);
    model_write_step(use_of(model, k), now_of(model));
}

void model_note_score(const struct model *model, struct model_key *k, float score)
{
    if (score > -INFINITY)
        use_of(model, k)[2] = score == 0 ? 0 : score;
}

bool model_is_timed(const struct model *model)
{
    return model->schema.on_full == EMBD_ON_FULL_EVICT_TTL && model->schema.ttl_seconds > 0;
}

void model_advance_clock(struct model *model)
{
    if (model_is_timed(model))
        model->clock = now_of(model);
}

/* The counts of two rows as they would be in the later one's epoch, without rounding: below 0, a is
 * less; above 0, b. */
static int compare_counts(const struct model *model, const float *a, const float *b)
{
    uint64_t count_a = (uint64_t)a[2], count_b = (uint64_t)b[2],
             epoch_a = epoch_of(model, model_read_step(a)),
             epoch_b = epoch_of(model, model_read_step(b));
    for (; epoch_a < epoch_b && count_b < 1 << 24; epoch_a++)
        count_b *= 2;
    for (; epoch_b < epoch_a && count_a < 1 << 24; epoch_b++)
        count_a *= 2;
    return (count_a > count_b) - (count_a < count_b);
}

static bool may_go(const struct model *model, const struct model_key *k)
{
    if (!k->has_row || k->request == model->request)
        return false;
    uint64_t last = model_read_step(use_of(model, k));
    uint64_t lifetime = model_is_timed(model) ? model->schema.ttl_seconds : model->schema.ttl;
    return model->schema.on_full != EMBD_ON_FULL_EVICT_TTL || now_of(model) - last >= lifetime;
}

/* Among rows used equally, an order that is none of the keys'. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static int in_order(const void *left, const void *right, void *arg)
{
    const struct model *model = arg;
    const struct model_key *a = *(struct model_key *const *)left;
    const struct model_key *b = *(struct model_key *const *)right;
    const float *use_a = use_of(model, a), *use_b = use_of(model, b);
    uint64_t last_a = model_read_step(use_a), last_b = model_read_step(use_b);
    int counts =
        model->schema.on_full == EMBD_ON_FULL_EVICT_LFU ? compare_counts(model, use_a, use_b) : 0;
    if (model->schema.on_full == EMBD_ON_FULL_EVICT_SCORE)
        counts = (use_a[2] > use_b[2]) - (use_a[2] < use_b[2]);
    if (counts != 0)
        return counts;
    if (last_a != last_b)
        return last_a < last_b ? -1 : 1;
    if (a->key != b->key)
        return mix(a->key) < mix(b->key) ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

/* Those that may go, the first to go first. Free the array. */
static struct model_key **candidates_to_go(const struct model *model, uint32_t *n_out)
{
    struct model_key **rows = malloc((model->n_rows + 1) * sizeof *rows);
    *n_out = 0;
    for (uint64_t i = 0; i < model->n_keys && evicts(model); i++)
        if (may_go(model, model->keys[i]))
            rows[(*n_out)++] = model->keys[i];
    qsort_r(rows, *n_out, sizeof *rows, in_order, (void *)model);
    return rows;
}

struct model_key **model_choose_victims(const struct model *model, uint32_t missing,
                                        uint32_t *n_out)
{
    uint64_t sixteenth = model->schema.capacity / 16,
             most = missing > sixteenth ? missing : sixteenth;
    uint32_t n;
    *n_out = 0;
    if (missing == 0)
        return NULL;
    struct model_key **victims = candidates_to_go(model, &n);
    *n_out = n < most ? n : (uint32_t)most;
    return victims;
}

int model_bound(struct model *model, const embd_schema *to)
{
    embd_schema was = model->schema;
    uint32_t n, n_gone = 0;
    bool is_bound = to->on_full != EMBD_ON_FULL_GROW && to->capacity > 0;
    if (is_bound && model->n_rows > to->capacity)
        n_gone = (uint32_t)(model->n_rows - to->capacity);
    model->schema = *to;
    model->request++;
    model->seconds = 0;
    struct model_key **rows = candidates_to_go(model, &n);
    if (n_gone > n)
        model->schema = was;
    for (uint32_t i = 0; i < n_gone && n_gone <= n; i++)
        model_become(model, rows[i], false, 0);
    free(rows);
    model->lost.shrunk += n_gone > n ? 0 : n_gone;
    return n_gone > n ? EMBD_FULL : EMBD_OK;
}
