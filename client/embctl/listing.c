/* listing.c - results as rows of typed cells, shown as a table or as JSON. */
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <libsmartcols.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

/* Out of memory while a result is shown: there is nothing better to do than to say so. */
static void *require(void *memory)
{
    if (!memory) {
        fputs("embctl: out of memory\n", stderr);
        exit(EXIT_FAILED);
    }
    return memory;
}

/* ---- filling ---- */

void listing_init(struct listing *l, const char *name, const struct column *columns,
                  size_t n_columns)
{
    *l = (struct listing){.name = name, .columns = columns, .n_columns = n_columns};
}

void listing_fini(struct listing *l)
{
    for (size_t i = 0; i < l->n_rows * l->n_columns; i++)
        free(l->cells[i]);
    free(l->cells);
    *l = (struct listing){0};
}

void listing_row(struct listing *l)
{
    size_t old = l->n_rows * l->n_columns, n = old + l->n_columns;
    l->cells = require(reallocarray(l->cells, n, sizeof *l->cells));
    memset(l->cells + old, 0, l->n_columns * sizeof *l->cells);
    l->n_rows++;
}

static void set(struct listing *l, size_t column, char *text)
{
    char **cell = &l->cells[(l->n_rows - 1) * l->n_columns + column];
    free(*cell);
    *cell = require(text);
}

void listing_text(struct listing *l, size_t column, const char *text)
{
    set(l, column, strdup(text));
}

void listing_uint(struct listing *l, size_t column, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    set(l, column, strdup(text));
}

void listing_flag(struct listing *l, size_t column, bool value)
{
    set(l, column, strdup(value ? "1" : "0"));
}

/* Nine digits give a float back exactly. JSON has no NaN or infinity. */
static void write_float(FILE *out, float value)
{
    if (isfinite(value))
        fprintf(out, "%.9g", (double)value);
    else
        fputs("null", out);
}

void listing_floats(struct listing *l, size_t column, const float *values, size_t n)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = require(open_memstream(&text, &bytes));
    for (size_t i = 0; i < n; i++) {
        if (i)
            fputc('\n', out);
        write_float(out, values[i]);
    }
    fclose(out);
    set(l, column, text);
}

void listing_uints(struct listing *l, size_t column, const uint64_t *values, size_t n)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = require(open_memstream(&text, &bytes));
    for (size_t i = 0; i < n; i++)
        fprintf(out, i ? "\n%" PRIu64 : "%" PRIu64, values[i]);
    fclose(out);
    set(l, column, text);
}

void listing_float(struct listing *l, size_t column, float value)
{
    listing_floats(l, column, &value, 1);
}

/* ---- for people ---- */

static void format_count(char *to, size_t to_bytes, uint64_t value)
{
    char digits[32];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value);
    size_t at = 0;
    for (int i = 0; i < n && at + 2 < to_bytes; i++) {
        if (i && (n - i) % 3 == 0)
            to[at++] = ',';
        to[at++] = digits[i];
    }
    to[at] = '\0';
}

static void format_bytes(char *to, size_t to_bytes, uint64_t value)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double scaled = (double)value;
    size_t unit = 0;
    while (scaled >= 1023.95 && unit < 6) {
        scaled /= 1024.0;
        unit++;
    }
    snprintf(to, to_bytes, "%.*f %s", unit ? 1 : 0, scaled, units[unit]);
}

/* A minute and more: "3 min 39 s", "2 h 5 min", "11 d 4 h". */
static void format_long(char *to, size_t to_bytes, uint64_t seconds)
{
    uint64_t minutes = seconds / 60, hours = minutes / 60;
    if (hours >= 24)
        snprintf(to, to_bytes, "%" PRIu64 " d %" PRIu64 " h", hours / 24, hours % 24);
    else if (hours)
        snprintf(to, to_bytes, "%" PRIu64 " h %" PRIu64 " min", hours, minutes % 60);
    else
        snprintf(to, to_bytes, "%" PRIu64 " min %" PRIu64 " s", minutes, seconds % 60);
}

static void format_micros(char *to, size_t to_bytes, uint64_t value)
{
    if (value < 1000)
        snprintf(to, to_bytes, "%" PRIu64 " us", value);
    else if (value < 1000000)
        snprintf(to, to_bytes, "%.2f ms", (double)value / 1e3);
    else if (value < 60000000)
        snprintf(to, to_bytes, "%.2f s", (double)value / 1e6);
    else
        format_long(to, to_bytes, value / 1000000);
}

