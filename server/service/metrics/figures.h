/* figures.h - the figures of a shard and of one table, by name; report.c has the lists. Each
 * returns how many there are. */
#ifndef EMBD_SERVICE_FIGURES_H
#define EMBD_SERVICE_FIGURES_H

#include "server/service/metrics/report.h"
#include "server/engine/tables.h"

uint32_t shard_figures(const struct shard *shard, struct figure out[REPORT_SHARD_FIGURES]);
uint32_t table_figures(const struct shard *shard, const struct table *table,
                       struct figure out[REPORT_TABLE_FIGURES]);

#endif
