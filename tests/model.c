#include "model.h"

#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

float model_round(float x, embd_dtype dtype)
{
    if (dtype == EMBD_F32 || !isfinite(x) || x == 0.0f)
        return x;
    int digits = dtype == EMBD_F16 ? 11 : 8, least = dtype == EMBD_F16 ? -24 : -133, exponent;
    frexp((double)x, &exponent); /* 2^(exponent-1) <= |x| < 2^exponent */
    int unit = exponent - digits > least ? exponent - digits : least;
    double rounded = ldexp(rint(ldexp((double)x, -unit)), unit);
    double overflow = dtype == EMBD_F16 ? 65536.0 : ldexp(1.0, 128);
    if (fabs(rounded) >= overflow)
        return x > 0 ? INFINITY : -INFINITY;
    return copysignf((float)rounded, x);
}

void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k0 = key[0], k1 = key[1];
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* 2 (s + s^3/3 + ... + s^23/23) + e log 2 where x = 2^e (1 + s) / (1 - s) */
static double natural_log(double x)
{
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int k = 23; k > 0; k -= 2)
        sum = sum * z + 2.0 / k;
    return e * 0.69314718055994530942 + s * sum;
}

static double ratio(const double above[8], const double below[8], double x)
{
    double a = above[7], b = below[7];
    for (int i = 7; i-- > 0;) {
        a = a * x + above[i];
        b = b * x + below[i];
    }
    return a / b;
}