void listing_format(char *to, size_t to_bytes, enum cell_kind kind, uint64_t value)
{
    if (kind == CELL_COUNT)
        format_count(to, to_bytes, value);
    else if (kind == CELL_BYTES)
        format_bytes(to, to_bytes, value);
    else if (kind == CELL_MICROS)
        format_micros(to, to_bytes, value);
    else
        snprintf(to, to_bytes, "%" PRIu64, value);
}

/* "0.1\n0.25\n..." as "0.1 0.25 ... (64 in all)". */
static char *format_floats(const char *exact, size_t n_shown)
{
    char *text = NULL;
    size_t bytes, n = 0;
    FILE *out = require(open_memstream(&text, &bytes));
    for (const char *at = exact; at && *at; n++) {
        if (n_shown == 0 || n < n_shown)
            fprintf(out, n ? " %.6g" : "%.6g",
                    strncmp(at, "null", 4) ? strtod(at, NULL) : (double)NAN);
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (n_shown && n > n_shown)
        fprintf(out, " ... (%zu in all)", n);
    fclose(out);
    return require(text);
}

/* "10\n20" as "10,20", which --slot-sizes takes. */
static char *format_numbers(const char *exact)
{
    char *text = require(strdup(exact));
    for (char *at = text; (at = strchr(at, '\n')) != NULL;)
        *at = ',';
    return text;
}

/* malloc'd. */
static char *format_cell(const struct listing *l, enum cell_kind kind, const char *exact)
{
    char text[64];
    switch (kind) {
    case CELL_TEXT:
    case CELL_STATE:
    case CELL_RIGHT:
        return require(strdup(exact));
    case CELL_FLAG:
        return require(strdup(strcmp(exact, "1") ? "no" : "yes"));
    case CELL_FLOATS:
    case CELL_FLOAT:
        return format_floats(exact, l->floats_shown);
    case CELL_NUMBERS:
        return format_numbers(exact);
    case CELL_NUMBER:
    case CELL_COUNT:
    case CELL_BYTES:
    case CELL_MICROS:
        break;
    }
    listing_format(text, sizeof text, kind, strtoull(exact, NULL, 10));
    return require(strdup(text));
}

/* The name without its unit, which a table shows beside each value: unless that is what the column
 * is about, as in "row_bytes". An end "_s" is a rate: "requests/s". */
static void short_name(char *to, size_t to_bytes, const struct column *column)
{
    static const char *const memory[] = {"row_bytes", "index_bytes", "request_bytes"};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (!strcmp(memory[i], column->name)) {
            snprintf(to, to_bytes, "%s", column->name);
            return;
        }
    const char *unit = column->kind == CELL_BYTES    ? "_bytes"
                       : column->kind == CELL_MICROS ? "_us"
                                                     : "";
    size_t n = strlen(column->name), n_unit = strlen(unit);
    bool has_unit = n_unit && n > n_unit && !strcmp(column->name + n - n_unit, unit);
    snprintf(to, to_bytes, "%.*s", (int)(has_unit ? n - n_unit : n), column->name);
    n = strlen(to);
    if (n > 2 && !strcmp(to + n - 2, "_s"))
        to[n - 2] = '/';
}

static void capitalize(char *text)
{
    for (; *text; text++)
        *text = *text == '_' ? ' ' : (char)toupper((unsigned char)*text);
}

/* ---- for programs ---- */

/* Numbers stand in JSON as they are in their cells: keys go up to 2^64 - 1, jansson's integers to
 * 2^63 - 1. jansson writes the strings. */
static void print_json_text(const char *text)
{
    json_t *string = require(json_string(text));
    if (json_dumpf(string, stdout, JSON_ENCODE_ANY))
        require(NULL);
    json_decref(string);
}

static void print_json_list(const char *numbers)
{
    putchar('[');
    for (const char *at = numbers; *at; at++)
        *at == '\n' ? fputs(", ", stdout) : putchar(*at);
    putchar(']');
}

static void print_json_cell(enum cell_kind kind, const char *exact)
{
    if (!exact)
        fputs("null", stdout);
    else if (kind == CELL_TEXT || kind == CELL_STATE || kind == CELL_RIGHT)
        print_json_text(exact);
    else if (kind == CELL_FLAG)
        fputs(strcmp(exact, "1") ? "false" : "true", stdout);
    else if (kind == CELL_FLOATS || kind == CELL_NUMBERS)
        print_json_list(exact);
    else
        fputs(exact, stdout);
}

static void print_json_rows(const struct listing *l)
{
    printf("\n   \"%s\": [", l->name);
    for (size_t row = 0; row < l->n_rows; row++) {
        fputs(row ? ",{" : "\n      {", stdout);
        for (size_t i = 0; i < l->n_columns; i++) {
            printf("%s\n         \"%s\": ", i ? "," : "", l->columns[i].name);
            print_json_cell(l->columns[i].kind, l->cells[row * l->n_columns + i]);
        }
        fputs("\n      }", stdout);
    }
    fputs(l->n_rows ? "\n   ]" : "]", stdout);
}

/* One object, with a member for each list. */
static void print_json(const struct listing *const *lists, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        putchar(i ? ',' : '{');
        print_json_rows(lists[i]);
    }
    puts("\n}");
}

