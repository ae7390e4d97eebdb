/* jobfiles.h - where a HugeCTR job saved its tables: PREFIX<I>_sparse_<N>.model and
 * PREFIX<I>_opt_sparse_<N>.model, I the embedding's number and N the iteration. */
#ifndef EMBCTL_JOBFILES_H
#define EMBCTL_JOBFILES_H

#include <stdbool.h>
#include <stdint.h>

/* The iteration N whose PREFIX0_sparse_<N>.model is there. -1: none or several, `why` says which.
 */
int job_find_iteration(const char *prefix, uint64_t *iteration, char *why, size_t why_bytes);

/* malloc'd; NULL: no memory. */
char *job_folder(const char *prefix, uint64_t number, uint64_t iteration);
char *job_state_file(const char *prefix, uint64_t number, uint64_t iteration);

/* A file's name without folder and ending, as the job is called; malloc'd. And the whole path
 * without its ending, as its files begin. */
char *job_name_of(const char *path);
char *job_prefix_of(const char *path);

#endif
