/* when.c - see when.h. */
#include "client/backup/when.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RECORDS "records:"

/* ".250", or nothing; *text moves behind it. */
static uint64_t read_fraction(const char **text)
{
    uint64_t ms = 0, unit = 100;
    if (**text != '.' || (*text)[1] < '0' || (*text)[1] > '9')
        return 0;
    for (++*text; **text >= '0' && **text <= '9'; ++*text, unit /= 10)
        ms += unit * (uint64_t)(**text - '0');
    return ms;
}

static bool read_seconds(const char *text, struct when *out)
{
    char *end;
    uint64_t seconds = strtoull(text, &end, 10);
    const char *rest = end;
    out->ms = seconds < UINT64_MAX / 1000 ? seconds * 1000 + read_fraction(&rest) : UINT64_MAX;
    return text[0] >= '0' && text[0] <= '9' && *rest == '\0';
}

static bool read_date(const char *text, struct when *out)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm tm = {0};
        const char *rest = strptime(text, forms[i], &tm);
        uint64_t ms = rest != NULL && i == 0 ? read_fraction(&rest) : 0;
        if (rest != NULL && (*rest == '\0' || strcmp(rest, "Z") == 0)) {
            time_t seconds = timegm(&tm);
            out->ms =
                seconds > 0 ? (uint64_t)seconds * 1000 + ms : 0; /* 26-11-23 is in the year 26 */
            return true;
        }
    }
    return false;
}

static bool read_positions(const char *text, struct when *out)
{
    char *end = NULL;
    out->ms = UINT64_MAX;
    for (; *text >= '0' && *text <= '9' && out->n_positions < LIMIT_SHARDS; text = end + 1) {
        out->positions[out->n_positions++] = strtoull(text, &end, 10);
        if (*end != ',')
            return *end == '\0';
    }
    return false;
}

bool when_read(const char *text, struct when *out)
{
    *out = (struct when){.ms = 0};
    if (strncmp(text, RECORDS, strlen(RECORDS)) == 0)
        return read_positions(text + strlen(RECORDS), out);
    return text[0] == '@' ? read_seconds(text + 1, out) : read_date(text, out);
}

uint64_t when_seconds(const struct when *when)
{
    return when->ms == UINT64_MAX ? UINT64_MAX : when->ms / 1000;
}
