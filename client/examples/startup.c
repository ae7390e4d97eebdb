/* startup.c - flags, data sets by name and the connection, as all example trainers have them. */
#include "client/examples/startup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void startup_parse(const struct argp_option *flags, argp_parser_t take_flag, const char *doc,
                   int argc, char **argv, void *settings)
{
    const struct argp parser = {flags, take_flag, NULL, doc, NULL, NULL, NULL};
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); /* a note on short options that helps nobody */
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, settings);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

uint64_t startup_number(const struct argp_state *state, const char *text, uint64_t low,
                        uint64_t high)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < low || value > high)
        argp_error(state, "'%s' is not a number from %llu to %llu", text, (unsigned long long)low,
                   (unsigned long long)high);
    return value;
}

/* False: `name` is neither. */
static bool parse_data(const char *name, embd_data_format *format_out, const char **path_out)
{
    bool is_norm = strncmp(name, "norm:", 5) == 0, is_raw = strncmp(name, "raw:", 4) == 0;
    *format_out = is_norm ? EMBD_DATA_FORMAT_NORM : EMBD_DATA_FORMAT_RAW;
    *path_out = name + (is_norm ? 5 : 4);
    return is_norm || is_raw;
}

const char *startup_data_name(const struct argp_state *state, const char *text)
{
    embd_data_format format;
    const char *path;
    if (!parse_data(text, &format, &path))
        argp_error(state, "'%s' is neither norm:LIST nor raw:FILE", text);
    return text;
}

const char *startup_servers(void)
{
    const char *servers = getenv("EMBD_SERVERS");
    return servers && *servers ? servers : "127.0.0.1:7700";
}

bool startup_make_folder(const char *path)
{
    char part[4096];
    int n = snprintf(part, sizeof part, "%s", path);
    for (int i = 1; i <= n && n < (int)sizeof part; i++) {
        char at = part[i];
        if (at != '/' && at != '\0')
            continue;
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            fprintf(stderr, "%s: cannot make the folder: %s\n", part, strerror(errno));
            return false;
        }
        part[i] = at;
    }
    return true;
}

embd_client *startup_connect(const char *servers, bool own_thread)
{
    embd_client *client;
    embd_options options;
    char why[512];
    embd_options_init(&options);
    options.own_thread = own_thread;
    if (embd_connect(servers, &options, &client, why, sizeof why) != EMBD_OK)
        fprintf(stderr, "connecting to %s: %s\n", servers, why);
    return client;
}

embd_reader *startup_open_data(const char *name, embd_data_shape shape,
                               const embd_reader_options *options)
{
    embd_reader *reader;
    const char *path;
    char why[512];
    parse_data(name, &shape.format, &path);
    if (embd_reader_open(path, &shape, options, &reader, why, sizeof why) != EMBD_OK)
        fprintf(stderr, "opening samples: %s\n", why);
    return reader;
}

bool startup_next_batch(embd_reader *reader, embd_batch *now, embd_batch **next_out)
{
    embd_reader_release(reader, now);
    if (embd_reader_next(reader, next_out) == EMBD_OK)
        return true;
    fprintf(stderr, "reading samples: %s\n", embd_reader_last_error(reader));
    return false;
}
