/* rank.c - see rank.h.
 *
 * The happy path: the notes of all shards say whose records the directory has, and of which epoch;
 * etcd says who serves. A process that is to follow begins with what it followed with before, or
 * with nothing: a journal of its own, which may have records that the other server never had, is
 * moved to a directory below, and stays there until an operator removes it. Its snapshots stay
 * where they are (elder.h). */
#include "server/rank.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/follow/note.h"
#include "server/journal/tail.h"
#include "server/snapshot/elder.h"

#define ASIDE "aside-"

struct notes {
    uint64_t epoch;    /* the greatest of all shards */
    bool is_followers; /* a shard has another server's records, or waits for them */
    bool has_own;      /* a shard has records that are not so */
};

uint64_t rank_node(const struct process *p)
{
    uint64_t history, epoch;
    identity_tell_history(p->identity, &history, &epoch);
    return history;
}

/* ---- what the directory has ---- */

static int read_notes(const struct process *p, int dir, struct notes *out, struct embd__error *e)
{
    *out = (struct notes){.epoch = 1};
    for (uint32_t i = 0; i < p->n && e->status == EMBD_OK; i++) {
        struct note note;
        uint32_t shard = process_self(p)->first_shard + i;
        if (note_read(dir, shard, &note, e) != EMBD_OK)
            return e->status;
        bool follows = note.state == NOTE_FOLLOWS || note.state == NOTE_BEGINS;
        out->epoch = note.epoch > out->epoch ? note.epoch : out->epoch;
        out->is_followers = out->is_followers || follows;
        bool is_noted = note.state == NOTE_DEPOSED || note.state == NOTE_PROMOTED;
        out->has_own = out->has_own || is_noted || (!follows && tail_has_files(dir, shard));
    }
    return e->status;
}

/* ---- kept aside ---- */

static int complain(const char *what, const char *name, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "failover: %s '%.200s': %s", what, name, strerror(errno));
}

static bool stays(const char *name)
{
    return name[0] == '.' || strncmp(name, "identity.", 9) == 0 ||
           strncmp(name, ASIDE, sizeof ASIDE - 1) == 0 || strcmp(name, "lost+found") == 0;
}

/* A name that no directory has yet. */
static int make_aside(int dir, uint64_t epoch, char out[64], struct embd__error *e)
{
    for (uint32_t i = 1; i < 1000; i++) {
        snprintf(out, 64, ASIDE "%llu-%u", (unsigned long long)epoch, i);
        if (mkdirat(dir, out, 0700) == 0)
            return EMBD_OK;
        if (errno != EEXIST)
            break;
    }
    return complain("cannot make the directory", out, e);
}

static bool is_directory(const char *path, const struct stat *is)
{
    struct stat of;
    return path[0] != '\0' && stat(path, &of) == 0 && of.st_dev == is->st_dev &&
           of.st_ino == is->st_ino;
}

/* This process listens there already. */
static bool has_sockets(const struct process *p, int dir, const char *name)
{
    const struct config_server *self = process_self(p);
    struct stat is;
    return fstatat(dir, name, &is, AT_SYMLINK_NOFOLLOW) == 0 &&
           (S_ISSOCK(is.st_mode) || is_directory(self->admin_dir, &is) ||
            is_directory(self->local_dir, &is));
}

static int move_all(const struct process *p, DIR *from, int to, struct embd__error *e)
{
    int dir = dirfd(from);
    for (struct dirent *entry; e->status == EMBD_OK && (entry = readdir(from)) != NULL;)
        if (!stays(entry->d_name) && !elder_stays(dir, entry->d_name) &&
            !has_sockets(p, dir, entry->d_name) &&
            renameat(dir, entry->d_name, to, entry->d_name) != 0)
            complain("cannot keep aside", entry->d_name, e);
    if (e->status == EMBD_OK && (fsync(to) != 0 || fsync(dirfd(from)) != 0))
        complain("cannot sync", ASIDE, e);
    return e->status;
}

static int keep_aside(const struct process *p, int dir, const struct notes *notes,
                      struct embd__error *e)
{
    char name[64];
    if (elder_note(dir, e) != EMBD_OK || make_aside(dir, notes->epoch, name, e) != EMBD_OK)
        return e->status;
    int to = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *from = opendir(p->config.data_dir);
    if (to < 0 || from == NULL)
        complain("cannot open", name, e);
    else
        move_all(p, from, to, e);
    if (from != NULL)
        closedir(from);
    if (to >= 0)
        close(to);
    if (e->status == EMBD_OK)
        log_event(LOG_WARN, "kept_aside",
                  "server=%s epoch=%llu directory=%s/%s why=\"another process serves in its place: "
                  "changes that only this one had are in that directory, and no longer in the "
                  "tables\"",
                  process_self(p)->name, (unsigned long long)notes->epoch, p->config.data_dir,
                  name);
    return e->status;
}

/* ---- the rank ---- */

static int take_role(struct process *p, int dir, const struct notes *notes,
                     const struct member_role *role, struct embd__error *e)
{
    const char *name = process_self(p)->name;
    atomic_store(&p->failover->epoch, role->epoch);
    if (!role->follows) {
        p->config.promotes = notes->is_followers;
        log_event(LOG_INFO, "serves", "server=%s epoch=%llu", name,
                  (unsigned long long)role->epoch);
        return EMBD_OK;
    }
    log_event(LOG_INFO, "stands_by", "server=%s why=\"%s\"", name, role->why);
    snprintf(p->config.follow, sizeof p->config.follow, "the primary of '%.60s' in etcd", name);
    return notes->has_own ? keep_aside(p, dir, notes, e) : EMBD_OK;
}

static int find(struct process *p, int dir, struct embd__error *e)
{
    const struct config *config = &p->config;
    struct notes notes;
    struct member_role role;
    if (read_notes(p, dir, &notes, e) != EMBD_OK ||
        member_find_role(&config->etcd, config->etcd_lease_s, process_self(p)->name, rank_node(p),
                         notes.epoch, notes.is_followers, &role, e) != EMBD_OK)
        return e->status;
    return take_role(p, dir, &notes, &role, e);
}

int rank_find(struct process *p, struct embd__error *e)
{
    if (!p->config.has_failover)
        return EMBD_OK;
    if (p->config.n_shards > p->n && p->config.replicas == 0)
        return embd__error_set(e, EMBD_INVALID,
                               "failover: several servers need replicas of 1 or more: a follower "
                               "that takes a place has to have the map that the others have");
    p->failover = failover_new(p->n, p->start, running_wake, p);
    if (p->failover == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for failover");
    p->failover->first_shard = process_self(p)->first_shard;
    p->own_map = (struct shard_map){SHARD_MAP_OF_FILE, (const char *const *)p->places.addresses,
                                    (const char *const *)p->places.admin_addresses,
                                    (const char *const *)p->places.admin_hosts};
    int dir = open(p->config.data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return complain("cannot open", p->config.data_dir, e);
    find(p, dir, e);
    close(dir);
    return e->status;
}
