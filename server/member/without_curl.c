/* without_curl.c - without libcurl, a cluster in etcd is refused by name. */
#include "server/member/first.h"
#include "server/member/member.h"

int member_open(const struct member_config *config, struct member **out, struct embd__error *e)
{
    (void)config;
    *out = NULL;
    return embd__error_set(e, EMBD_UNSUPPORTED, "etcd: this embd was built without libcurl");
}

int member_find_role(const struct etcd_place *place, uint32_t lease_s, const char *name,
                     uint64_t node, uint64_t epoch, bool is_followers, struct member_role *out,
                     struct embd__error *e)
{
    (void)place;
    (void)lease_s;
    (void)name;
    (void)node;
    (void)epoch;
    (void)is_followers;
    *out = (struct member_role){.follows = false};
    return embd__error_set(e, EMBD_UNSUPPORTED, "etcd: this embd was built without libcurl");
}

int member_find_first(struct member_first *first, const struct etcd_place *place, char *admin_out,
                      size_t bytes, struct embd__error *e)
{
    (void)first;
    (void)place;
    (void)admin_out;
    (void)bytes;
    return embd__error_set(e, EMBD_UNSUPPORTED, "etcd: this embd was built without libcurl");
}

void member_set_standing(struct member *member, const struct member_standing *standing)
{
    (void)member;
    (void)standing;
}

void member_close(struct member *member)
{
    (void)member;
}
