/* archiving.h - the setting `archive`: the server of shard 0 has embctl keep an archive of the
 * cluster, as a program of its own: what a slow bucket costs, or a mistake there, is not the
 * server's. */
#ifndef EMBD_ARCHIVING_H
#define EMBD_ARCHIVING_H

struct process;

/* The process is ready; nothing to do without the setting, or without shard 0. A program that ends
 * is started again. */
void archiving_begin(struct process *p);
/* The process ends: so does the program. It is not waited for. */
void archiving_stop(struct process *p);
/* Waits for its end, for some seconds. */
void archiving_close(struct process *p);

#endif
