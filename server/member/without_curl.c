/* without_curl.c - without libcurl, a cluster in etcd is refused by name. */
#include "server/member/member.h"

int member_open(const struct member_config *config, struct member **out, struct embd__error *e)
{
    (void)config;
    *out = NULL;
    return embd__error_set(e, EMBD_UNSUPPORTED, "etcd: this embd was built without libcurl");
}

void member_close(struct member *member)
{
    (void)member;
}
