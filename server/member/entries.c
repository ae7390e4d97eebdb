/* entries.c - what servers with followers have in etcd, below the prefix:
 *
 *     servers/NAME       {"id", "node", "address", "admin", "admin_tcp", "shards"}, under the
 *                        primary's lease
 *     epoch/NAME         {"epoch", "node", "id", "kept", "kept_replicated"}: who was the last to
 *                        take the name, and since which epochs nothing was lost
 *     insync/NAME        {"epoch", "replicas", "ids"}: followers with all that was acknowledged
 *     heir/NAME          {"epoch", "id"}: a follower that has all of a primary that ended in order
 *     followers/NAME/ID  {"position", "ready"}, under the follower's lease
 *
 * Numbers of processes and directories are text of 16 digits. What is read is checked: text of
 * another kind is EMBD_CORRUPT, and an entry of a follower that cannot be read does not count. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/member/member_inside.h"

#define EPOCH_MOST ((json_int_t)1 << 53)

/* ---- reading ---- */

static bool read_hex(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    *out = 0;
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static bool read_number(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);
    json_int_t number = json_integer_value(value);
    *out = number > 0 ? (uint64_t)number : 0;
    return json_is_integer(value) && number >= 0 && number <= EPOCH_MOST;
}

static int refuse(const char *key, struct embd__error *e)
{
    return embd__error_set(e, EMBD_CORRUPT, "etcd: the value of %s cannot be read", key);
}

/* An entry that is there. */
struct found {
    char key[MEMBER_KEY_BYTES];
    json_t *object; /* NULL: its text is none */
    uint64_t mod_revision;
};

/* False: there is none, or the error. */
static bool find(struct etcd *etcd, const char *kind, const char *server, struct found *out,
                 struct embd__error *e)
{
    struct etcd_value there;
    snprintf(out->key, sizeof out->key, "%s/%.63s", kind, server);
    if (etcd_get(etcd, out->key, &there, e) != EMBD_OK || there.text == NULL)
        return false;
    out->object = json_loads(there.text, 0, NULL);
    out->mod_revision = there.mod_revision;
    free(there.text);
    return true;
}

int entry_read_epoch(struct etcd *etcd, const char *server, struct entry_epoch *out,
                     struct embd__error *e)
{
    struct found found;
    *out = (struct entry_epoch){.epoch = 0};
    if (!find(etcd, "epoch", server, &found, e))
        return e->status;
    if (!read_number(found.object, "epoch", &out->epoch) || out->epoch == 0 ||
        !read_hex(json_object_get(found.object, "node"), &out->node))
        refuse(found.key, e);
    if (!read_number(found.object, "kept", &out->kept) ||
        !read_number(found.object, "kept_replicated", &out->kept_replicated))
        out->kept = out->kept_replicated = out->epoch; /* of an earlier version */
    out->mod_revision = found.mod_revision;
    json_decref(found.object);
    return e->status;
}

static bool read_set(const json_t *list, struct failover_set *out)
{
    uint64_t id;
    bool is_whole = json_is_array(list) && json_array_size(list) <= FAILOVER_MOST;
    for (size_t i = 0; is_whole && i < json_array_size(list); i++)
        is_whole = read_hex(json_array_get(list, i), &id) && failover_add(out, id);
    return is_whole;
}

int entry_read_insync(struct etcd *etcd, const char *server, uint64_t epoch,
                      struct entry_insync *out, struct embd__error *e)
{
    struct found found;
    uint64_t of;
    *out = (struct entry_insync){.replicas = 0};
    if (!find(etcd, "insync", server, &found, e))
        return e->status;
    if (!read_number(found.object, "epoch", &of) ||
        !read_number(found.object, "replicas", &out->replicas) ||
        !read_set(json_object_get(found.object, "ids"), &out->set))
        refuse(found.key, e);
    if (of != epoch) { /* another process takes the name at this moment */
        out->replicas = 1;
        out->set.n = 0;
    }
    out->mod_revision = found.mod_revision;
    json_decref(found.object);
    return e->status;
}

