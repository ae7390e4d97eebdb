/* progress.c - a bar that is redrawn at most ten times a second, or a line at every fifth of the
 * way. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH      30
#define REDRAW_SECONDS 0.1
#define LINE_SHARE     0.2

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_begin(progress *p, const char *title, uint64_t total)
{
    *p = (progress){.title = title, .total = total > 0 ? total : 1, .started = now()};
    p->terminal = isatty(STDERR_FILENO);
    p->next = p->terminal ? 0 : LINE_SHARE;
}

static void draw_bar(const progress *p, double share, double rate, double loss)
{
    char bar[BAR_WIDTH + 1];
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < (int)(share * BAR_WIDTH) ? '#' : '.';
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r%s [%s] %3.0f %%  %.0f samples/s  loss %.4f ", p->title, bar, share * 100,
            rate, loss);
}

void progress_show(progress *p, uint64_t done, double loss)
{
    double share = (double)done / (double)p->total, seconds = now() - p->started;
    share = share < 1 ? share : 1;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    if (p->terminal) {
        if (seconds < p->next)
            return;
        p->next = seconds + REDRAW_SECONDS;
        draw_bar(p, share, rate, loss);
    } else if (share >= p->next) {
        p->next += LINE_SHARE;
        fprintf(stderr, "%s %3.0f %%  %.0f samples/s  loss %.4f\n", p->title, share * 100, rate,
                loss);
    }
}

double progress_end(progress *p)
{
    if (p->terminal)
        fprintf(stderr, "\r\033[K");
    return now() - p->started;
}
