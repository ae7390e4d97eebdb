/* packages.h - the packages of a Debian or Ubuntu archive, as the Packages indexes describe
 * them.
 *
 * An index is a sequence of stanzas ("Package: …", "Section: …", "Depends: …", an empty line).
 * Of each stanza the list keeps the four fields the example learns from. Several indexes are
 * merged: the first stanza of a name wins, so that the order of the indexes decides and nothing
 * else. */
#ifndef FM_PACKAGES_H
#define FM_PACKAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PACKAGE_NONE UINT32_MAX

typedef struct package {
    char *name;
    char *section;    /* "" where the index has none */
    char *maintainer; /* likewise */
    char *depends;    /* Pre-Depends and Depends as they stand, separated by a comma */
} package;

typedef struct package_list {
    package *items;
    uint32_t n_packages;
    uint32_t room;
    uint32_t
        *index; /* [index_room], open addressing by name: number of a package, or PACKAGE_NONE */
    uint32_t index_room;
} package_list;

void packages_init(package_list *list);
void packages_fini(package_list *list);

/* Adds a package unless one of this name is there. The strings are copied. False: out of memory. */
bool packages_add(package_list *list, const package *stanza);

/* The number of the package with the name [name, name + bytes), or PACKAGE_NONE. */
uint32_t packages_find(const package_list *list, const char *name, size_t bytes);

/* Adds the stanzas of an uncompressed index. False with a sentence on stderr: a read failed, no
 * memory. */
bool packages_read(package_list *list, FILE *index);

/* Adds the stanzas of the index at `path`; "-" is standard input. A name that ends in .lz4, .gz,
 * .xz, .bz2 or .zst is read through apt-helper. False with a sentence on stderr. */
bool packages_read_path(package_list *list, const char *path);

/* Adds the stanzas of every index that `apt-get update` left on this machine, in the order of
 * their names, and reports how many indexes there were. False with a sentence on stderr; no
 * index at all is no failure. */
bool packages_read_apt(package_list *list, uint32_t *n_indexes_out);

/* FNV-1a over the bytes, mixed: how this example turns strings into 64-bit keys. `seed` sets
 * kinds apart. */
uint64_t packages_hash(uint64_t seed, const char *text, size_t bytes);

/* The finalizer of murmur3: a bijection of 64 bits, every output bit of which depends on every
 * input bit. */
uint64_t packages_mix(uint64_t x);

#endif
