/* places.c - see places.h. */
#include "client/embctl/places.h"

#include <stdio.h>

#include "client/embctl/embctl.h"

int end_without_place(const char *command, const char *flag)
{
    fprintf(stderr, "embctl %s: name a place: %s DIR, or %s s3://BUCKET/PREFIX\n", command, flag,
            flag);
    return EXIT_USAGE;
}