int entry_read_heir(struct etcd *etcd, const char *server, uint64_t epoch, uint64_t *id_out,
                    struct embd__error *e)
{
    struct found found;
    uint64_t of;
    *id_out = 0;
    if (!find(etcd, "heir", server, &found, e))
        return e->status;
    if (!read_number(found.object, "epoch", &of) ||
        !read_hex(json_object_get(found.object, "id"), id_out) || of != epoch)
        *id_out = 0; /* nobody goes before others */
    json_decref(found.object);
    return EMBD_OK;
}

static bool read_follower(const struct etcd_item *item, struct entry_follower *out)
{
    json_t *object = json_loads(item->text, 0, NULL), *id = json_string(item->name);
    bool is = read_hex(id, &out->id) && read_number(object, "position", &out->position);
    out->is_ready = json_is_true(json_object_get(object, "ready"));
    json_decref(id);
    json_decref(object);
    return is;
}

int entry_list_followers(struct etcd *etcd, const char *server, struct entry_follower *out,
                         uint32_t *n_out, struct embd__error *e)
{
    char folder[MEMBER_KEY_BYTES];
    struct etcd_item items[FAILOVER_MOST];
    uint32_t n;
    *n_out = 0;
    snprintf(folder, sizeof folder, "followers/%.63s/", server);
    if (etcd_list(etcd, folder, items, FAILOVER_MOST, &n, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++) {
        *n_out += read_follower(&items[i], &out[*n_out]);
        free(items[i].text);
    }
    return EMBD_OK;
}

static bool copy_place(const char *text, char out[FAILOVER_PLACE_BYTES])
{
    bool fits = text != NULL && strlen(text) < FAILOVER_PLACE_BYTES;
    snprintf(out, FAILOVER_PLACE_BYTES, "%s", fits ? text : "");
    return fits;
}

bool entry_read_name(const char *text, uint64_t *node_out, struct failover_place *out)
{
    json_t *object = json_loads(text, 0, NULL);
    const char *admin = json_string_value(json_object_get(object, "admin")),
               *host = json_string_value(json_object_get(object, "admin_tcp"));
    bool has_host = host != NULL && host[0] != '\0';
    *out = (struct failover_place){.admin = ""};
    bool is = read_hex(json_object_get(object, "node"), node_out) &&
              copy_place(has_host ? host : admin, out->admin) &&
              copy_place(json_string_value(json_object_get(object, "address")), out->address);
    uint64_t n_shards;
    read_number(object, "shards", &n_shards);
    out->n_shards = n_shards <= LIMIT_SHARDS ? (uint32_t)n_shards : 0;
    json_decref(object);
    return is;
}

/* ---- writing ---- */

static json_t *hex(uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
    return json_string(text);
}

/* The caller's; NULL: no memory. */
static char *write_name(const struct member *m)
{
    uint32_t first = m->self->first_shard;
    json_t *object =
        json_pack("{s:s,s:o,s:s,s:s,s:s,s:I}", "id", m->id, "node", hex(m->config.node), "address",
                  m->start.addresses[first], "admin", m->start.admin_addresses[first], "admin_tcp",
                  m->start.admin_hosts[first], "shards", (json_int_t)m->self->n_shards);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

static char *write_epoch(const struct member *m, uint64_t epoch)
{
    const struct failover *f = m->config.failover;
    json_t *object =
        json_pack("{s:I,s:o,s:s,s:I,s:I}", "epoch", (json_int_t)epoch, "node", hex(m->config.node),
                  "id", m->id, "kept", (json_int_t)atomic_load(&f->kept), "kept_replicated",
                  (json_int_t)atomic_load(&f->kept_replicated));
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

static char *write_insync(const struct member *m, uint64_t epoch, const struct failover_set *set)
{
    json_t *ids = json_array();
    for (uint32_t i = 0; i < set->n; i++)
        json_array_append_new(ids, hex(set->ids[i]));
    json_t *object = json_pack("{s:I,s:I,s:o}", "epoch", (json_int_t)epoch, "replicas",
                               (json_int_t)m->config.replicas, "ids", ids);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

static int refuse_memory(struct embd__error *e)
{
    return embd__error_set(e, EMBD_NO_MEMORY, "no memory for an entry in etcd");
}

int entry_take_name(struct member *m, uint64_t epoch, uint64_t name_revision,
                    uint64_t epoch_revision, uint64_t *won_out, struct embd__error *e)
{
    static const struct failover_set nobody = {.n = 0};
    char epoch_key[MEMBER_KEY_BYTES], insync_key[MEMBER_KEY_BYTES], heir_key[MEMBER_KEY_BYTES];
    char *name = write_name(m), *number = write_epoch(m, epoch),
         *set = write_insync(m, epoch, &nobody);
    snprintf(epoch_key, sizeof epoch_key, "epoch/%.63s", m->self->name);
    snprintf(insync_key, sizeof insync_key, "insync/%.63s", m->self->name);
    snprintf(heir_key, sizeof heir_key, "heir/%.63s", m->self->name);
    const struct etcd_guard guards[] = {{m->name_key, name_revision}, {epoch_key, epoch_revision}};
    const struct etcd_put puts[] = {{m->name_key, name, m->lease},
                                    {epoch_key, number, 0},
                                    {insync_key, set, 0},
                                    {heir_key, NULL, 0}};
    *won_out = 0;
    if (name == NULL || number == NULL || set == NULL)
        refuse_memory(e);
    else
        etcd_commit(m->etcd, guards, 2, puts, 4, won_out, e);
    free(name);
    free(number);
    free(set);
    return e->status;
}

int entry_hand_over(struct member *m, uint64_t heir, struct embd__error *e)
{
    char key[MEMBER_KEY_BYTES];
    uint64_t won;
    json_t *object = json_pack(
        "{s:I,s:o}", "epoch", (json_int_t)atomic_load(&m->config.failover->epoch), "id", hex(heir));
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    snprintf(key, sizeof key, "heir/%.63s", m->self->name);
    const struct etcd_guard guard = {m->name_key, m->name_revision};
    const struct etcd_put puts[] = {{m->name_key, NULL, 0}, {key, text, 0}};
    if (text == NULL)
        refuse_memory(e);
    else
        etcd_commit(m->etcd, &guard, 1, puts, 2, &won, e);
    json_decref(object);
    free(text);
    return e->status;
}

int entry_forget(struct member *m, uint64_t epoch_revision, struct embd__error *e)
{
    static const char *const folders[] = {"epoch", "insync", "heir"};
    char keys[3][MEMBER_KEY_BYTES];
    struct etcd_put puts[4] = {{m->name_key, NULL, 0}};
    const struct etcd_guard guards[] = {{m->name_key, m->follows ? 0 : m->name_revision},
                                        {keys[0], epoch_revision}};
    uint64_t won;
    for (int i = 0; i < 3; i++) {
        snprintf(keys[i], MEMBER_KEY_BYTES, "%s/%.63s", folders[i], m->self->name);
        puts[i + 1] = (struct etcd_put){keys[i], NULL, 0};
    }
    etcd_commit(m->etcd, guards, m->follows ? 2 : 1, puts, 4, &won, e);
    return e->status;
}

int entry_put_insync(struct member *m, const struct failover_set *set, bool *won_out,
                     struct embd__error *e)
{
    char key[MEMBER_KEY_BYTES];
    char *text = write_insync(m, atomic_load(&m->config.failover->epoch), set);
    snprintf(key, sizeof key, "insync/%.63s", m->self->name);
    const struct etcd_guard guards[] = {{m->name_key, m->name_revision}, {key, m->insync_revision}};
    const struct etcd_put put = {key, text, 0};
    uint64_t revision = 0;
    if (text == NULL)
        refuse_memory(e);
    else
        etcd_commit(m->etcd, guards, 2, &put, 1, &revision, e);
    free(text);
    *won_out = revision != 0;
    m->insync_revision = *won_out ? revision : m->insync_revision;
    return e->status;
}

int entry_put_follower(struct member *m, uint64_t position, bool is_ready, struct embd__error *e)
{
    char key[MEMBER_KEY_BYTES], text[sizeof m->told_entry];
    uint64_t won;
    snprintf(text, sizeof text, "{\"position\":%llu,\"ready\":%s}", (unsigned long long)position,
             is_ready ? "true" : "false");
    if (strcmp(text, m->told_entry) == 0)
        return EMBD_OK;
    snprintf(key, sizeof key, "followers/%.63s/%s", m->self->name, m->id);
    const struct etcd_put put = {key, text, m->lease};
    if (etcd_commit(m->etcd, NULL, 0, &put, 1, &won, e) == EMBD_OK)
        memcpy(m->told_entry, text, sizeof text);
    return e->status;
}
