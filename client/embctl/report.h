/* report.h - what came of copying tables to or from a directory, shown as fields. */
#ifndef EMBCTL_REPORT_H
#define EMBCTL_REPORT_H

#include <stdbool.h>

#include "embd/embd.h"
#include "embd/admin.h"

/* `what` names it in JSON ("dump"); `place` is the directory. */
void report_print(const char *what, const char *place, const embd_dump_report *report,
                  uint64_t elapsed_us, bool has_pause);

#endif
