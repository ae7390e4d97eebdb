/* pages.h - large arrays. */
#ifndef EMBD_BENCH_PAGES_H
#define EMBD_BENCH_PAGES_H

#include <stddef.h>

/* Memory in huge pages where the kernel has them, touched; NULL: none. */
void *pages_new(size_t bytes);
void pages_free(void *p, size_t bytes);

#endif