/* Applied Statistics algorithm AS 241, PPND16. */
static double normal_quantile(double p)
{
    static const double a[8] = {3.3871328727963666080e0, 133.14166789178437745,
                                1971.5909503065514427,   13731.693765509461125,
                                45921.953931549871457,   67265.770927008700853,
                                33430.575583588128105,   2509.0809287301226727};
    static const double b[8] = {1,
                                42.313330701600911252,
                                687.18700749205790830,
                                5394.1960214247511077,
                                21213.794301586595867,
                                39307.895800092710610,
                                28729.085735721942674,
                                5226.4952788528545610};
    static const double c[8] = {1.42343711074968357734,   4.63033784615654529590,
                                5.76949722146069140550,   3.64784832476320460504,
                                1.27045825245236838258,   0.241780725177450611770,
                                0.0227238449892691845833, 7.74545014278341407640e-4};
    static const double d[8] = {1,
                                2.05319162663775882187,
                                1.67638483018380384940,
                                0.689767334985100004550,
                                0.148103976427480074590,
                                0.0151986665636164571966,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720,    5.46378491116411436990,
                                1.78482653991729133580,    0.296560571828504891230,
                                0.0265321895265761230930,  1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1,
                                0.599832206555887937690,
                                0.136929880922735805310,
                                0.0148753612908506148525,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q, above = a[7], below = b[7];
        for (int i = 7; i-- > 0;) {
            above = above * r + a[i];
            below = below * r + b[i];
        }
        return q * above / below;
    }
    double r = sqrt(-natural_log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? ratio(c, d, r - 1.6) : ratio(e, f, r - 5);
    return q < 0 ? -z : z;
}

/* By its prefix sum where slots do not tell keys apart. */
static uint64_t slot_size(const embd_schema *s, uint64_t key, uint32_t slot)
{
    if (s->partition != EMBD_SLOT) {
        uint64_t end = 0;
        for (slot = 0; slot + 1 < s->slots; slot++)
            if (key < (end += s->slot_sizes[slot]))
                break;
    }
    return s->slot_sizes[slot];
}

static float first_column(const embd_schema *s, uint64_t key, uint32_t slot, uint32_t column)
{
    uint32_t counter[4] = {(uint32_t)key, (uint32_t)(key >> 32), column / 4, slot}, words[4];
    uint32_t philox_key[2] = {(uint32_t)s->seed, (uint32_t)(s->seed >> 32)};
    model_philox(counter, philox_key, words);
    uint32_t word = words[column % 4];
    float a = s->initializer.a, b = s->initializer.b;
    if (s->initializer.kind == EMBD_CONSTANT)
        return a;
    if (s->initializer.kind == EMBD_NORMAL)
        return (float)(a + b * normal_quantile((word + 0.5) / 4294967296.0));
    if (s->initializer.kind == EMBD_UNIFORM_SLOT) {
        b = sqrtf(1.0f / (float)slot_size(s, key, slot));
        a = -b;
    }
    float value = a + (b - a) * ((float)(word / 256) / 16777216.0f);
    return value < b ? value : a;
}

void model_first_value(const struct model *model, uint64_t key, uint32_t slot, float *w)
{
    for (uint32_t c = 0; c < model->schema.dim; c++)
        w[c] = model_round(first_column(&model->schema, key, slot, c), model->schema.dtype);
}

/* ---- keys ---- */

static uint32_t state_floats(const embd_schema *s)
{
    switch (s->optimizer.kind) {
    case EMBD_SGD:
        return 0;
    case EMBD_ROWWISE_ADAGRAD:
        return 1;
    case EMBD_ADAM:
    case EMBD_FTRL:
        return 2 * s->dim;
    default:
        return s->dim;
    }
}

struct model *model_new(const embd_schema *schema)
{
    struct model *model = calloc(1, sizeof *model);
    model->schema = *schema;
    model->optimizer_floats = state_floats(schema);
    model->state_floats = model->optimizer_floats;
    if (schema->optimizer.update == EMBD_LAZY_GLOBAL)
        model->state_floats += 2;
    model->use_at = model->state_floats;
    if (schema->on_full == EMBD_EVICT_LFU)
        model->state_floats += 3;
    else if (schema->on_full == EMBD_EVICT_LRU || schema->on_full == EMBD_EVICT_TTL)
        model->state_floats += 2;
    return model;
}

static void keep(void *key)
{
    (void)key;
}

void model_free(struct model *model)
{
    tdestroy(model->tree, keep);
    for (uint64_t i = 0; i < model->n_keys; i++) {
        free(model->keys[i]->w);
        free(model->keys[i]);
    }
    free(model->keys);
    free(model);
}

static int compare(const void *left, const void *right)
{
    const struct model_key *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

static struct model_key *find(const struct model *model, uint64_t key, uint32_t slot)
{
    struct model_key wanted = {.key = key, .slot = slot};
    struct model_key **found = tfind(&wanted, &model->tree, compare);
    return found ? *found : NULL;
}

const struct model_key *model_find(const struct model *model, uint64_t key, uint32_t slot)
{
    return find(model, key, slot);
}

static struct model_key *see(struct model *model, uint64_t key, uint32_t slot)
{
    struct model_key *k = find(model, key, slot);
    if (k)
        return k;
    uint32_t dim = model->schema.dim;
    k = calloc(1, sizeof *k);
    k->key = key;
    k->slot = slot;
    k->w = calloc(3 * dim + model->state_floats, sizeof(float));
    k->total = k->w + dim;
    k->run = k->total + dim;
    k->state = k->run + dim;
    if ((model->n_keys & (model->n_keys - 1)) == 0)
        model->keys =
            realloc(model->keys, (model->n_keys ? 2 * model->n_keys : 1) * sizeof *model->keys);
    model->keys[model->n_keys++] = k;
    tsearch(k, &model->tree, compare);
    return k;
}

/* A row of an evicting table is used now. */
static void note_use(const struct model *model, struct model_key *k, int pushes)
{
    float *use = k->state + model->use_at;
    if (model->use_at == model->state_floats)
        return;
    use[0] = (float)(model->step % 16777216);
    use[1] = (float)(model->step / 16777216);
    if (model->schema.on_full == EMBD_EVICT_LFU && use[2] + (float)pushes < 16777216.0f)
        use[2] += (float)pushes;
}

static void make_row(struct model *model, struct model_key *k)
{
    embd_optimizer_kind kind = model->schema.optimizer.kind;
    bool accumulates = kind == EMBD_ADAGRAD || kind == EMBD_ROWWISE_ADAGRAD;
    model->n_candidates -= k->sights != 0;
    model->n_rows++;
    k->sights = 0;
    k->has_row = true;
    model_first_value(model, k->key, k->slot, k->w);
    for (uint32_t i = 0; i < model->state_floats; i++)
        k->state[i] = accumulates ? model->schema.optimizer.initial_accumulator : 0.0f;
    for (uint32_t i = model->optimizer_floats; i < model->state_floats; i++)
        k->state[i] = 0.0f;
    note_use(model, k, 0);
}

static void forget(struct model *model, struct model_key *k)
{
    model->n_rows -= k->has_row;
    model->n_candidates -= k->sights != 0;
    k->has_row = false;
    k->sights = 0;
}

void model_set_row(struct model *model, uint64_t key, uint32_t slot, const float *w,
                   const float *state)
{
    struct model_key *k = see(model, key, slot);
    if (!k->has_row)
        make_row(model, k);
    memcpy(k->w, w, model->schema.dim * sizeof *w);
    if (model->state_floats)
        memcpy(k->state, state, model->state_floats * sizeof *state);
}

void model_set_candidate(struct model *model, uint64_t key, uint32_t slot, uint32_t sights)
{
    struct model_key *k = see(model, key, slot);
    if (k->has_row)
        return;
    model->n_candidates += sights != 0;
    model->n_candidates -= k->sights != 0;
    k->sights = sights;
}

/* ---- batches ---- */

static uint32_t begin_of(const struct model_batch *batch, uint32_t row)
{
    return batch->offsets ? batch->offsets[row] : row;
}

static uint32_t end_of(const struct model_batch *batch, uint32_t row)
{
    return batch->offsets ? batch->offsets[row + 1] : row + 1;
}

static uint32_t slot_of(const struct model_batch *batch, uint32_t row)
{
    return batch->slots ? batch->slots[row] : 0;
}

/* What mean and sqrtn divide a row by. */
static float divisor(const struct model *model, const struct model_batch *batch, uint32_t row)
{
    embd_combiner combiner = model->schema.combiner;
    float sum = 0;
    if (batch->offsets == NULL)
        return 1;
    for (uint32_t k = begin_of(batch, row); k < end_of(batch, row); k++) {
        float weight = batch->weights ? batch->weights[k] : 1.0f;
        sum += combiner == EMBD_SQRTN ? weight * weight : weight;
    }
    if (sum == 0 || combiner == EMBD_CONCAT || combiner == EMBD_SUM)
        return 1;
    return combiner == EMBD_MEAN ? sum : sqrtf(sum);
}

/* ---- pull ---- */

static void value_of(struct model *model, uint64_t key, uint32_t slot, bool zero_missing, float *w,
                     uint8_t *status)
{
    const struct model_key *k = find(model, key, slot);
    bool has_row = k && k->has_row;
    if (has_row)
        memcpy(w, k->w, model->schema.dim * sizeof *w);
    else if (zero_missing)
        memset(w, 0, model->schema.dim * sizeof *w);
    else
        model_first_value(model, key, slot, w);
    if (status)
        *status = has_row ? EMBD_KEY_HIT : EMBD_KEY_MISSING;
}

/* Of the row's keys those of a part. Returns how many these are. */
static uint32_t sum_part(struct model *model, const struct model_batch *batch, uint32_t row,
                         uint32_t part, bool zero_missing, float *sum, uint8_t *statuses)
{
    float w[EMBD_DIM_MAX];
    uint32_t n = 0;
    for (uint32_t k = begin_of(batch, row); k < end_of(batch, row); k++) {
        if (model->n_parts && model->part_of(model, batch->keys[k]) != part)
            continue;
        value_of(model, batch->keys[k], slot_of(batch, row), zero_missing, w,
                 statuses ? statuses + k : NULL);
        for (uint32_t c = 0; c < model->schema.dim; c++) {
            float term = batch->weights ? w[c] * batch->weights[k] : w[c];
            sum[c] = n == 0 ? term : sum[c] + term;
        }
        n++;
    }
    return n;
}

void model_pull(struct model *model, const struct model_batch *batch, bool zero_missing,
                bool divide, float *values, uint8_t *statuses)
{
    uint32_t dim = model->schema.dim, n_parts = model->n_parts ? model->n_parts : 1;
    float part_sum[EMBD_DIM_MAX];
    for (uint32_t row = 0; row < batch->n_rows; row++) {
        float *sum = values + (size_t)row * dim;
        bool is_first = true;
        memset(sum, 0, dim * sizeof *sum);
        for (uint32_t part = 0; part < n_parts; part++) {
            if (sum_part(model, batch, row, part, zero_missing, part_sum, statuses) == 0)
                continue;
            for (uint32_t c = 0; c < dim; c++)
                sum[c] = is_first ? part_sum[c] : sum[c] + part_sum[c];
            is_first = false;
        }
        float by = divide ? divisor(model, batch, row) : 1.0f;
        for (uint32_t c = 0; c < dim && by != 1.0f; c++)
            sum[c] /= by;
    }
}

/* ---- push ---- */

/* The distinct keys of a request, in order of first occurrence, each with its status. */
struct touched {
    struct model_key **keys;
    uint32_t n;
    struct model_counts counts;
};

/* What becomes of the keys of a request, when there is room for so many more rows. */
static void judge(const struct model *model, struct touched *touched, uint64_t room)
{
    touched->counts = (struct model_counts){0};
    for (uint32_t i = 0; i < touched->n; i++) {
        struct model_key *k = touched->keys[i];
        if (k->has_row) {
            k->status = EMBD_KEY_HIT;
        } else if (k->sights + 1 < model->schema.admit_after) {
            k->status = EMBD_KEY_FILTERED;
            touched->counts.n_filtered++;
        } else if (touched->counts.n_inserted == room) {
            k->status = EMBD_KEY_FULL;
            touched->counts.n_full++;
        } else {
            k->status = EMBD_KEY_INSERTED;
            touched->counts.n_inserted++;
        }
    }
}

static uint64_t room_of(const struct model *model)
{
    if (model->schema.on_full == EMBD_GROW || model->schema.capacity == 0)
        return UINT64_MAX;
    return model->schema.capacity - model->n_rows;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

static uint64_t last_push(const struct model *model, const struct model_key *k)
{
    const float *use = k->state + model->use_at;
    return (uint64_t)use[0] + (uint64_t)use[1] * 16777216;
}

static const struct model *ordering; /* of go_order */

static int go_order(const void *left, const void *right)
{
    const struct model_key *a = *(struct model_key *const *)left,
                           *b = *(struct model_key *const *)right;
    uint32_t count_at = ordering->use_at + 2;
    if (ordering->schema.on_full == EMBD_EVICT_LFU && a->state[count_at] != b->state[count_at])
        return a->state[count_at] < b->state[count_at] ? -1 : 1;
    uint64_t s = last_push(ordering, a), t = last_push(ordering, b);
    if (s != t)
        return s < t ? -1 : 1;
    if (a->key != b->key)
        return mix(a->key) < mix(b->key) ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

/* The rows that go: those of other keys, the first in order. */
static struct touched choose_victims(const struct model *model, uint64_t missing)
{
    const embd_schema *s = &model->schema;
    uint64_t most = missing > s->capacity / 16 ? missing : s->capacity / 16;
    struct touched gone = {.keys = malloc((model->n_rows + 1) * sizeof *gone.keys)};
    for (uint64_t i = 0; i < model->n_keys; i++) {
        struct model_key *k = model->keys[i];
        bool may_go = s->on_full == EMBD_EVICT_LRU || s->on_full == EMBD_EVICT_LFU;
        if (k->has_row && s->on_full == EMBD_EVICT_TTL)
            may_go = model->step - last_push(model, k) >= s->ttl;
        if (k->has_row && may_go && k->request != model->request)
            gone.keys[gone.n++] = k;
    }
    ordering = model;
    qsort(gone.keys, gone.n, sizeof *gone.keys, go_order);
    gone.n = gone.n < most ? gone.n : (uint32_t)most;
    return gone;
}

static struct touched touch(struct model *model, const struct model_batch *batch)
{
    struct touched touched = {.keys = malloc((batch->n_keys + 1) * sizeof *touched.keys)};
    model->request++;
    for (uint32_t row = 0; row < batch->n_rows; row++)
        for (uint32_t i = begin_of(batch, row); i < end_of(batch, row); i++) {
            struct model_key *k = see(model, batch->keys[i], slot_of(batch, row));
            if (k->request != model->request) {
                k->request = model->request;
                touched.keys[touched.n++] = k;
            }
        }
    judge(model, &touched, room_of(model));
    return touched;
}

static void tell(const struct model *model, const struct model_batch *batch, uint8_t *statuses)
{
    for (uint32_t row = 0; row < batch->n_rows && statuses; row++)
        for (uint32_t i = begin_of(batch, row); i < end_of(batch, row); i++)
            statuses[i] = (uint8_t)find(model, batch->keys[i], slot_of(batch, row))->status;
}

/* Creates rows, of other keys' where there is no room, and counts sights. */
static int create(struct model *model, const struct model_batch *batch, struct touched *touched,
                  uint8_t *statuses)
{
    struct touched gone = {.n = 0};
    if (touched->counts.n_full) {
        gone = choose_victims(model, touched->counts.n_full);
        judge(model, touched, room_of(model) + gone.n);
    }
    bool is_refused = touched->counts.n_full && statuses == NULL;
    for (uint32_t i = 0; i < gone.n && !is_refused; i++)
        forget(model, gone.keys[i]);
    free(gone.keys);
    if (is_refused)
        return EMBD_FULL;
    touched->counts.n_evicted = gone.n;
    tell(model, batch, statuses);
    for (uint32_t i = 0; i < touched->n; i++) {
        struct model_key *k = touched->keys[i];
        if (k->status == EMBD_KEY_INSERTED)
            make_row(model, k);
        if (k->status == EMBD_KEY_FILTERED)
            model->n_candidates += k->sights++ == 0;
    }
    return EMBD_OK;
}

int model_insert(struct model *model, const struct model_batch *batch, uint8_t *statuses,
                 struct model_counts *counts_out)
{
    struct touched touched = touch(model, batch);
    int status = create(model, batch, &touched, statuses);
    free(touched.keys);
    if (counts_out)
        *counts_out = touched.counts;
    return status;
}

uint32_t model_erase(struct model *model, const struct model_batch *batch, uint8_t *statuses)
{
    uint32_t n_erased = 0;
    model->request++;
    for (uint32_t row = 0; row < batch->n_rows; row++)
        for (uint32_t i = begin_of(batch, row); i < end_of(batch, row); i++) {
            struct model_key *k = see(model, batch->keys[i], slot_of(batch, row));
            if (k->request != model->request) {
                k->status = k->has_row ? EMBD_KEY_EVICTED : EMBD_KEY_MISSING;
                k->request = model->request;
                n_erased += k->has_row;
                forget(model, k);
            }
            if (statuses)
                statuses[i] = (uint8_t)k->status;
        }
    return n_erased;
}

/* One more occurrence. Runs of 256 are summed, then the runs. */
static void add_gradient(struct model_key *k, const float *grad, const float *weight, uint32_t dim)
{
    for (uint32_t c = 0; c < dim; c++) {
        float g = weight ? grad[c] * *weight : grad[c];
        k->run[c] = k->n % 256 == 0 ? g : k->run[c] + g;
    }
    k->n++;
}

static void end_run(struct model_key *k, uint32_t dim)
{
    for (uint32_t c = 0; c < dim; c++)
        k->total[c] = k->n <= 256 ? k->run[c] : k->total[c] + k->run[c];
}

static void sum_gradients(const struct model *model, const struct model_batch *batch,
                          const float *grads, bool divide)
{
    uint32_t dim = model->schema.dim;
    for (uint32_t row = 0; row < batch->n_rows; row++) {
        float by = divide ? divisor(model, batch, row) : 1.0f;
        for (uint32_t i = begin_of(batch, row); i < end_of(batch, row); i++) {
            struct model_key *k = find(model, batch->keys[i], slot_of(batch, row));
            float weight = (batch->weights ? batch->weights[i] : 1.0f) / by;
            bool is_weighted = batch->weights || by != 1.0f;
            add_gradient(k, grads + (size_t)row * dim, is_weighted ? &weight : NULL, dim);
            if (k->n % 256 == 0)
                end_run(k, dim);
        }
    }
}

/* base^n, squaring from the lowest bit of n. */
static double power(double base, uint64_t n)
{
    double result = 1;
    for (; n; n /= 2, base *= base)
        if (n % 2)
            result *= base;
    return result;
}

/* The mean of squares in 32 lanes, halved again and again: see server/store/optimizer.h. */
static float sum_of_squares(const float *g, uint32_t dim)
{
    float lane[32] = {0};
    for (uint32_t c = 0; c < dim; c++)
        lane[c % 32] += g[c] * g[c];
    for (uint32_t n = 16; n; n /= 2)
        for (uint32_t l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

/* The formulas of embd.h. */
static void step_column(const embd_optimizer *o, uint64_t t, float *w, float *s, float *s2, float g)
{
    float before = s ? *s : 0, root, z;
    double alpha;
    switch (o->kind) {
    case EMBD_SGD:
        *w -= o->lr * g;
        break;
    case EMBD_MOMENTUM:
        *s = o->momentum * *s - o->lr * g;
        *w += *s;
        break;
    case EMBD_NESTEROV:
        *s = o->momentum * before - o->lr * g;
        *w += -o->momentum * before + (1 + o->momentum) * *s;
        break;
    case EMBD_ADAGRAD:
        *s += g * g;
        *w -= o->lr * g / (sqrtf(*s) + o->eps);
        break;
    case EMBD_ROWWISE_ADAGRAD:
        *w -= o->lr * g / (sqrtf(*s) + o->eps);
        break;
    case EMBD_ADAM:
        alpha = o->lr * sqrt(1 - power(o->beta2, t)) / (1 - power(o->beta1, t));
        *s = o->beta1 * *s + (1 - o->beta1) * g;
        *s2 = o->beta2 * *s2 + (1 - o->beta2) * g * g;
        *w -= (float)alpha * *s / (sqrtf(*s2) + o->eps);
        break;
    case EMBD_RMSPROP:
        *s = o->beta2 * *s + (1 - o->beta2) * g * g;
        *w -= o->lr * g / (sqrtf(*s) + o->eps);
        break;
    case EMBD_FTRL:
        *s += g * g;
        root = sqrtf(*s + o->eps);
        *s2 += g - (root - sqrtf(before + o->eps)) / o->lr * *w;
        z = *s2;
        *w = 0;
        if (fabsf(z) > o->l1)
            *w = ((z < 0 ? -o->l1 : o->l1) - z) / (root / o->lr + o->l2 + o->beta / o->lr);
        break;
    }
}

/* adam with lazy_global: what the steps since `prev` owe, then m and v of now. The step a row was
 * brought forward to stands behind m and v as two halves of 24 bits. */
static void lazy_step_row(const struct model *model, struct model_key *k)
{
    const embd_optimizer *o = &model->schema.optimizer;
    uint32_t dim = model->schema.dim;
    float *m = k->state, *v = m + dim, *stamp = v + dim, pay = 0, decay1 = 1, decay2 = 1;
    uint64_t prev = (uint64_t)stamp[0] + (uint64_t)stamp[1] * 16777216, t = model->step;
    if (prev != 0 && prev < t) {
        double beta1 = o->beta1, beta2 = o->beta2, decay = power(beta1, t - prev);
        pay = (float)(o->lr / (1 - beta1) * sqrt(1 - power(beta2, prev)) /
                      (1 - power(beta1, prev)) * (1 - decay));
        decay1 = (float)decay;
        decay2 = (float)power(beta2, t - prev);
    }
    for (uint32_t c = 0; c < dim; c++) {
        float g = k->total[c];
        if (pay != 0)
            k->w[c] -= pay * m[c] / (sqrtf(v[c]) + o->eps);
        k->w[c] = model_round(k->w[c], model->schema.dtype);
        m[c] = decay1 * m[c] + (1 - o->beta1) * g;
        v[c] = decay2 * v[c] + (1 - o->beta2) * g * g;
    }
    stamp[0] = (float)(t % 16777216);
    stamp[1] = (float)(t / 16777216);
}

/* k->total is the gradient. */
static void step_row(const struct model *model, struct model_key *k)
{
    const embd_optimizer *o = &model->schema.optimizer;
    uint32_t dim = model->schema.dim;
    if (o->update == EMBD_LAZY_GLOBAL) {
        lazy_step_row(model, k);
        return;
    }
    if (o->kind == EMBD_ROWWISE_ADAGRAD)
        k->state[0] += sum_of_squares(k->total, dim) / (float)dim;
    for (uint32_t c = 0; c < dim; c++) {
        float *s = o->kind == EMBD_ROWWISE_ADAGRAD ? k->state : k->state + c;
        step_column(o, model->step, k->w + c, model->optimizer_floats ? s : NULL, k->state + dim + c,
                    k->total[c]);
        k->w[c] = model_round(k->w[c], model->schema.dtype);
    }
}

static void divide_by_scaler(const struct model *model, struct model_key *k)
{
    for (uint32_t c = 0; c < model->schema.dim && model->schema.optimizer.scaler != 1.0f; c++)
        k->total[c] /= model->schema.optimizer.scaler;
}

/* update = global: the rows this push did not name, with a gradient of 0. */
static void step_others(struct model *model)
{
    embd_optimizer_kind kind = model->schema.optimizer.kind;
    if (kind != EMBD_MOMENTUM && kind != EMBD_NESTEROV && kind != EMBD_ADAM && kind != EMBD_RMSPROP)
        return;
    for (uint64_t i = 0; i < model->n_keys; i++) {
        struct model_key *k = model->keys[i];
        if (!k->has_row || k->request == model->request)
            continue;
        memset(k->total, 0, model->schema.dim * sizeof *k->total);
        step_row(model, k);
    }
}

int model_push(struct model *model, const struct model_batch *batch, const float *grads,
               bool divide, uint8_t *statuses, struct model_counts *counts_out)
{
    struct touched touched = touch(model, batch);
    int status = create(model, batch, &touched, statuses);
    for (uint32_t i = 0; i < touched.n; i++)
        touched.keys[i]->n = 0;
    if (status == EMBD_OK) {
        model->step++;
        sum_gradients(model, batch, grads, divide);
    }
    for (uint32_t i = 0; i < touched.n && status == EMBD_OK; i++) {
        struct model_key *k = touched.keys[i];
        if (k->n % 256)
            end_run(k, model->schema.dim);
        if (!k->has_row)
            continue;
        divide_by_scaler(model, k);
        step_row(model, k);
        note_use(model, k, 1);
    }
    if (status == EMBD_OK && model->schema.optimizer.update == EMBD_GLOBAL)
        step_others(model);
    free(touched.keys);
    if (counts_out)
        *counts_out = touched.counts;
    return status;
}
