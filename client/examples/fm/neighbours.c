/* neighbours.c - nearest neighbours by cosine, by looking at all candidates.
 *
 * A package has two rows: as the one that is depended on, and as one of the others that A
 * depends on. Both say who keeps it company; its vector is the two of them, one behind the
 * other, each scaled to the same length. */
#include "client/examples/fm/neighbours.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKAGES_SHOWN    5
#define NEIGHBOURS_SHOWN  4
#define ENOUGH_DEPENDENTS 20 /* rows that fewer edges have trained still point anywhere */

/* The first five that are in the graph are shown; a graph with none of them shows its most
 * popular packages. */
static const char *const well_known[] = {
    "libqt5core5a", "libgtk-3-0", "python3-numpy", "libx11-6", "default-jre",
    "libavcodec59", "python3",    "ruby",          "perl",     "libc6",
};

typedef struct candidates {
    uint32_t *nodes; /* [n] by falling popularity */
    uint64_t *keys;  /* [n][2] */
    float *rows;     /* [n][2][dim], each row scaled to length 1 */
    uint32_t n;
    uint32_t dim;
} candidates;

static void candidates_free(candidates *c)
{
    free(c->nodes);
    free(c->keys);
    free(c->rows);
}

static int by_popularity(const void *a, const void *b, void *arg)
{
    const graph *g = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint32_t p = g->popularity[x], q = g->popularity[y];
    return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

static void normalize(float *row, uint32_t dim)
{
    double squares = 0;
    for (uint32_t c = 0; c < dim; c++)
        squares += (double)row[c] * row[c];
    float scale = squares > 0 ? (float)(1 / sqrt(squares)) : 0;
    for (uint32_t c = 0; c < dim; c++)
        row[c] *= scale;
}

static bool collect(candidates *c, trainer *t, const features *f)
{
    graph *g = (graph *)f->graph;
    *c = (candidates){.dim = t->dim};
    c->nodes = malloc(((size_t)g->n_nodes + 1) * sizeof *c->nodes);
    c->keys = malloc(((size_t)g->n_nodes + 1) * 2 * sizeof *c->keys);
    if (!c->nodes || !c->keys)
        return false;
    for (uint32_t b = 0; b < g->n_nodes; b++)
        if (g->popularity[b] >= ENOUGH_DEPENDENTS)
            c->nodes[c->n++] = b;
    qsort_r(c->nodes, c->n, sizeof *c->nodes, by_popularity, g);
    for (uint32_t i = 0; i < c->n; i++)
        features_package_keys(f, c->nodes[i], c->keys + 2 * (size_t)i);
    c->rows = malloc(((size_t)c->n + 1) * 2 * c->dim * sizeof *c->rows);
    if (!c->rows || !trainer_pull_factors(t, c->keys, 2 * c->n, c->rows))
        return false;
    for (uint32_t i = 0; i < 2 * c->n; i++)
        normalize(c->rows + (size_t)i * c->dim, c->dim);
    return true;
}

static float cosine(const candidates *c, uint32_t i, uint32_t j)
{
    uint32_t width = 2 * c->dim;
    const float *a = c->rows + (size_t)i * width, *b = c->rows + (size_t)j * width;
    float sum = 0;
    for (uint32_t k = 0; k < width; k++)
        sum += a[k] * b[k];
    return sum / 2;
}

/* One line: the package and its nearest, kept sorted while they are found. */
static void print_nearest(const candidates *c, const package *packages, uint32_t of)
{
    uint32_t best[NEIGHBOURS_SHOWN + 1] = {0};
    float closeness[NEIGHBOURS_SHOWN + 1];
    uint32_t n = 0;
    for (uint32_t j = 0; j < c->n; j++) {
        if (j == of)
            continue;
        float close = cosine(c, of, j);
        uint32_t at = n;
        for (; at > 0 && closeness[at - 1] < close; at--) {
            best[at] = best[at - 1];
            closeness[at] = closeness[at - 1];
        }
        best[at] = j;
        closeness[at] = close;
        n = n < NEIGHBOURS_SHOWN ? n + 1 : n;
    }
    printf("  %-14s", packages[c->nodes[of]].name);
    for (uint32_t i = 0; i < n; i++)
        printf(" %s (%.2f)", packages[c->nodes[best[i]]].name, (double)closeness[i]);
    printf("\n");
}

static uint32_t position_of(const candidates *c, const package_list *packages, const char *name)
{
    uint32_t node = packages_find(packages, name, strlen(name));
    for (uint32_t i = 0; node != PACKAGE_NONE && i < c->n; i++)
        if (c->nodes[i] == node)
            return i;
    return PACKAGE_NONE;
}

static void print_all(const candidates *c, const package_list *packages)
{
    uint32_t shown = 0;
    for (size_t i = 0; i < sizeof well_known / sizeof *well_known && shown < PACKAGES_SHOWN; i++) {
        uint32_t at = position_of(c, packages, well_known[i]);
        if (at == PACKAGE_NONE)
            continue;
        print_nearest(c, packages->items, at);
        shown++;
    }
    for (uint32_t i = 0; shown == 0 && i < PACKAGES_SHOWN && i < c->n; i++)
        print_nearest(c, packages->items, i);
}

bool neighbours_print(trainer *t, const features *f)
{
    candidates c;
    bool ok = collect(&c, t, f);
    if (ok)
        print_all(&c, f->graph->packages);
    candidates_free(&c);
    return ok;
}
