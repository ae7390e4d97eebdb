/* map.h - the map in etcd as text: JSON. */
#ifndef EMBD_MEMBER_MAP_H
#define EMBD_MEMBER_MAP_H

#include "server/member/member.h"

#define ENTRY_SHARD "shard" /* of a shard's entry on the map */

int map_copy(const struct member_map *from, struct member_map *out, struct embd__error *e);
void map_fini(struct member_map *map);

/* Takes the text's addresses of listed servers with the same number of shards, and of others by the
 * numbers of their shards; what the text does not have stays as it is in `map`, and so does all of
 * it after an error. EMBD_CORRUPT: it is not a map; EMBD_NO_MEMORY. */
int map_read(const char *text, const struct member_server *servers, uint32_t n_servers,
             struct member_map *map, struct embd__error *e);

/* The text `before` (NULL: there was none) with server `self` where `map` has it by its placement,
 * and without servers that had its shards by an earlier one, or that left; one version on, and
 * beyond `known`, which an etcd that came back from a backup may not have: clients heed no earlier
 * one. NULL where it says just that already, where another server has the shards by a
 * later placement, or with the error set. The caller's. */
char *map_write(const char *before, const struct member_server *self, const struct member_map *map,
                uint64_t known, const struct member_standing *standing, struct embd__error *e);
/* The same without server `self`; NULL also where it is not there, or at another address. */
char *map_remove(const char *before, const struct member_server *self, const struct member_map *map,
                 uint64_t known, struct embd__error *e);

#endif
