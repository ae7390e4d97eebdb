/* map.h - the map in etcd as text: JSON. */
#ifndef EMBD_MEMBER_MAP_H
#define EMBD_MEMBER_MAP_H

#include "server/member/member.h"

int map_copy(const struct member_map *from, struct member_map *out, struct embd__error *e);
void map_fini(struct member_map *map);

/* Takes the text's addresses of listed servers with the same number of shards; others stay as they
 * are in `map`, and so does all of it after an error. EMBD_CORRUPT: it is not a map;
 * EMBD_NO_MEMORY. */
int map_read(const char *text, const struct member_server *servers, uint32_t n_servers,
             struct member_map *map, struct embd__error *e);

/* The text `before` (NULL: there was none) with server `self` where `map` has it, one version on,
 * and beyond `known`; NULL where it says just that already, or with the error set. The caller's. */
char *map_write(const char *before, const struct member_server *self, const struct member_map *map,
                uint64_t known, struct embd__error *e);

#endif
