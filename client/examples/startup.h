/* startup.h - what the example trainers have in common before they train: flags, data sets by name,
 * the connection. What fails is told on stderr. */
#ifndef EXAMPLES_STARTUP_H
#define EXAMPLES_STARTUP_H

#include <argp.h>
#include <embd/embd.h>

#define STARTUP_SERVERS_DOC "any shard of the cluster ($EMBD_SERVERS, or 127.0.0.1:7700)"
/* What --servers is without the flag. */
const char *startup_servers(void);

/* Parses the command line into `settings`; exits with status 2 on a mistake. Output goes out line
 * by line. */
void startup_parse(const struct argp_option *flags, argp_parser_t take_flag, const char *doc,
                   int argc, char **argv, void *settings);

/* A flag's number; exits where it is none from `low` to `high`. */
uint64_t startup_number(const struct argp_state *state, const char *text, uint64_t low,
                        uint64_t high);

/* A flag's data set, "norm:LIST" or "raw:FILE"; exits where it is neither. */
const char *startup_data_name(const struct argp_state *state, const char *text);

/* NULL: told. With own_thread answers arrive while the caller computes. */
embd_client *startup_connect(const char *servers, bool own_thread);

/* Makes a folder that data sets are written to, and those above it; one that is there is no error.
 */
bool startup_make_folder(const char *path);

/* Opens a data set by its name; `shape`'s format is set from it. NULL: told. */
embd_reader *startup_open_data(const char *name, embd_data_shape shape,
                               const embd_reader_options *options);

/* Takes back `now`, which may be NULL, and sets *next_out to the next batch, NULL at the end. */
bool startup_next_batch(embd_reader *reader, embd_batch *now, embd_batch **next_out);

#endif
