/* notify.h - telling the service manager: ready, reloading, stopping, and alive, by the protocol of
 * sd_notify(3). Where $NOTIFY_SOCKET is not set, nothing is told. */
#ifndef EMBD_NOTIFY_H
#define EMBD_NOTIFY_H

/* "READY=1", "STOPPING=1", "WATCHDOG=1"; lines. */
void notify_send(const char *state);

/* "RELOADING=1", which has to say when. */
void notify_reloading(void);

/* How often the manager wants to hear WATCHDOG=1, in ms: half of what it waits; 0: never. */
unsigned notify_watchdog_ms(void);

#endif
