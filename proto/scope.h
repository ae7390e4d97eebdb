/* scope.h - what a snapshot is of: all tables, or those that a list of names and prefixes covers;
 * and the job that it belongs to. A newer snapshot speaks for each name that it covers: it has that
 * table, or the table did not exist at its cut. Pure functions. */
#ifndef EMBD_PROTO_SCOPE_H
#define EMBD_PROTO_SCOPE_H

#include "proto/message.h"

#define SCOPE_NAMES_MAX 32u

/* Zero: all tables, of no job. */
struct table_scope {
    char job[EMBD_NAME_MAX + 1]; /* "": none */
    uint32_t n_names;            /* 0: all tables */
    /* [n_names] "NAME", or "PREFIX*"; ordered, each once */
    char names[SCOPE_NAMES_MAX][EMBD_NAME_MAX + 2];
};

bool embd__scope_is_all(const struct table_scope *scope);
bool embd__scope_covers(const struct table_scope *scope, const char *table);
/* Of one job, with the same list. */
bool embd__scope_is_same(const struct table_scope *a, const struct table_scope *b);
/* `a` covers each table that `b` may cover; and they are of one job. */
bool embd__scope_hides(const struct table_scope *a, const struct table_scope *b);
bool embd__scope_includes(const struct table_scope *a, const struct table_scope *b);
/* Whether an entry of the list covers the table. */
bool embd__scope_name_covers(const char *name, const char *table);

/* EMBD_INVALID: not of the form of a table's name, which jobs have too. */
int embd__scope_set_job(struct table_scope *scope, const char *job, size_t bytes,
                        struct embd__error *e);
/* Adds to the list; nothing where it is there. EMBD_INVALID: not a table's name, nor the beginning
 * of one and '*'; EMBD_TOO_LARGE. */
int embd__scope_add(struct table_scope *scope, const char *name, size_t bytes,
                    struct embd__error *e);

/* "all tables", "all tables of job 'J'", "tables A,B* of job 'J'": for errors, cut to fit. */
#define SCOPE_TEXT 160u
void embd__scope_text(const struct table_scope *scope, char out[SCOPE_TEXT]);

/* The fields `job` and `tables` of a request; absent: zero. */
void embd__scope_read(struct fields *f, struct table_scope *out);
/* How many of them the scope needs; writes those. */
uint32_t embd__scope_fields(const struct table_scope *scope);
void embd__scope_write(struct msg *m, const struct table_scope *scope);

#endif
