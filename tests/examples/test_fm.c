/* test_fm.c - the parts of the example that need no server.
 *
 * Most of all: that nothing gives the answer away. A held-out edge must not show in any feature of
 * any sample, and a positive must not differ from its negatives in what they say about A. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/examples/fm/auc.h"
#include "client/examples/fm/machine.h"
#include "client/examples/fm/sampler.h"
#include "client/examples/fm/synthetic.h"

static void read_text(package_list *list, const char *text)
{
    FILE *file = fmemopen((void *)text, strlen(text), "r");
    assert_non_null(file);
    assert_true(packages_read(list, file));
    fclose(file);
}

static const char archive[] = "Package: app\n"
                              "Maintainer: A <a@example.org>\n"
                              "Pre-Depends: base\n"
                              "Depends: libone (>= 1.0) | libtwo, libone:any, ghost, app\n"
                              "Description: Depends: nothing\n"
                              " Depends: folded\n"
                              "Section: games\n"
                              "\n\n"
                              "Package: base\n\n"
                              "Package: libone\nSection: libs\n\n"
                              "Package: app\nDepends: late\n\n"
                              "Package: libtwo";

static void an_index_gives_each_package_once(void **state)
{
    (void)state;
    package_list list;
    packages_init(&list);
    read_text(&list, archive);
    assert_int_equal(list.n_packages, 4);
    uint32_t app = packages_find(&list, "application", 3);
    assert_int_not_equal(app, PACKAGE_NONE);
    assert_string_equal(list.items[app].section, "games");
    assert_string_equal(list.items[app].depends,
                        "base, libone (>= 1.0) | libtwo, libone:any, ghost, app");
    assert_int_not_equal(packages_find(&list, "libtwo", 6), PACKAGE_NONE);
    assert_int_equal(packages_find(&list, "late", 4), PACKAGE_NONE);
    packages_fini(&list);
}

static void edges_lose_versions_repeats_and_unknown_names(void **state)
{
    (void)state;
    package_list list;
    graph g;
    packages_init(&list);
    read_text(&list, archive);
    assert_true(graph_build(&g, &list));
    uint32_t app = packages_find(&list, "app", 3);
    assert_int_equal(g.n_edges, 3);
    assert_true(graph_has_edge(&g, app, packages_find(&list, "base", 4)));
    assert_true(graph_has_edge(&g, app, packages_find(&list, "libone", 6)));
    assert_true(graph_has_edge(&g, app, packages_find(&list, "libtwo", 6)));
    assert_false(graph_has_edge(&g, app, app));
    graph_free(&g);
    packages_fini(&list);
}

/* ---- on a graph of some size ----------------------------------------------------------------- */

typedef struct world {
    package_list packages;
    graph graph;
    features features;
    batch batch;
} world;

static int open_world(void **state)
{
    static world w;
    packages_init(&w.packages);
    bool ok = synthetic_packages(&w.packages) && graph_build(&w.graph, &w.packages) &&
              features_build(&w.features, &w.graph) && batch_alloc(&w.batch, 64);
    *state = &w;
    return ok ? 0 : -1;
}

static int close_world(void **state)
{
    world *w = *state;
    batch_free(&w->batch);
    features_free(&w->features);
    graph_free(&w->graph);
    packages_fini(&w->packages);
    return 0;
}

static void one_edge_in_ten_is_held_out(void **state)
{
    const graph *g = &((world *)*state)->graph;
    assert_int_equal(g->n_held_out + g->n_training, g->n_edges);
    double share = (double)g->n_held_out / g->n_edges;
    assert_true(share > 0.095 && share < 0.105);
    uint64_t popularity = 0;
    for (uint32_t b = 0; b < g->n_nodes; b++)
        popularity += g->popularity[b];
    assert_int_equal(popularity, g->n_training);
}

/* The keys of one slot of one sample. */
static const uint64_t *slot_keys(const batch *b, uint32_t sample, slot s, uint64_t *n_out)
{
    uint64_t row = (uint64_t)sample * SLOTS + s;
    *n_out = b->offsets[row + 1] - b->offsets[row];
    return b->keys + b->offsets[row];
}

static void assert_same_keys(const batch *b, uint32_t i, uint32_t j, slot s)
{
    uint64_t n, m;
    const uint64_t *x = slot_keys(b, i, s, &n), *y = slot_keys(b, j, s, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n * sizeof *x);
}

/* Whether a is shown to depend on b by this sample. */
static bool shows(const world *w, uint32_t sample, uint32_t b)
{
    uint64_t keys[2], n;
    features_package_keys(&w->features, b, keys);
    const uint64_t *shown = slot_keys(&w->batch, sample, SLOT_A_DEPENDENCIES, &n);
    for (uint64_t i = 0; i < n; i++)
        if (shown[i] == keys[1])
            return true;
    return false;
}

