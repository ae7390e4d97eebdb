/* key_list.h - the keys that a command line names. */
#ifndef EMBCTL_KEY_LIST_H
#define EMBCTL_KEY_LIST_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

struct key_list {
    uint64_t *keys; /* malloc'd; the command frees it */
    size_t n;
};

/* Adds a key, decimal or 0x..; a usage error ends the program. */
void key_list_add(struct key_list *list, struct argp_state *state, const char *text);

#endif
