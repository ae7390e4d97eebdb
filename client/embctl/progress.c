/* progress.c - a line on stderr that says how far a long operation is. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/embctl/listing.h"
#include "client/embctl/progress.h"

#define SHOW_AFTER_NS 2000000000u

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_begin(struct progress *p, const char *label, const char *next_label)
{
    struct sigaction action = {.sa_handler = on_signal,
                               .sa_flags = (int)(SA_RESETHAND | SA_RESTART)};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    *p = (struct progress){
        .label = label, .next_label = next_label, .on_terminal = isatty(STDERR_FILENO)};
    p->began_ns = p->phase_ns = now_ns();
}

static int percent(uint64_t done, uint64_t total)
{
    return total ? (int)(100.0 * (double)done / (double)total) : 100;
}

/* The line's text, without anything for the terminal. */
static void format_line(char *to, int to_bytes, const char *label, uint64_t rows_done,
                        uint64_t rows_total, uint64_t bytes_done, double seconds)
{
    char rows[32], bytes[32], rate[32], left[32] = "";
    double per_second = seconds > 0 ? (double)bytes_done / seconds : 0;
    listing_format(rows, sizeof rows, CELL_COUNT, rows_done);
    listing_format(bytes, sizeof bytes, CELL_BYTES, bytes_done);
    listing_format(rate, sizeof rate, CELL_BYTES, (uint64_t)per_second);
    if (rows_done && rows_done < rows_total) {
        double remaining = seconds * (double)(rows_total - rows_done) / (double)rows_done;
        snprintf(left, sizeof left, "  %d:%02d left", (int)(remaining / 60), (int)remaining % 60);
    }
    snprintf(to, (size_t)to_bytes, "%s %3d %%  %s rows  %s  %s/s%s", label,
             percent(rows_done, rows_total), rows, bytes, rate, left);
}

static void show(struct progress *p, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done,
                 uint64_t now)
{
    char line[160];
    double seconds = (double)(now - p->phase_ns) / 1e9;
    format_line(line, (int)sizeof line, p->label, rows_done, rows_total, bytes_done, seconds);
    fprintf(stderr, "\r\033[K%s", line);
    p->is_shown = true;
}

int progress_report(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done)
{
    struct progress *p = arg;
    uint64_t now = now_ns();
    if (rows_done < p->last_rows && p->next_label) {
        p->label = p->next_label;
        p->phase_ns = now;
    }
    p->last_rows = rows_done;
    if (p->on_terminal && now - p->began_ns > SHOW_AFTER_NS)
        show(p, rows_done, rows_total, bytes_done, now);
    return stop_asked;
}

bool progress_wait(struct progress *p, const char *what, uint64_t most_s)
{
    if (p->waits_ns == 0)
        p->waits_ns = now_ns();
    uint64_t waited_s = (now_ns() - p->waits_ns) / 1000000000u;
    if (p->on_terminal) {
        fprintf(stderr, "\r\033[K%s %llu s", what, (unsigned long long)waited_s);
        p->is_shown = true;
    }
    return waited_s < most_s && !stop_asked;
}

bool progress_is_stopped(void)
{
    return stop_asked;
}

uint64_t progress_end(struct progress *p)
{
    if (p->is_shown)
        fputs("\r\033[K", stderr);
    return (now_ns() - p->began_ns) / 1000;
}
