/* graph.h - who depends on whom, and which edges are held out.
 *
 * Nodes are the packages of a list; an edge (A, B) says that A names B among its dependencies,
 * alone or as an alternative. One edge in ten is held out: which, is a function of the two names
 * alone, so that every run on every machine holds out the same ones. Features and popularity are
 * made of the other edges only. */
#ifndef FM_GRAPH_H
#define FM_GRAPH_H

#include "client/examples/fm/packages.h"

typedef struct graph {
    const package_list *packages; /* the caller's; outlives the graph */
    uint32_t n_nodes;
    uint32_t n_edges;
    uint32_t *first;    /* [n_nodes + 1] edges of node a are first[a] .. first[a + 1] - 1 */
    uint32_t *from;     /* [n_edges] */
    uint32_t *to;       /* [n_edges] ascending among the edges of one node */
    bool *held;         /* [n_edges] */
    uint32_t *training; /* [n_training] numbers of the edges that are not held out */
    uint32_t n_training;
    uint32_t *held_out; /* [n_held_out] numbers of those that are */
    uint32_t n_held_out;
    uint32_t *popularity; /* [n_nodes] training edges that lead to a node */
} graph;

/* False: out of memory; the graph is then empty. */
bool graph_build(graph *g, const package_list *packages);
void graph_free(graph *g);

/* Whether a depends on b, by a training edge or by a held-out one. */
bool graph_has_edge(const graph *g, uint32_t a, uint32_t b);

#endif
