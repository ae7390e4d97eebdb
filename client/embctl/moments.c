/* moments.c - see moments.h. */
#include "client/embctl/moments.h"

#include <stdio.h>
#include <time.h>

void moment_text(char out[MOMENT_BYTES], uint64_t ms)
{
    struct tm tm;
    time_t seconds = (time_t)(ms / 1000);
    out[0] = '\0';
    size_t n =
        ms == 0 ? 0 : strftime(out, MOMENT_BYTES, "%Y-%m-%dT%H:%M:%S", gmtime_r(&seconds, &tm));
    if (n > 0)
        snprintf(out + n, MOMENT_BYTES - n, ".%03uZ", (unsigned)(ms % 1000));
}

struct reading {
    struct listing *listing;
    uint64_t last_ms; /* of the span before; 0: there is none */
};

static int add_span(void *arg, const struct backup_span *span)
{
    struct reading *r = arg;
    char text[MOMENT_BYTES];
    listing_row(r->listing);
    moment_text(text, span->from_ms);
    listing_text(r->listing, 0, text);
    moment_text(text, span->to_ms);
    listing_text(r->listing, 1, text);
    listing_uint(r->listing, 2, (span->to_ms - span->from_ms) * 1000);
    if (r->last_ms != 0 && span->from_ms > r->last_ms)
        listing_uint(r->listing, 3, (span->from_ms - r->last_ms) * 1000);
    r->last_ms = span->to_ms;
    return 0;
}

int moments_read(const struct backup_where *where, const char *job, struct listing *out,
                 struct backup_why *why)
{
    static const struct column columns[] = {
        {"from", CELL_TEXT}, {"to", CELL_TEXT}, {"span_us", CELL_MICROS}, {"gap_us", CELL_MICROS}};
    struct reading reading = {.listing = out};
    listing_init(out, "moments", columns, sizeof columns / sizeof *columns);
    return backup_moments(where, job, add_span, &reading, why);
}
