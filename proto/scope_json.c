/* scope_json.c - see scope_json.h. */
#include "proto/scope_json.h"

#include <string.h>

int embd__scope_to_json(const struct table_scope *scope, json_t *manifest)
{
    int failed = 0;
    if (scope->job[0] != '\0')
        failed |= json_object_set_new(manifest, "job", json_string(scope->job));
    if (embd__scope_is_all(scope))
        return failed;
    json_t *names = json_array();
    failed |= json_object_set_new(manifest, "scope", names);
    for (uint32_t i = 0; i < scope->n_names && !failed; i++)
        failed |= json_array_append_new(names, json_string(scope->names[i]));
    return failed;
}

static void read_names(struct members *m, struct table_scope *out)
{
    size_t n;
    const json_t *list = embd__member_array(m, "scope", SCOPE_NAMES_MAX, &n);
    if (list != NULL && n == 0)
        embd__error_set(m->error, EMBD_CORRUPT, "%s 'scope' has no names", m->what);
    for (size_t i = 0; list != NULL && i < n && m->error->status == EMBD_OK; i++) {
        const json_t *name = json_array_get(list, i);
        if (json_is_string(name))
            embd__scope_add(out, json_string_value(name), json_string_length(name), m->error);
        else
            embd__error_set(m->error, EMBD_CORRUPT,
                            "%s 'scope' has an element that is not a string", m->what);
    }
}

void embd__scope_from_json(struct members *m, struct table_scope *out)
{
    char job[EMBD_NAME_MAX + 1];
    *out = (struct table_scope){.n_names = 0};
    if (json_object_get(m->object, "job") != NULL) {
        embd__member_str(m, "job", job, sizeof job);
        if (m->error->status == EMBD_OK)
            embd__scope_set_job(out, job, strlen(job), m->error);
    }
    if (json_object_get(m->object, "scope") != NULL)
        read_names(m, out);
    if (m->error->status == EMBD_INVALID || m->error->status == EMBD_TOO_LARGE)
        m->error->status = EMBD_CORRUPT;
}
