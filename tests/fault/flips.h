/* flips.h - files of which one bit after the other is flipped, or that are cut at one byte after
 * the other. Include after cmocka_all.h. */
#ifndef EMBD_TESTS_FLIPS_H
#define EMBD_TESTS_FLIPS_H

#include <stdbool.h>
#include <stdint.h>

#define FLIPS_FILES_MAX 32

struct flips {
    char files[FLIPS_FILES_MAX][256];
    int n_files;
    uint64_t stride;               /* 0 and 1: each bit, and each length; else every so manieth */
    uint32_t load_each;            /* of the flips are loaded */
    bool (*verifies)(void *world); /* what is in the files */
    bool (*loads)(void *world);    /* likewise; then nothing of it is left behind */
    void *world;
    bool expects_unseen; /* unseen flips are no news */
    uint64_t n_flips, n_unseen;
};

/* The files of a directory, beside those that are there. */
void flips_add(struct flips *flips, const char *directory);
/* The bits of each file, which is afterwards as before. */
void flips_flip(struct flips *flips);
/* The lengths; n_unseen counts those with which the whole verifies. */
void flips_cut(struct flips *flips);

#endif
