/* config_values.h - one value of the configuration: where it comes from, and its text as a number,
 * a size or a name. Errors name the flag, or file, line and column. */
#ifndef EMBD_CONFIG_VALUES_H
#define EMBD_CONFIG_VALUES_H

#include "server/config.h"
#include "server/settings.h"

struct sources {
    bool is_embedded; /* in another program: it listens only where a setting says so */
    struct settings flags;
    struct settings_file file;
};

/* The setting that counts, for a server of the list or (NULL) the process; its text may be NULL. */
const struct setting *config_pick(const struct sources *from, const struct settings *server,
                                  bool with_flags, enum setting_id id);

/* Returns `status`; the sentence begins with where the setting is. */
int config_complain(struct embd__error *e, int status, enum setting_id id, const struct setting *at,
                    const char *format, ...) __attribute__((format(printf, 5, 6)));

/* `absent` where nothing is said. */
int config_count(enum setting_id id, const struct setting *at, uint64_t min, uint64_t max,
                 uint64_t absent, uint64_t *out, struct embd__error *e);
int config_yes(enum setting_id id, const struct setting *at, bool *out, struct embd__error *e);
/* "1048576", "512K", "64M", "2G", "25%" of config_memory_bytes. */
int config_size(enum setting_id id, const struct setting *at, uint64_t min, uint64_t max,
                uint64_t absent, uint64_t *out, struct embd__error *e);
int config_text(enum setting_id id, const struct setting *at, const char *absent, char *out,
                size_t out_bytes, struct embd__error *e);
/* config.c: the configuration that they make. As config_read. */
int config_read_from(const struct sources *from, struct config *out, struct embd__error *e);
/* RAM, or the limit of the process's cgroup where that is less. */
uint64_t config_memory_bytes(void);

/* config_servers.c: which servers there are, and which of them this process is. */
int config_read_servers(const struct sources *from, struct config *out, struct embd__error *e);
/* Whether `follow` is a place in etcd, and how etcd is reached there. */
int config_read_followed(const struct sources *from, const struct setting *at, struct config *out,
                         struct embd__error *e);

/* config_placement.c: which shard has which keys, behind the servers. */
int config_read_placement(const struct sources *from, struct config *out, struct embd__error *e);

#endif
