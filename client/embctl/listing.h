/* listing.h - results as rows of typed cells, shown as a table for people or as JSON for programs.
 *
 * Both come from the same cells. JSON has them exactly (every 64-bit integer, every bit of a
 * float); a table shows counts with separators, bytes in MiB, times in ms. */
#ifndef EMBCTL_LISTING_H
#define EMBCTL_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cell_kind {
    CELL_TEXT,
    CELL_RIGHT,   /* text, set to the right */
    CELL_NUMBER,  /* as it is: keys, ids, addresses' shard numbers */
    CELL_COUNT,   /* 1,234,567 */
    CELL_BYTES,   /* 1.2 MiB */
    CELL_MICROS,  /* 1.2 ms */
    CELL_FLAG,    /* yes, no */
    CELL_FLOATS,  /* a list */
    CELL_NUMBERS, /* a list */
    CELL_FLOAT,
    CELL_STATE, /* text: "ready", or something that asks for attention */
};

struct column {
    const char *name; /* as in JSON; a table shows it in capitals */
    enum cell_kind kind;
};

struct listing {
    const char *name; /* of the list in JSON */
    const struct column *columns;
    size_t n_columns, n_rows;
    char **cells;        /* [n_rows][n_columns], exact text; NULL: absent */
    size_t floats_shown; /* in a table, of a list; 0: all */
};

/* `columns` must outlive the listing. */
void listing_init(struct listing *l, const char *name, const struct column *columns,
                  size_t n_columns);
void listing_fini(struct listing *l);

/* A new last row, all cells absent; the functions below set its cells. */
void listing_row(struct listing *l);
void listing_text(struct listing *l, size_t column, const char *text);
void listing_uint(struct listing *l, size_t column, uint64_t value);
void listing_uints(struct listing *l, size_t column, const uint64_t *values, size_t n);
void listing_flag(struct listing *l, size_t column, bool value);
void listing_float(struct listing *l, size_t column, float value);
void listing_floats(struct listing *l, size_t column, const float *values, size_t n);

/* To stdout, as globals.json says. */
void listing_print(const struct listing *l);

/* Two lists: one object in JSON, one table below the other otherwise. */
void listing_print_pair(const struct listing *a, const struct listing *b);

/* To stdout too, one row of many columns: a table has one line per column, absent cells are left
 * out.
 */
void listing_print_fields(const struct listing *l);

/* A value as a table shows it. */
void listing_format(char *to, size_t to_bytes, enum cell_kind kind, uint64_t value);

#endif
