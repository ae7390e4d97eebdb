/* report.h - results as a table for people and as JSON for programs, both from the same cells. */
#ifndef EMBD_BENCH_REPORT_H
#define EMBD_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REPORT_COLUMNS_MAX 16u
#define REPORT_TEXT_BYTES  64u

struct report_column {
    const char *key;     /* in JSON */
    const char *heading; /* in the table */
    const char *format;  /* of a number in the table, for a double; NULL: the column holds text */
    double scale;        /* the table shows number * scale */
};

struct report_cell {
    char text[REPORT_TEXT_BYTES];
    double number; /* NaN: unknown; "-" in the table, null in JSON */
};

/* Columns outlive the report. */
struct report_table {
    const char *key;
    const struct report_column *columns;
    uint32_t n_columns;
    struct report_cell (*rows)[REPORT_COLUMNS_MAX];
    uint32_t n_rows;
};

/* A row to fill in; unset cells are "" and 0. Ends the program without memory. */
struct report_cell *report_row(struct report_table *t);
void report_fini(struct report_table *t);

/* The run's parameters, as names and values before the tables. */
struct report_fact {
    const char *key;
    const char *text; /* NULL: the number */
    double number;
};

/* 0, or -1: writing failed. */
int report_print(FILE *out, const struct report_table *tables, uint32_t n_tables);
int report_print_json(FILE *out, const struct report_fact *facts, uint32_t n_facts,
                      const struct report_table *tables, uint32_t n_tables);

#endif