static void check_group(const world *w, uint32_t positive, uint32_t a, uint32_t negatives)
{
    const graph *g = &w->graph;
    for (uint32_t i = positive; i <= positive + negatives; i++) {
        for (slot s = SLOT_A_SECTION; s <= SLOT_A_DEPENDENCIES; s++)
            assert_same_keys(&w->batch, positive, i, s);
        assert_false(shows(w, i, w->batch.targets[i]));
        bool is_edge = graph_has_edge(g, a, w->batch.targets[i]);
        assert_true(is_edge == (w->batch.labels[i] > 0.5f));
    }
    for (uint32_t e = g->first[a]; e < g->first[a + 1]; e++)
        assert_false(g->held[e] && shows(w, positive, g->to[e]));
}

/* Goes through some batches of the sampler and checks every positive with its negatives. */
static void check_samples(world *w, sampler *s, bool held)
{
    for (int n = 0; n < 50; n++) {
        uint32_t edge = s->next;
        assert_true(sampler_fill(s, &w->batch));
        for (uint32_t i = 0; i < w->batch.n_samples; edge++) {
            assert_true(w->batch.labels[i] > 0.5f);
            assert_true(w->graph.held[s->edges[edge]] == held);
            uint32_t negatives = 0;
            while (i + 1 + negatives < w->batch.n_samples &&
                   w->batch.labels[i + 1 + negatives] < 0.5f)
                negatives++;
            assert_true(negatives <= NEGATIVES);
            check_group(w, i, w->graph.from[s->edges[edge]], negatives);
            i += 1 + negatives;
        }
    }
}

static void no_feature_gives_the_answer_away(void **state)
{
    world *w = *state;
    sampler s;
    assert_true(sampler_training(&s, &w->features, 7, 0));
    check_samples(w, &s, false);
    sampler_free(&s);
    assert_true(sampler_held_out(&s, &w->features));
    check_samples(w, &s, true);
    sampler_free(&s);
}

static uint64_t digest(world *w, uint64_t seed)
{
    sampler s;
    uint64_t sum = 0;
    assert_true(sampler_training(&s, &w->features, seed, 1000));
    assert_int_equal(sampler_size(&s), 1000);
    while (sampler_fill(&s, &w->batch))
        for (uint64_t i = 0; i < w->batch.n_keys; i++)
            sum = packages_mix(sum ^ w->batch.keys[i]);
    sampler_free(&s);
    return sum;
}

static void a_seed_gives_the_same_samples_every_time(void **state)
{
    assert_true(digest(*state, 1) == digest(*state, 1));
    assert_true(digest(*state, 1) != digest(*state, 2));
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static void auc_counts_pairs_and_ties_by_half(void **state)
{
    (void)state;
    scored samples[200];
    uint64_t random = 3;
    for (int i = 0; i < 200; i++) {
        random = packages_mix(random + 1);
        samples[i] = (scored){(float)(random % 17), (float)(random >> 60 & 1)};
    }
    double wins = 0, pairs = 0;
    for (int i = 0; i < 200; i++)
        for (int j = 0; j < 200; j++)
            if (samples[i].label > samples[j].label) {
                pairs++;
                wins += samples[i].score > samples[j].score    ? 1
                        : samples[i].score == samples[j].score ? 0.5
                                                               : 0;
            }
    assert_true(auc(samples, 200) == wins / pairs);
    assert_true(auc(samples, 0) == 0.5);
    scored broken[] = {{NAN, 1}, {NAN, 0}};
    assert_true(auc(broken, 2) >= 0);
}

static double loss_at(const float *linear, const float *factors, float label)
{
    return machine_loss(machine_logit(linear, factors, 3, 2), label);
}

static void the_gradient_is_the_slope_of_the_loss(void **state)
{
    (void)state;
    const float step = 1e-2f;
    for (int label = 0; label < 2; label++) {
        float linear[3] = {0.1f, -0.2f, 0.3f}, factors[6] = {0.5f, -0.4f, 0.3f, 0.2f, -0.1f, 0.6f};
        float gl[3], gf[6];
        memcpy(gl, linear, sizeof gl);
        memcpy(gf, factors, sizeof gf);
        machine_gradient(gl, gf, 3, 2, machine_logit(linear, factors, 3, 2), (float)label);
        for (int i = 0; i < 9; i++) {
            float *at = i < 3 ? &linear[i] : &factors[i - 3], kept = *at;
            *at = kept + step;
            double up = loss_at(linear, factors, (float)label);
            *at = kept - step;
            double down = loss_at(linear, factors, (float)label);
            *at = kept;
            double slope = (up - down) / (2 * (double)step);
            assert_true(fabs(slope - (double)(i < 3 ? gl[i] : gf[i - 3])) < 1e-3);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_gives_each_package_once),
        cmocka_unit_test(edges_lose_versions_repeats_and_unknown_names),
        cmocka_unit_test(one_edge_in_ten_is_held_out),
        cmocka_unit_test(no_feature_gives_the_answer_away),
        cmocka_unit_test(a_seed_gives_the_same_samples_every_time),
        cmocka_unit_test(auc_counts_pairs_and_ties_by_half),
        cmocka_unit_test(the_gradient_is_the_slope_of_the_loss),
    };
    return cmocka_run_group_tests_name("fm", tests, open_world, close_world);
}
