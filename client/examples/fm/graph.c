/* graph.c - edges out of Depends fields, their split, their popularity.
 *
 * "a (>= 1) | b, c [amd64]" gives edges to a, b and c: versions, architectures and the
 * difference between a dependency and an alternative are dropped. Names that no stanza of the
 * list defines (virtual packages) give none, and neither does a package that names itself. */
#include "client/examples/fm/graph.h"

#include <stdlib.h>
#include <string.h>

#define HOLD_OUT_ONE_IN 10
#define HOLD_OUT_SEED   0x68656c64 /* "held": sets the split apart from other uses of the hash */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Appends an edge; rooms double. */
static bool add_edge(graph *g, uint32_t *room, uint32_t a, uint32_t b)
{
    if (g->n_edges == *room) {
        uint32_t more = *room > 0 ? *room * 2 : 4096;
        uint32_t *to = realloc(g->to, more * sizeof *to);
        if (!to)
            return false;
        g->to = to;
        uint32_t *from = realloc(g->from, more * sizeof *from);
        if (!from)
            return false;
        g->from = from;
        *room = more;
    }
    g->from[g->n_edges] = a;
    g->to[g->n_edges++] = b;
    return true;
}

/* Sorts the newest edges, those from `first` on, and drops repeated ones. */
static void settle_edges(graph *g, uint32_t first)
{
    qsort(g->to + first, g->n_edges - first, sizeof *g->to, by_number);
    uint32_t kept = first;
    for (uint32_t e = first; e < g->n_edges; e++)
        if (kept == first || g->to[e] != g->to[kept - 1])
            g->to[kept++] = g->to[e];
    g->n_edges = kept;
}

/* The edges of one package: a name begins after a comma, a bar or the start, and ends before
 * anything that cannot stand in a name. */
static bool add_edges_of(graph *g, uint32_t *room, uint32_t a)
{
    const char *at = g->packages->items[a].depends;
    uint32_t first = g->n_edges;
    while (*at != '\0') {
        at += strspn(at, " ,|");
        size_t bytes = strcspn(at, " ,|:([");
        uint32_t b = packages_find(g->packages, at, bytes);
        if (b != PACKAGE_NONE && b != a && !add_edge(g, room, a, b))
            return false;
        at += bytes;
        at += strcspn(at, ",|");
    }
    settle_edges(g, first);
    return true;
}

static bool is_held_out(const graph *g, uint32_t edge)
{
    const char *a = g->packages->items[g->from[edge]].name;
    const char *b = g->packages->items[g->to[edge]].name;
    uint64_t h = packages_hash(HOLD_OUT_SEED, a, strlen(a));
    return packages_hash(h, b, strlen(b)) % HOLD_OUT_ONE_IN == 0;
}

static void split(graph *g)
{
    for (uint32_t e = 0; e < g->n_edges; e++) {
        g->held[e] = is_held_out(g, e);
        if (g->held[e]) {
            g->held_out[g->n_held_out++] = e;
        } else {
            g->training[g->n_training++] = e;
            g->popularity[g->to[e]]++;
        }
    }
}

bool graph_build(graph *g, const package_list *packages)
{
    *g = (graph){.packages = packages, .n_nodes = packages->n_packages};
    uint32_t room = 0;
    bool ok = (g->first = calloc((size_t)g->n_nodes + 1, sizeof *g->first)) != NULL;
    for (uint32_t a = 0; ok && a < g->n_nodes; a++) {
        ok = add_edges_of(g, &room, a);
        g->first[a + 1] = g->n_edges;
    }
    size_t n = (size_t)g->n_edges + 1;
    ok = ok && (g->held = calloc(n, sizeof *g->held)) &&
         (g->training = calloc(n, sizeof *g->training)) &&
         (g->held_out = calloc(n, sizeof *g->held_out)) &&
         (g->popularity = calloc((size_t)g->n_nodes + 1, sizeof *g->popularity));
    if (!ok) {
        graph_free(g);
        return false;
    }
    split(g);
    return true;
}

void graph_free(graph *g)
{
    free(g->first);
    free(g->from);
    free(g->to);
    free(g->held);
    free(g->training);
    free(g->held_out);
    free(g->popularity);
    *g = (graph){0};
}

bool graph_has_edge(const graph *g, uint32_t a, uint32_t b)
{
    return bsearch(&b, g->to + g->first[a], g->first[a + 1] - g->first[a], sizeof b, by_number) !=
           NULL;
}
