/* unfenced.c - servers that forget what failover depends on, each made with one of these wrapped: a
 * lease that is never counted as over, or epochs of other processes that are not seen. */
#include <stdint.h>

#include "server/follow/failover.h"
#include "server/member/member_inside.h"

void __real_failover_extend(struct failover *failover, uint64_t until_ns);
void __wrap_failover_extend(struct failover *failover, uint64_t until_ns);
int __real_entry_read_epoch(struct etcd *etcd, const char *server, struct entry_epoch *out,
                            struct embd__error *e);
int __wrap_entry_read_epoch(struct etcd *etcd, const char *server, struct entry_epoch *out,
                            struct embd__error *e);

#ifdef WITHOUT_FENCE
void __wrap_failover_extend(struct failover *failover, uint64_t until_ns)
{
    (void)until_ns;
    __real_failover_extend(failover, UINT64_MAX);
}
#else
int __wrap_entry_read_epoch(struct etcd *etcd, const char *server, struct entry_epoch *out,
                            struct embd__error *e)
{
    __real_entry_read_epoch(etcd, server, out, e);
    out->epoch = 0;
    return e->status;
}
#endif
