/* foreignformats.c - which formats of folders there are, and whose a folder is. */
#include <dirent.h>
#include <string.h>

#include "client/embctl/foreignfiles.h"

static const struct {
    const char *name, *mark; /* what file names of the format have alone */
    void (*read)(struct foreign_folder *f);
} formats[] = {
    [FOREIGN_NONE] = {"", "", NULL},
    [FOREIGN_SOK] = {"sok", "-weight", foreign_read_sok},
    [FOREIGN_TFRA] = {"tfra", "-keys", foreign_read_tfra},
    [FOREIGN_HKV] = {"hkv", ".keys", foreign_read_hkv},
    [FOREIGN_DYNAMICEMB] = {"dynamicemb", "_emb_keys.rank_", foreign_read_dynamicemb},
};
#define N_FORMATS (sizeof formats / sizeof *formats)

enum foreign_format foreign_format_of(const char *name)
{
    for (size_t i = 1; i < N_FORMATS; i++)
        if (!strcmp(formats[i].name, name))
            return (enum foreign_format)i;
    return FOREIGN_NONE;
}

/* dynamicemb's mark is in the middle of names, the others' at their end. */
static bool has_mark(const char *name, size_t format)
{
    const char *mark = formats[format].mark, *at = strstr(name, mark);
    size_t n = strlen(name), n_mark = strlen(mark);
    if (format == FOREIGN_DYNAMICEMB)
        return at != NULL;
    return n > n_mark && !strcmp(name + n - n_mark, mark);
}

enum foreign_format foreign_detect(const char *folder)
{
    bool seen[N_FORMATS] = {false};
    size_t found = 0, n_found = 0;
    DIR *list = opendir(folder);
    if (!list)
        return FOREIGN_NONE;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        for (size_t i = 1; i < N_FORMATS; i++)
            seen[i] |= has_mark(entry->d_name, i);
    closedir(list);
    for (size_t i = 1; i < N_FORMATS; i++)
        if (seen[i]) {
            found = i;
            n_found++;
        }
    return n_found == 1 ? (enum foreign_format)found : FOREIGN_NONE;
}

int foreign_folder_read(struct foreign_folder *f, const struct foreign_arguments *a, char *why,
                        size_t why_bytes)
{
    *f = (struct foreign_folder){.a = a};
    f->r = (struct job_reading){&f->job, a->folder, "", why, why_bytes};
    foreign_list(f);
    if (f->status == EMBD_OK)
        formats[a->format].read(f);
    if (f->status == EMBD_OK && f->job.n_tables == 0)
        foreign_fail(f, EMBD_CORRUPT, "has no table%s%s of the format %s", a->only ? " " : "",
                     a->only ? a->only : "", formats[a->format].name);
    return f->status;
}
