/* etcd.h - a few questions to etcd: its v3 API as JSON over HTTP, by libcurl.
 *
 * Every function asks one member, and the next one where that cannot be reached; it blocks up to
 * ETCD_ANSWER_MS each, so it is called on a thread that may wait. Owner: that thread. */
#ifndef EMBD_MEMBER_ETCD_H
#define EMBD_MEMBER_ETCD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/errors.h"

#define ETCD_ANSWER_MS   2000
#define ETCD_MEMBERS_MAX 16
#define ETCD_KEY_BYTES   256
#define ETCD_VALUE_BYTES (1u << 20)

struct etcd;

#define ETCD_PATH_BYTES 512
#define ETCD_NAME_BYTES 128 /* of a user, and of a password */

/* Where etcd is, what part of it is ours, and who we are to it. */
struct etcd_place {
    char members[ETCD_MEMBERS_MAX][256]; /* "127.0.0.1:2379" */
    uint32_t n_members;
    char prefix[128]; /* "/shop", without a slash at its end */

    /* PEM files. Without `ca` etcd is asked without TLS; "system": the authorities of this
     * machine. */
    char ca[ETCD_PATH_BYTES], cert[ETCD_PATH_BYTES], key[ETCD_PATH_BYTES];
    char login[ETCD_PATH_BYTES]; /* a file of one line, USER:PASSWORD; "": no login */
};

struct etcd_login {
    char user[ETCD_NAME_BYTES], password[ETCD_NAME_BYTES];
};

/* "etcd://HOST:PORT[,HOST:PORT...]/PREFIX". EMBD_INVALID says what is wrong. */
int etcd_place_read(const char *text, struct etcd_place *out, struct embd__error *e);
/* EMBD_INVALID: one of its files cannot be read. The first request will show what is in them. */
int etcd_place_check(const struct etcd_place *place, struct embd__error *e);
/* The file of a login, which others may not read. EMBD_INVALID says what is wrong with it. */
int etcd_login_read(const char *path, struct etcd_login *out, struct embd__error *e);

/* EMBD_INVALID: a file of `place` cannot be read; EMBD_NO_MEMORY. `stops` may become true at any
 * time: what waits then ends with EMBD_CLOSED, at once where etcd_wake is called. */
int etcd_open(const struct etcd_place *place, const atomic_bool *stops, struct etcd **out,
              struct embd__error *e);
void etcd_close(struct etcd *etcd);
void etcd_wake(struct etcd *etcd); /* any thread */
/* A watch that waits, or the next one, ends at once, as one that has seen nothing. Any thread. */
void etcd_nudge(struct etcd *etcd);
/* One member is given so long for an answer, in the place of ETCD_ANSWER_MS. */
void etcd_set_patience(struct etcd *etcd, uint32_t ms);

struct etcd_value {
    char *text;            /* the caller's; NULL: no such key */
    uint64_t mod_revision; /* of the key; 0: none */
    uint64_t revision;     /* of etcd, when it was read */
};

/* Keys are below the prefix. Failures: EMBD_UNREACHABLE, EMBD_CLOSED, EMBD_PROTOCOL,
 * EMBD_NO_MEMORY. */
int etcd_get(struct etcd *etcd, const char *key, struct etcd_value *out, struct embd__error *e);
/* The same where the key was changed after that mod_revision; else its value does not come: text is
 * NULL. 0: any. */
int etcd_get_newer(struct etcd *etcd, const char *key, uint64_t mod_revision,
                   struct etcd_value *out, struct embd__error *e);

/* Sets the key if it is unchanged since mod_revision (0: if it does not exist); *won_out says
 * whether. `lease` 0: permanent. */
int etcd_swap(struct etcd *etcd, const char *key, uint64_t mod_revision, const char *value,
              int64_t lease, bool *won_out, struct embd__error *e);

struct etcd_guard {
    const char *key;
    uint64_t mod_revision; /* 0: it does not exist */
};
struct etcd_put {
    const char *key, *value; /* NULL: the key is removed */
    int64_t lease;           /* 0: permanent */
};
/* Puts all if no guarded key has changed, or none. *won_out: the mod_revision of what was put; 0:
 * nothing was. */
int etcd_commit(struct etcd *etcd, const struct etcd_guard *guards, uint32_t n_guards,
                const struct etcd_put *puts, uint32_t n_puts, uint64_t *won_out,
                struct embd__error *e);

struct etcd_item {
    char name[64]; /* the key behind the folder; longer ones are left out */
    char *text;    /* the caller's */
};
/* The keys below `folder`, which ends with a slash; at most `most`. */
int etcd_list(struct etcd *etcd, const char *folder, struct etcd_item *items, uint32_t most,
              uint32_t *n_out, struct embd__error *e);

int etcd_lease_grant(struct etcd *etcd, uint32_t seconds, int64_t *lease_out,
                     struct embd__error *e);
/* *lives_out false: it has run out. */
int etcd_lease_keep(struct etcd *etcd, int64_t lease, bool *lives_out, struct embd__error *e);
int etcd_lease_revoke(struct etcd *etcd, int64_t lease, struct embd__error *e);

/* Waits up to timeout_ms for the key to change after `revision`. */
int etcd_watch(struct etcd *etcd, const char *key, uint64_t revision, uint32_t timeout_ms,
               bool *changed_out, struct embd__error *e);

#endif
