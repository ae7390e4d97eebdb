/* turns.c - what steps of several roles need: the map as it is known, a pause, and the end. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/log/log.h"
#include "server/member/map.h"
#include "server/member/member_inside.h"

bool member_is_own(const struct member *m, const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    const char *id = json_string_value(json_object_get(object, "id"));
    bool is = id != NULL && strcmp(id, m->id) == 0;
    json_decref(object);
    return is;
}

void member_lose(struct member *m, const char *why)
{
    log_event(LOG_ERROR, "name_lost", "server=%s why=\"%s\"", m->self->name, why);
    m->config.on_lost(m->config.arg);
    atomic_store(&m->stops, true);
}

void member_deliver(struct member *m)
{
    if (m->told == m->map_revision)
        return;
    m->told = m->map_revision;
    log_event(LOG_INFO, "map", "version=%llu", (unsigned long long)m->map.version);
    m->config.on_map(m->config.arg, &m->map);
}

/* The map is another one than the one that is known, or none. */
static int take_map(struct member *m, struct etcd_value *there, struct embd__error *e)
{
    m->seen = there->revision;
    if (there->text == NULL || there->mod_revision == m->map_revision)
        return EMBD_OK;
    if (map_read(there->text, m->config.servers, m->n_servers, &m->map, e) != EMBD_OK) {
        free(there->text);
        there->text = NULL;
        return e->status;
    }
    m->map_revision = there->mod_revision;
    m->newest_version = m->map.version > m->newest_version ? m->map.version : m->newest_version;
    return EMBD_OK;
}

int member_read_map(struct member *m, struct etcd_value *there, struct embd__error *e)
{
    if (etcd_get(m->etcd, MAP_KEY, there, e) != EMBD_OK)
        return e->status;
    return take_map(m, there, e);
}

int member_learn_map(struct member *m, struct embd__error *e)
{
    struct etcd_value there;
    uint64_t since = m->reads_whole ? 0 : m->map_revision;
    uint64_t newest = m->seen > m->map_revision ? m->seen : m->map_revision;
    m->reads_whole = true; /* an etcd that was away may have come back as it was earlier */
    if (etcd_get_newer(m->etcd, MAP_KEY, since, &there, e) != EMBD_OK)
        return e->status;
    m->reads_whole = false;
    if (there.revision < newest) /* it did */
        member_read_map(m, &there, e);
    else
        take_map(m, &there, e);
    free(there.text);
    return e->status;
}

void member_pause(struct member *m, uint32_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&m->mutex);
    while (!atomic_load(&m->stops) &&
           pthread_cond_timedwait(&m->woken, &m->mutex, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&m->mutex);
}

/* ---- what the process is to the cluster ---- */

struct member_standing member_standing(struct member *m)
{
    pthread_mutex_lock(&m->mutex);
    struct member_standing standing = m->standing;
    pthread_mutex_unlock(&m->mutex);
    return standing;
}

void member_set_standing(struct member *m, const struct member_standing *standing)
{
    pthread_mutex_lock(&m->mutex);
    m->standing = *standing;
    pthread_mutex_unlock(&m->mutex);
    atomic_store(&m->is_restanding, true);
    etcd_nudge(m->etcd);
}
