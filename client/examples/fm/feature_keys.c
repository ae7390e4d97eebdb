/* feature_keys.c - from names to keys.
 *
 * The words of a name are its runs of letters: "libqt5core5a" has "qt" and "core". A leading
 * "lib" is dropped, and so are single letters, digits and words after the fourth. */
#include "client/examples/fm/feature_keys.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of text, so that a section and a maintainer of the same spelling are two things. */
enum { TEXT_PACKAGE = 1, TEXT_SECTION, TEXT_MAINTAINER, TEXT_TOKEN };

static uint64_t slot_key(slot s, uint64_t text)
{
    return packages_mix(text + ((uint64_t)s + 1) * 0x9e3779b97f4a7c15u);
}

static void add_token(node_features *node, const char *word, size_t bytes)
{
    if (bytes > 4 && strncmp(word, "lib", 3) == 0) {
        word += 3;
        bytes -= 3;
    }
    if (bytes < 2 || node->n_tokens == TOKENS_MAX)
        return;
    uint64_t token = packages_hash(TEXT_TOKEN, word, bytes);
    for (uint32_t i = 0; i < node->n_tokens; i++)
        if (node->tokens[i] == token)
            return;
    node->tokens[node->n_tokens++] = token;
}

static void add_tokens(node_features *node, const char *name)
{
    while (*name != '\0') {
        size_t bytes = 0;
        while (isalpha((unsigned char)name[bytes]))
            bytes++;
        add_token(node, name, bytes);
        name += bytes > 0 ? bytes : 1;
    }
}

bool features_build(features *f, const graph *g)
{
    *f = (features){.graph = g};
    f->nodes = calloc((size_t)g->n_nodes + 1, sizeof *f->nodes);
    if (!f->nodes)
        return false;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const package *p = &g->packages->items[i];
        node_features *node = &f->nodes[i];
        node->name = packages_hash(TEXT_PACKAGE, p->name, strlen(p->name));
        node->section = packages_hash(TEXT_SECTION, p->section, strlen(p->section));
        node->maintainer = packages_hash(TEXT_MAINTAINER, p->maintainer, strlen(p->maintainer));
        add_tokens(node, p->name);
    }
    return true;
}

void features_free(features *f)
{
    free(f->nodes);
    *f = (features){0};
}

void features_package_keys(const features *f, uint32_t node, uint64_t keys_out[2])
{
    keys_out[0] = slot_key(SLOT_B, f->nodes[node].name);
    keys_out[1] = slot_key(SLOT_A_DEPENDENCIES, f->nodes[node].name);
}

/* ---- batches --------------------------------------------------------------------------------- */

bool batch_alloc(batch *b, uint32_t room)
{
    *b = (batch){.room = room};
    b->offsets = calloc((size_t)room * SLOTS + 1, sizeof *b->offsets);
    b->keys = malloc((size_t)room * KEYS_PER_SAMPLE_MAX * sizeof *b->keys);
    b->labels = malloc(room * sizeof *b->labels);
    b->targets = malloc(room * sizeof *b->targets);
    if (b->offsets && b->keys && b->labels && b->targets)
        return true;
    batch_free(b);
    return false;
}

void batch_free(batch *b)
{
    free(b->offsets);
    free(b->keys);
    free(b->labels);
    free(b->targets);
    *b = (batch){0};
}

void batch_clear(batch *b)
{
    b->n_samples = 0;
    b->n_keys = 0;
}

static void add_key(batch *b, slot s, uint64_t text)
{
    b->keys[b->n_keys++] = slot_key(s, text);
}

static void end_slot(batch *b, slot s)
{
    b->offsets[(size_t)b->n_samples * SLOTS + s + 1] = b->n_keys;
}

static void add_one(batch *b, slot s, uint64_t text)
{
    add_key(b, s, text);
    end_slot(b, s);
}

static void add_words(batch *b, slot s, const node_features *node)
{
    for (uint32_t i = 0; i < node->n_tokens; i++)
        add_key(b, s, node->tokens[i]);
    end_slot(b, s);
}

/* Other dependencies of a: training edges, without the hidden one, at most DEPENDENCIES_MAX of
 * them, beginning at a place that the hidden one decides. */
static void add_dependencies(batch *samples, const features *f, uint32_t a, uint32_t hidden)
{
    const graph *g = f->graph;
    uint32_t first = g->first[a], n = g->first[a + 1] - first;
    uint32_t start = n > 0 ? (uint32_t)(packages_mix(hidden) % n) : 0, taken = 0;
    for (uint32_t i = 0; i < n && taken < DEPENDENCIES_MAX; i++) {
        uint32_t edge = first + (start + i) % n;
        if (g->held[edge] || g->to[edge] == hidden)
            continue;
        add_key(samples, SLOT_A_DEPENDENCIES, f->nodes[g->to[edge]].name);
        taken++;
    }
    end_slot(samples, SLOT_A_DEPENDENCIES);
}

void batch_add(batch *samples, const features *f, uint32_t a, uint32_t b, uint32_t hidden,
               float label)
{
    const node_features *from = &f->nodes[a], *to = &f->nodes[b];
    add_one(samples, SLOT_A_SECTION, from->section);
    add_one(samples, SLOT_A_MAINTAINER, from->maintainer);
    add_words(samples, SLOT_A_TOKENS, from);
    add_dependencies(samples, f, a, hidden);
    add_one(samples, SLOT_B, to->name);
    add_one(samples, SLOT_B_SECTION, to->section);
    add_one(samples, SLOT_B_MAINTAINER, to->maintainer);
    add_words(samples, SLOT_B_TOKENS, to);
    samples->labels[samples->n_samples] = label;
    samples->targets[samples->n_samples] = b;
    samples->n_samples++;
}
