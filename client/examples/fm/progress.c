/* progress.c - a bar that is redrawn ten times a second, or a line every two seconds. */
#include "client/examples/fm/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH      30
#define REDRAW_SECONDS 0.1
#define LINE_SECONDS   2.0

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
    p->next = p->terminal ? 0 : LINE_SECONDS;
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
    double seconds = now() - p->started;
    if (seconds < p->next)
        return;
    double share = (double)done / (double)p->total, rate = (double)done / seconds;
    share = share < 1 ? share : 1;
    if (p->terminal)
        draw_bar(p, share, rate, loss);
    else
        fprintf(stderr, "%s %3.0f %%  %.0f samples/s  loss %.4f\n", p->title, share * 100, rate,
                loss);
    p->next = seconds + (p->terminal ? REDRAW_SECONDS : LINE_SECONDS);
}

double progress_end(progress *p)
{
    if (p->terminal)
        fprintf(stderr, "\r\033[K");
    return now() - p->started;
}
