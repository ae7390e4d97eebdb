/* jobfile.c - opens a job's file and tells which of the two kinds it is: a graph has layers, a
 * ps.json has models. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/embctl/jobreading.h"

/* Not blocking: opening a FIFO would wait for its writer. */
json_t *job_load(const struct job_reading *r, int *status_out)
{
    json_error_t error;
    struct stat st;
    json_t *root = NULL;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *status_out = job_fail(r, EMBD_IO, "cannot open: %s", strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        *status_out = job_fail(r, EMBD_IO, "is not a regular file");
    else if (!(root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error)))
        *status_out = job_fail(r, EMBD_CORRUPT, "line %d, column %d: %s", error.line, error.column,
                               error.text);
    close(fd);
    return root;
}

int job_read(const char *path, const char *model, struct job_file *out, char *why, size_t why_bytes)
{
    struct job_reading r = {out, path, model, why, why_bytes};
    int status = EMBD_OK;
    *out = (struct job_file){0};
    json_t *root = job_load(&r, &status);
    if (!root)
        return status;
    out->is_graph = json_object_get(root, "layers") != NULL;
    status = out->is_graph ? job_read_graph(&r, root) : job_read_ps(&r, root);
    json_decref(root);
    return status;
}

void job_fini(struct job_file *job)
{
    for (size_t i = 0; i < job->n_tables; i++) {
        free(job->tables[i].folder);
        free(job->tables[i].slot_sizes);
    }
    for (size_t i = 0; i < job->n_ignored; i++)
        free(job->ignored[i]);
    free(job->tables);
    free(job->ignored);
    *job = (struct job_file){0};
}
