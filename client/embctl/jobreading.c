/* jobreading.c - faults, ignored members and new tables of a job's file. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/jobreading.h"

int job_fail(const struct job_reading *r, int status, const char *format, ...)
{
    int n = snprintf(r->why, r->why_bytes, "%s: ", r->path);
    va_list list;
    va_start(list, format);
    if (n >= 0 && (size_t)n < r->why_bytes)
        vsnprintf(r->why + n, r->why_bytes - (size_t)n, format, list);
    va_end(list);
    return status;
}

/* ---- what is ignored ---- */

int job_ignore(struct job_reading *r, const char *prefix, const char *what)
{
    char **grown = reallocarray(r->job->ignored, r->job->n_ignored + 1, sizeof *grown);
    if (!grown)
        return job_fail(r, EMBD_NO_MEMORY, "no memory");
    r->job->ignored = grown;
    if (asprintf(&grown[r->job->n_ignored], "%s%s", prefix, what) < 0)
        return job_fail(r, EMBD_NO_MEMORY, "no memory");
    r->job->n_ignored++;
    return EMBD_OK;
}

int job_ignore_others(struct job_reading *r, const char *prefix, json_t *object,
                      const char *const *known)
{
    const char *key;
    json_t *value;
    int status = EMBD_OK;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i] && (status = job_ignore(r, prefix, key)) != EMBD_OK)
            return status;
    }
    return EMBD_OK;
}

/* ---- tables ---- */

/* A name of ours: lower case, and '_' for what a name cannot have. */
static int make_name(const struct job_reading *r, const char *model, const char *table, char *to)
{
    char name[2 * EMBD_NAME_MAX];
    const char *dash = model[0] ? "-" : "";
    int n = snprintf(name, sizeof name, "%s%s%s", model, dash, table);
    if (n < 0 || n > EMBD_NAME_MAX)
        return job_fail(r, EMBD_INVALID, "'%s%s%s' has %d characters; a table name has at most %d",
                        model, dash, table, n, EMBD_NAME_MAX);
    for (char *at = name; *at; at++)
        *at = isalnum((unsigned char)*at) || *at == '-' ? (char)tolower((unsigned char)*at) : '_';
    memcpy(to, name, (size_t)n + 1);
    for (size_t i = 0; i < r->job->n_tables; i++)
        if (!strcmp(r->job->tables[i].name, to))
            return job_fail(r, EMBD_INVALID, "two tables would be called '%s'", to);
    return EMBD_OK;
}

struct job_table *job_add(struct job_reading *r, const char *model, const char *name, int *status)
{
    struct job_file *job = r->job;
    struct job_table *grown = reallocarray(job->tables, job->n_tables + 1, sizeof *grown);
    if (!grown) {
        *status = job_fail(r, EMBD_NO_MEMORY, "no memory");
        return NULL;
    }
    job->tables = grown;
    grown[job->n_tables] = (struct job_table){0};
    *status = make_name(r, model, name, grown[job->n_tables].name);
    return *status == EMBD_OK ? &grown[job->n_tables] : NULL;
}

void job_set(struct job_table *table, const char *field, const char *format, ...)
{
    struct job_setting *setting = &table->own[table->n_own++];
    va_list list;
    setting->field = field;
    va_start(list, format);
    vsnprintf(setting->value, sizeof setting->value, format, list);
    va_end(list);
}
