/* settings.h - a table's definition on the command line: --dim 16 --optimizer adam --set
 * FIELD=VALUE.
 *
 * For commands that make tables: `settings_argp` as a child of theirs, with a struct settings as
 * its input (parse_command). */
#ifndef EMBCTL_SETTINGS_H
#define EMBCTL_SETTINGS_H

#include <argp.h>
#include <stddef.h>

#include "embd/embd.h"

struct setting {
    const char *field, *value;
};

/* Zero-initialized: none. */
struct settings {
    struct setting *list;
    size_t n;
};

extern const struct argp settings_argp;

/* One more; the texts must outlive them. */
void settings_add(struct settings *s, struct argp_state *state, const char *field,
                  const char *value);

/* Sets the schema to the defaults, then to `name` and the settings, and checks it. slot_sizes are
 * kept in `storage` [EMBD_SLOTS_MAX]. `why` gets a sentence. */
int settings_apply(const struct settings *settings, const char *name, embd_schema *schema,
                   uint64_t *storage, char *why, size_t why_bytes);

void settings_fini(struct settings *settings);

#endif
