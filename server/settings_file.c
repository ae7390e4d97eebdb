/* settings_file.c - the YAML configuration:
 *
 *     shards: 2
 *     stall_timeout: 10
 *     cluster:
 *       name: shop
 *       servers:
 *         - {name: a, listen: "127.0.0.1:7700", data_dir: /var/lib/embd/a}
 *         - {name: b, listen: "127.0.0.1:7800", shards: 4}
 *
 * libyaml makes a tree whose nodes know where they stood; this file walks it, so every complaint,
 * also the later ones about a value's meaning, names line and column of the very word. */
#include "server/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct walk {
    yaml_document_t document;
    struct settings_file *out;
    struct embd__error *e;
};

/* ---- nodes ---- */

static int __attribute__((format(printf, 3, 4)))
complain(struct walk *walk, const yaml_node_t *node, const char *format, ...)
{
    char text[LIMIT_ERROR_TEXT];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return embd__error_set(walk->e, EMBD_INVALID, "%s:%zu:%zu: %s", walk->out->path,
                           node->start_mark.line + 1, node->start_mark.column + 1, text);
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

/* The kinds of YAML nodes in users' words. */
static const char *kind_of(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE     ? "a single value"
           : node->type == YAML_SEQUENCE_NODE ? "a list"
                                              : "a map";
}

static int expect(struct walk *walk, const yaml_node_t *node, yaml_node_type_t type,
                  const char *what, const char *expected)
{
    if (node->type == type)
        return EMBD_OK;
    return complain(walk, node, "%s is %s, expected %s", what, kind_of(node), expected);
}

/* ---- the shape ---- */

typedef int visit_key(struct walk *walk, const char *key, const yaml_node_t *key_node,
                      const yaml_node_t *value, void *arg);

static int walk_map(struct walk *walk, const yaml_node_t *map, const char *what, visit_key *visit,
                    void *arg)
{
    int status = expect(walk, map, YAML_MAPPING_NODE, what, "a map");
    const yaml_node_pair_t *pair = status == EMBD_OK ? map->data.mapping.pairs.start : NULL;
    for (; status == EMBD_OK && pair < map->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&walk->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&walk->document, pair->value);
        status = expect(walk, key, YAML_SCALAR_NODE, "a key", "a name");
        if (status == EMBD_OK)
            status = visit(walk, text_of(key), key, value, arg);
    }
    return status;
}

static int take(struct walk *walk, struct settings *into, unsigned where, const char *key,
                const yaml_node_t *key_node, const yaml_node_t *value)
{
    int id = setting_find(key, where);
    if (id < 0)
        return complain(walk, key_node, "unknown key '%s'", key);
    if (into->of[id].text != NULL)
        return complain(walk, key_node, "'%s' is given twice", key);
    int status = expect(walk, value, YAML_SCALAR_NODE, key, "a single value");
    if (status != EMBD_OK)
        return status;
    into->of[id] = (struct setting){.text = strdup(text_of(value)),
                                    .file = walk->out->path,
                                    .line = (unsigned)value->start_mark.line + 1,
                                    .column = (unsigned)value->start_mark.column + 1};
    return into->of[id].text != NULL ? EMBD_OK
                                     : embd__error_set(walk->e, EMBD_NO_MEMORY, "out of memory");
}

static int visit_server_key(struct walk *walk, const char *key, const yaml_node_t *key_node,
                            const yaml_node_t *value, void *arg)
{
    return take(walk, arg, IN_SERVER, key, key_node, value);
}

static int walk_servers(struct walk *walk, const yaml_node_t *key_node, const yaml_node_t *list)
{
    struct settings_file *out = walk->out;
    if (out->servers != NULL)
        return complain(walk, key_node, "'servers' is given twice");
    int status = expect(walk, list, YAML_SEQUENCE_NODE, "servers", "a list");
    if (status != EMBD_OK)
        return status;
    size_t n = (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
    if (n == 0 || n > LIMIT_SHARDS)
        return complain(walk, list, "servers has %zu entries, expected 1 to %u", n, LIMIT_SHARDS);
    out->servers = calloc(n, sizeof *out->servers);
    if (out->servers == NULL)
        return embd__error_set(walk->e, EMBD_NO_MEMORY, "out of memory");
    out->n_servers = (unsigned)n;
    for (size_t i = 0; i < n && status == EMBD_OK; i++) {
        const yaml_node_t *entry =
            yaml_document_get_node(&walk->document, list->data.sequence.items.start[i]);
        status = walk_map(walk, entry, "an entry of servers", visit_server_key, &out->servers[i]);
    }
    return status;
}

static int visit_cluster_key(struct walk *walk, const char *key, const yaml_node_t *key_node,
                             const yaml_node_t *value, void *arg)
{
    (void)arg;
    if (strcmp(key, "servers") == 0)
        return walk_servers(walk, key_node, value);
    return take(walk, &walk->out->top, IN_CLUSTER, key, key_node, value);
}

static int visit_top_key(struct walk *walk, const char *key, const yaml_node_t *key_node,
                         const yaml_node_t *value, void *arg)
{
    (void)arg;
    if (strcmp(key, "cluster") == 0)
        return walk_map(walk, value, "cluster", visit_cluster_key, NULL);
    return take(walk, &walk->out->top, IN_TOP, key, key_node, value);
}

/* ---- the file ---- */

static int complain_syntax(const char *path, const yaml_parser_t *parser, struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID, "%s:%zu:%zu: %s", path, parser->problem_mark.line + 1,
                           parser->problem_mark.column + 1,
                           parser->problem != NULL ? parser->problem : "not readable as YAML");
}

static int read_stream(FILE *stream, struct settings_file *out, struct embd__error *e)
{
    struct walk walk = {.out = out, .e = e};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
    yaml_parser_set_input_file(&parser, stream);
    int status = EMBD_OK;
    if (!yaml_parser_load(&parser, &walk.document)) {
        status = complain_syntax(out->path, &parser, e);
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&walk.document);
        if (root != NULL)
            status = walk_map(&walk, root, "the file", visit_top_key, NULL);
        yaml_document_delete(&walk.document);
    }
    yaml_parser_delete(&parser);
    return status;
}

int settings_file_read(const char *path, struct settings_file *out, struct embd__error *e)
{
    *out = (struct settings_file){.path = strdup(path)};
    FILE *stream = out->path != NULL ? fopen(path, "rb") : NULL;
    int status;
    if (stream == NULL) {
        status = embd__error_set(e, EMBD_INVALID, "cannot open %s: %m", path);
    } else {
        status = read_stream(stream, out, e);
        fclose(stream);
    }
    if (status != EMBD_OK)
        settings_file_fini(out);
    return status;
}

void settings_file_fini(struct settings_file *file)
{
    settings_fini(&file->top);
    for (unsigned i = 0; i < file->n_servers; i++)
        settings_fini(&file->servers[i]);
    free(file->servers);
    free(file->path);
    *file = (struct settings_file){0};
}
