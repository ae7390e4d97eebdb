/* notify.h - tells the service manager: ready, reloading, stopping, and alive, by the protocol of
 * sd_notify(3). Does nothing if $NOTIFY_SOCKET is not set. */
#ifndef EMBD_NOTIFY_H
#define EMBD_NOTIFY_H

/* "READY=1", "STOPPING=1", "WATCHDOG=1"; lines. */
void notify_send(const char *state);

/* "RELOADING=1", which must contain the time. */
void notify_reloading(void);

/* How often the manager expects WATCHDOG=1, in ms: half of its limit; 0: never. */
unsigned notify_watchdog_ms(void);

#endif
