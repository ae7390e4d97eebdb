/* scope.c - see scope.h. */
#include "proto/scope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/reading.h"

static const char name_bytes[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";

/* ---- asking ---- */

bool embd__scope_is_all(const struct table_scope *scope)
{
    return scope->n_names == 0;
}

bool embd__scope_name_covers(const char *name, const char *table)
{
    size_t n = strlen(name);
    return n > 0 && name[n - 1] == '*' ? strncmp(name, table, n - 1) == 0
                                       : strcmp(name, table) == 0;
}

bool embd__scope_covers(const struct table_scope *scope, const char *table)
{
    bool covers = embd__scope_is_all(scope);
    for (uint32_t i = 0; i < scope->n_names && !covers; i++)
        covers = embd__scope_name_covers(scope->names[i], table);
    return covers;
}

bool embd__scope_is_same(const struct table_scope *a, const struct table_scope *b)
{
    bool is_same = strcmp(a->job, b->job) == 0 && a->n_names == b->n_names;
    for (uint32_t i = 0; is_same && i < a->n_names; i++)
        is_same = strcmp(a->names[i], b->names[i]) == 0;
    return is_same;
}

/* A prefix is covered by one that it begins with, and by no name. */
static bool covers_entry(const struct table_scope *scope, const char *entry)
{
    char text[EMBD_NAME_MAX + 2];
    size_t n = strlen(entry);
    bool is_prefix = entry[n - 1] == '*', covers = embd__scope_is_all(scope);
    memcpy(text, entry, n + 1);
    text[n - is_prefix] = '\0';
    for (uint32_t i = 0; i < scope->n_names && !covers; i++) {
        const char *own = scope->names[i];
        covers = strcmp(own, entry) == 0 ||
                 (own[strlen(own) - 1] == '*' && embd__scope_name_covers(own, text));
    }
    return covers;
}

bool embd__scope_hides(const struct table_scope *a, const struct table_scope *b)
{
    bool hides = embd__scope_is_all(a) || !embd__scope_is_all(b);
    for (uint32_t i = 0; i < b->n_names && hides; i++)
        hides = covers_entry(a, b->names[i]);
    return hides;
}

bool embd__scope_includes(const struct table_scope *a, const struct table_scope *b)
{
    return strcmp(a->job, b->job) == 0 && embd__scope_hides(a, b);
}

void embd__scope_text(const struct table_scope *scope, char out[SCOPE_TEXT])
{
    size_t at = (size_t)snprintf(out, SCOPE_TEXT, "%s",
                                 embd__scope_is_all(scope) ? "all tables" : "tables ");
    for (uint32_t i = 0; i < scope->n_names && at < SCOPE_TEXT; i++)
        at +=
            (size_t)snprintf(out + at, SCOPE_TEXT - at, "%s%s", i > 0 ? "," : "", scope->names[i]);
    if (at < SCOPE_TEXT)
        snprintf(out + at, SCOPE_TEXT - at, scope->job[0] != '\0' ? " of job '%s'" : "%s",
                 scope->job);
}

/* ---- making one ---- */

static bool is_name(const char *name, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && name[n] != '\0' && strchr(name_bytes, name[n]) != NULL)
        n++;
    return n == bytes && n >= 1 && n <= EMBD_NAME_MAX && name[0] != '_' && name[0] != '-';
}

static int refuse(const char *what, const char *expected, const char *name, size_t bytes,
                  struct embd__error *e)
{
    char shown[SHOWN_TEXT];
    embd__show_text(shown, name, bytes);
    return embd__error_set(e, EMBD_INVALID,
                           "snapshot %s: '%s', expected %s of 1 to %u bytes of a-z, 0-9, '_' and "
                           "'-', beginning with a letter or digit",
                           what, shown, expected, EMBD_NAME_MAX);
}

int embd__scope_set_job(struct table_scope *scope, const char *job, size_t bytes,
                        struct embd__error *e)
{
    if (!is_name(job, bytes))
        return refuse("job", "a name", job, bytes, e);
    memcpy(scope->job, job, bytes);
    scope->job[bytes] = '\0';
    return EMBD_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int embd__scope_add(struct table_scope *scope, const char *name, size_t bytes,
                    struct embd__error *e)
{
    bool is_prefix = bytes > 1 && name[bytes - 1] == '*';
    char own[EMBD_NAME_MAX + 2] = "";
    if (!is_name(name, bytes - is_prefix))
        return refuse("tables", "a name, or PREFIX*,", name, bytes, e);
    memcpy(own, name, bytes);
    for (uint32_t i = 0; i < scope->n_names; i++)
        if (strcmp(scope->names[i], own) == 0)
            return EMBD_OK;
    if (scope->n_names == SCOPE_NAMES_MAX)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "snapshot tables: '%s' is one more than the limit of %u names; name "
                               "a prefix of several: PREFIX*",
                               own, SCOPE_NAMES_MAX);
    memcpy(scope->names[scope->n_names++], own, sizeof own);
    qsort(scope->names, scope->n_names, sizeof scope->names[0], by_name);
    return EMBD_OK;
}

/* ---- requests ---- */

static void read_names(struct fields *f, struct table_scope *out)
{
    struct embd__error *e = f->reader->error;
    const msgpack_object *items;
    uint32_t n = embd__field_list(f, "tables", SCOPE_NAMES_MAX, &items);
    if (e->status == EMBD_OK && n == 0)
        embd__error_set(e, EMBD_INVALID,
                        "%s field 'tables' has 0 elements; leave it out for all tables", f->what);
    for (uint32_t i = 0; i < n && e->status == EMBD_OK; i++)
        if (items[i].type == MSGPACK_OBJECT_STR)
            embd__scope_add(out, items[i].via.str.ptr, items[i].via.str.size, e);
        else
            embd__error_set(e, EMBD_INVALID, "%s field 'tables' element %u is %s, expected a str",
                            f->what, i, embd__type_name(&items[i]));
}

void embd__scope_read(struct fields *f, struct table_scope *out)
{
    char job[EMBD_NAME_MAX + 1] = "";
    *out = (struct table_scope){.n_names = 0};
    if (embd__field_has(f, "job")) {
        embd__field_str(f, "job", job, sizeof job, NULL);
        if (f->reader->error->status == EMBD_OK)
            embd__scope_set_job(out, job, strlen(job), f->reader->error);
    }
    if (embd__field_has(f, "tables"))
        read_names(f, out);
}

uint32_t embd__scope_fields(const struct table_scope *scope)
{
    return (uint32_t)(scope->job[0] != '\0') + (uint32_t)!embd__scope_is_all(scope);
}

void embd__scope_write(struct msg *m, const struct table_scope *scope)
{
    if (scope->job[0] != '\0')
        embd__msg_field_str(m, "job", scope->job);
    if (embd__scope_is_all(scope))
        return;
    embd__msg_str(m, "tables");
    embd__msg_array(m, scope->n_names);
    for (uint32_t i = 0; i < scope->n_names; i++)
        embd__msg_str(m, scope->names[i]);
}