/* ---- for people, by libsmartcols ---- */

static bool is_left(enum cell_kind kind)
{
    return kind == CELL_TEXT || kind == CELL_STATE || kind == CELL_FLAG || kind == CELL_FLOATS ||
           kind == CELL_NUMBERS;
}

static void put(struct libscols_line *line, size_t column, char *text)
{
    if (scols_line_refer_data(line, column, require(text)))
        require(NULL);
}

static void print_and_free(struct libscols_table *table)
{
    scols_print_table(table);
    scols_unref_table(table);
}

static void add_column(struct libscols_table *table, const char *name, bool left)
{
    require(scols_table_new_column(table, name, 0, left ? 0 : SCOLS_FL_RIGHT));
}

/* Absent cells are shown as "-". */
static char *shown(const struct listing *l, size_t row, size_t column)
{
    const char *exact = l->cells[row * l->n_columns + column];
    return exact ? format_cell(l, l->columns[column].kind, exact) : strdup("-");
}

static void colour_states(struct libscols_line *line, const struct listing *l, size_t row)
{
    for (size_t i = 0; i < l->n_columns; i++) {
        const char *text = l->cells[row * l->n_columns + i];
        if (l->columns[i].kind == CELL_STATE && text)
            scols_cell_set_color(scols_line_get_cell(line, i),
                                 strcmp(text, "ready") ? "red" : "green");
    }
}

static void print_table(const struct listing *l)
{
    struct libscols_table *table = require(scols_new_table());
    scols_table_enable_colors(table, has_colours());
    for (size_t i = 0; i < l->n_columns; i++) {
        char name[64];
        short_name(name, sizeof name, &l->columns[i]);
        capitalize(name);
        add_column(table, name, is_left(l->columns[i].kind));
    }
    for (size_t row = 0; row < l->n_rows; row++) {
        struct libscols_line *line = require(scols_table_new_line(table, NULL));
        for (size_t i = 0; i < l->n_columns; i++)
            put(line, i, shown(l, row, i));
        colour_states(line, l, row);
    }
    print_and_free(table);
}

static void print_fields(const struct listing *l)
{
    struct libscols_table *table = require(scols_new_table());
    scols_table_enable_noheadings(table, 1);
    add_column(table, "field", true);
    add_column(table, "value", true);
    for (size_t i = 0; i < l->n_columns; i++) {
        if (!l->cells[i])
            continue;
        struct libscols_line *line = require(scols_table_new_line(table, NULL));
        char name[64];
        short_name(name, sizeof name, &l->columns[i]);
        put(line, 0, strdup(name));
        put(line, 1, shown(l, 0, i));
    }
    print_and_free(table);
}

void listing_print(const struct listing *l)
{
    globals.json ? print_json(&l, 1) : print_table(l);
    fflush(stdout); /* a view that is followed by others is seen at once */
}

void listing_print_pair(const struct listing *a, const struct listing *b)
{
    const struct listing *const lists[] = {a, b};
    if (globals.json) {
        print_json(lists, 2);
    } else {
        print_table(a);
        if (b->n_rows) {
            putchar('\n');
            print_table(b);
        }
    }
    fflush(stdout);
}

void listing_print_fields(const struct listing *l)
{
    globals.json ? print_json(&l, 1) : print_fields(l);
}
