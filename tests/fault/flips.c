/* flips.c - see flips.h. */
#include "tests/unit/cmocka_all.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fault/flips.h"

void flips_add(struct flips *flips, const char *directory)
{
    DIR *list = opendir(directory);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        assert_true(flips->n_files < FLIPS_FILES_MAX);
        snprintf(flips->files[flips->n_files++], 256, "%.120s/%.120s", directory, entry->d_name);
    }
    closedir(list);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void flip(int fd, uint64_t bit)
{
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte = (uint8_t)(byte ^ 1u << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
}

static uint64_t step_of(const struct flips *flips)
{
    return flips->stride > 1 ? flips->stride : 1;
}

static void flip_each(struct flips *flips, const char *path)
{
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    uint64_t step = step_of(flips), n_bits = 8 * (uint64_t)size_of(path);
    for (uint64_t bit = 0; bit < n_bits; bit += step, flips->n_flips++) {
        flip(fd, bit);
        if (flips->verifies(flips->world) ||
            (flips->n_flips % flips->load_each == 0 && flips->loads(flips->world))) {
            flips->n_unseen++;
            if (!flips->expects_unseen)
                print_message("bit %llu of %s is not missed\n", (unsigned long long)bit, path);
        }
        flip(fd, bit);
    }
    close(fd);
}

void flips_flip(struct flips *flips)
{
    flips->n_flips = flips->n_unseen = 0;
    for (int i = 0; i < flips->n_files; i++)
        flip_each(flips, flips->files[i]);
    print_message("%llu bits flipped, %llu unseen\n", (unsigned long long)flips->n_flips,
                  (unsigned long long)flips->n_unseen);
}

void flips_cut(struct flips *flips)
{
    static uint8_t bytes[1 << 16];
    flips->n_unseen = 0;
    for (int i = 0; i < flips->n_files; i++) {
        int fd = open(flips->files[i], O_RDWR);
        ssize_t n = read(fd, bytes, sizeof bytes);
        assert_true(n > 0 && n < (ssize_t)sizeof bytes);
        for (off_t cut = n - 1; cut >= 0; cut -= (off_t)step_of(flips)) {
            assert_int_equal(ftruncate(fd, cut), 0);
            flips->n_unseen += flips->verifies(flips->world);
        }
        assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
        close(fd);
    }
}
