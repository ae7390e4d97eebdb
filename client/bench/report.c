/* report.c - cells to libsmartcols and to jansson. */
#include "client/bench/report.h"

#include <jansson.h>
#include <libsmartcols.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void out_of_memory(void)
{
    fprintf(stderr, "embd-bench: out of memory for the report\n");
    exit(1);
}

struct report_cell *report_row(struct report_table *t)
{
    void *rows = realloc(t->rows, (t->n_rows + (size_t)1) * sizeof *t->rows);
    if (!rows)
        out_of_memory();
    t->rows = rows;
    struct report_cell *row = t->rows[t->n_rows++];
    memset(row, 0, sizeof *t->rows);
    return row;
}

void report_fini(struct report_table *t)
{
    free(t->rows);
    t->rows = NULL;
    t->n_rows = 0;
}

/* ---- for people ------------------------------------------------------------------------------ */

/* The formats are this program's own constants. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void format_number(char *to, size_t bytes, const struct report_column *column, double number)
{
    if (isnan(number))
        snprintf(to, bytes, "-");
    else
        snprintf(to, bytes, column->format, number * column->scale);
}
#pragma GCC diagnostic pop

static int add_line(struct libscols_table *table, const struct report_table *t, uint32_t row)
{
    struct libscols_line *line = scols_table_new_line(table, NULL);
    int rc = line ? 0 : -1;
    for (uint32_t c = 0; c < t->n_columns && rc == 0; c++) {
        const struct report_cell *cell = &t->rows[row][c];
        char number[64];
        if (t->columns[c].format)
            format_number(number, sizeof number, &t->columns[c], cell->number);
        const char *text = t->columns[c].format ? number : cell->text;
        rc = scols_line_set_data(line, c, text);
    }
    return rc;
}

static int print_table(FILE *out, const struct report_table *t)
{
    struct libscols_table *table = scols_new_table();
    int rc = table ? 0 : -1;
    for (uint32_t c = 0; c < t->n_columns && rc == 0; c++) {
        int flags = t->columns[c].format ? SCOLS_FL_RIGHT : 0;
        rc = scols_table_new_column(table, t->columns[c].heading, 0, flags) ? 0 : -1;
    }
    for (uint32_t r = 0; r < t->n_rows && rc == 0; r++)
        rc = add_line(table, t, r);
    if (rc == 0)
        rc = scols_table_set_stream(table, out);
    if (rc == 0)
        rc = scols_print_table(table);
    scols_unref_table(table);
    return rc ? -1 : 0;
}

int report_print(FILE *out, const struct report_table *tables, uint32_t n_tables)
{
    for (uint32_t i = 0; i < n_tables; i++) {
        if (i > 0)
            fputc('\n', out);
        if (print_table(out, &tables[i]))
            return -1;
    }
    return fflush(out) ? -1 : 0;
}

/* ---- for programs ---------------------------------------------------------------------------- */

static json_t *number_or_null(double number)
{
    if (isnan(number) || isinf(number))
        return json_null();
    if (number == floor(number) && fabs(number) < 9e15)
        return json_integer((json_int_t)number);
    return json_real(number);
}

static json_t *text_or_number(const char *text, bool is_text, double number)
{
    return is_text ? json_string(text) : number_or_null(number);
}

static json_t *rows_of(const struct report_table *t)
{
    json_t *rows = json_array();
    for (uint32_t r = 0; r < t->n_rows; r++) {
        json_t *row = json_object();
        for (uint32_t c = 0; c < t->n_columns; c++) {
            const struct report_cell *cell = &t->rows[r][c];
            json_object_set_new(
                row, t->columns[c].key,
                text_or_number(cell->text, t->columns[c].format == NULL, cell->number));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

int report_print_json(FILE *out, const struct report_fact *facts, uint32_t n_facts,
                      const struct report_table *tables, uint32_t n_tables)
{
    json_t *root = json_object(), *run = json_object();
    for (uint32_t i = 0; i < n_facts; i++)
        json_object_set_new(run, facts[i].key,
                            text_or_number(facts[i].text, facts[i].text != NULL, facts[i].number));
    json_object_set_new(root, "run", run);
    for (uint32_t i = 0; i < n_tables; i++)
        json_object_set_new(root, tables[i].key, rows_of(&tables[i]));
    int rc = json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    json_decref(root);
    if (rc || fputc('\n', out) == EOF || fflush(out))
        return -1;
    return 0;
}
