/* synthetic.c - the made-up archive.
 *
 * Packages belong to families ("family12-..."), each with a section and a few maintainers. The
 * first tenth of the packages are libraries. A package depends mostly on libraries of its own
 * family, the first of them most often, and now and then on any library: enough structure for a
 * held-out edge to be predictable, and not all of them. */
#include "client/examples/fm/synthetic.h"

#include <stdlib.h>
#include <string.h>

#define PACKAGES               40000
#define LIBRARIES              4000
#define FAMILIES               200
#define SECTIONS               20
#define MAINTAINERS_PER_FAMILY 3
#define DEPENDENCIES           7
#define STRAY_ONE_IN           12 /* dependencies outside the family */

static uint32_t draw(uint64_t *random, uint32_t n)
{
    return (uint32_t)(packages_mix(*random += 0x9e3779b97f4a7c15u) % n);
}

/* Small numbers more often: the smaller of two draws. */
static uint32_t draw_popular(uint64_t *random, uint32_t n)
{
    uint32_t a = draw(random, n), b = draw(random, n);
    return a < b ? a : b;
}

/* Library i belongs to family i % FAMILIES, so a family's libraries are its number plus
 * multiples. */
static uint32_t draw_library(uint64_t *random, uint32_t family)
{
    uint32_t of = draw(random, STRAY_ONE_IN) == 0 ? draw(random, FAMILIES) : family;
    return of + FAMILIES * draw_popular(random, LIBRARIES / FAMILIES);
}

static void write_depends(char *text, size_t room, uint64_t *random, uint32_t family)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < 1 + draw(random, 2 * DEPENDENCIES - 1); i++) {
        int n = snprintf(text + used, room - used, "%slib%u", used > 0 ? ", " : "",
                         draw_library(random, family));
        used += (size_t)n;
    }
}

bool synthetic_packages(package_list *list)
{
    uint64_t random = 1;
    for (uint32_t i = 0; i < PACKAGES; i++) {
        uint32_t family = i % FAMILIES;
        char name[32], section[32], maintainer[48], depends[DEPENDENCIES * 2 * 16];
        snprintf(name, sizeof name, i < LIBRARIES ? "lib%u" : "program%u", i);
        snprintf(section, sizeof section, "section%u", family % SECTIONS);
        snprintf(maintainer, sizeof maintainer, "family%u-%u", family,
                 draw(&random, MAINTAINERS_PER_FAMILY));
        write_depends(depends, sizeof depends, &random, family);
        if (!packages_add(list, &(package){name, section, maintainer, depends}))
            return false;
    }
    return true;
}
