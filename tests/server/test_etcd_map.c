/* test_etcd_map.c - the map in etcd as text: servers that the configuration lists, and those that
 * were added, or left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/member/map.h"

#define SHARDS 6u
#define ENTRY(address, shard, by)                                                                  \
    "[{\"address\":\"" address "\",\"shard\":" #shard ",\"placement\":" #by "}]"
#define MAP(servers) "{\"version\":7,\"servers\":{" servers "}}"

static const struct member_server listed[] = {{"a", 0, 1}, {"b", 1, 1}}, c = {"c", 2, 1};

/* The map of the text behind `before`; NULL: of nothing. The caller's. */
static struct member_map read_behind(const struct member_map *before, const char *text)
{
    struct embd__error e = {.status = EMBD_OK};
    const struct member_map start = {.n_shards = SHARDS,
                                     .addresses = calloc(SHARDS, sizeof(char *)),
                                     .admin_addresses = calloc(SHARDS, sizeof(char *)),
                                     .admin_hosts = calloc(SHARDS, sizeof(char *))};
    struct member_map map;
    assert_int_equal(map_copy(before != NULL ? before : &start, &map, &e), EMBD_OK);
    assert_int_equal(map_read(text, listed, 2, &map, &e), EMBD_OK);
    free(start.addresses);
    free(start.admin_addresses);
    free(start.admin_hosts);
    return map;
}

static void servers_that_were_added_are_found_by_the_numbers_of_their_shards(void **state)
{
    (void)state;
    struct member_map map = read_behind(
        NULL, MAP("\"a\":[{\"address\":\"h:1\"}],\"b\":" ENTRY("h:2", 1, 1) ",\"x\":" ENTRY(
                  "h:3", 2, 4) ",\"y\":" ENTRY("h:9", 900, 4) ",\"z\":" ENTRY("h:8", 1, 9)));
    assert_string_equal(map.addresses[0], "h:1"); /* of a server of an earlier version */
    assert_string_equal(map.addresses[1], "h:2"); /* the configuration says whose it is */
    assert_string_equal(map.addresses[2], "h:3");
    assert_string_equal(map.addresses[3], "");
    assert_int_equal(map.placements[2], 4);
    map_fini(&map);
}

static void of_two_that_had_a_number_the_later_one_has_it_and_stays(void **state)
{
    (void)state;
    struct member_map map =
        read_behind(NULL, MAP("\"old\":" ENTRY("h:3", 2, 3) ",\"new\":" ENTRY("h:4", 2, 5)));
    assert_string_equal(map.addresses[2], "h:4");
    struct member_map next = read_behind(&map, MAP("\"old\":" ENTRY("h:3", 2, 3)));
    assert_string_equal(next.addresses[2], "h:4");
    map_fini(&map);
    map_fini(&next);
}

/* What server `self` makes of the text, standing so; NULL: nothing. */
static char *write_beyond(const struct member_server *self, const char *text, uint64_t placement,
                          uint32_t n_shards, uint64_t known)
{
    struct embd__error e = {.status = EMBD_OK};
    const struct member_standing standing = {MEMBERSHIP_HELD, placement, n_shards, placement};
    struct member_map map = read_behind(NULL, MAP(""));
    for (uint32_t i = 0; i < SHARDS; i++) {
        free(map.addresses[i]);
        map.addresses[i] = strdup("h:5");
    }
    char *written = map_write(text, self, &map, known, &standing, &e);
    assert_int_equal(e.status, EMBD_OK);
    map_fini(&map);
    return written;
}

static char *write_at(const struct member_server *self, const char *text, uint64_t placement,
                      uint32_t n_shards)
{
    return write_beyond(self, text, placement, n_shards, 0);
}

static void a_member_takes_those_off_that_had_its_shards_before_it(void **state)
{
    (void)state;
    char *text =
        write_at(&c, MAP("\"old\":" ENTRY("h:3", 2, 3) ",\"b\":" ENTRY("h:2", 1, 1)), 5, 3);
    assert_non_null(text);
    assert_null(strstr(text, "\"old\""));
    assert_non_null(strstr(text, "\"b\""));
    assert_non_null(strstr(text, "\"c\""));
    assert_non_null(strstr(text, "\"version\":8"));
    assert_null(write_at(&c, text, 5, 3)); /* it says so already */
    free(text);
}

/* Clients have seen version 20: none of them would heed what it says. */
static void a_map_of_before_a_backup_gets_a_version_beyond_all_that_were_known(void **state)
{
    (void)state;
    char *text = write_at(&c, MAP("\"b\":" ENTRY("h:2", 1, 1)), 5, 3);
    char *beyond = write_beyond(&c, text, 5, 3, 20);
    assert_non_null(beyond);
    assert_non_null(strstr(beyond, "\"version\":21"));
    assert_null(write_beyond(&c, beyond, 5, 3, 21));
    free(beyond);
    free(text);
}

static void who_takes_a_place_keeps_the_placement_that_readers_know(void **state)
{
    (void)state;
    const char *text = MAP("\"c\":" ENTRY("h:3", 2, 9));
    struct member_map before = read_behind(NULL, text);
    char *written = write_at(&c, text, 5, 3);
    assert_non_null(written);
    struct member_map map = read_behind(&before, written);
    assert_string_equal(map.addresses[2], "h:5");
    assert_int_equal(map.placements[2], 9);
    map_fini(&before);
    map_fini(&map);
    free(written);
}

static void a_server_whose_shards_another_one_has_by_now_is_not_put(void **state)
{
    (void)state;
    assert_null(write_at(&c, MAP("\"new\":" ENTRY("h:3", 2, 9)), 5, 3));
}

static void the_server_of_shard_0_takes_those_off_that_have_left(void **state)
{
    static const char text[] = MAP("\"left\":" ENTRY("h:3", 2, 3) ",\"late\":" ENTRY("h:4", 3, 8));
    (void)state;
    char *written = write_at(&listed[0], text, 5, 2);
    assert_non_null(written);
    assert_null(strstr(written, "\"left\""));
    assert_non_null(strstr(written, "\"late\"")); /* by a placement that it has not heard of */
    free(written);
    written = write_at(&listed[1], text, 5, 2);
    assert_non_null(written);
    assert_non_null(strstr(written, "\"left\""));
    free(written);
}

static void a_server_that_leaves_removes_its_own_entry_alone(void **state)
{
    (void)state;
    struct embd__error e = {.status = EMBD_OK};
    struct member_map map = read_behind(NULL, MAP("\"c\":" ENTRY("h:3", 2, 3)));
    char *text =
        map_remove(MAP("\"c\":" ENTRY("h:3", 2, 3) ",\"b\":" ENTRY("h:2", 1, 1)), &c, &map, 20, &e);
    assert_non_null(text);
    assert_null(strstr(text, "\"c\""));
    assert_non_null(strstr(text, "\"b\""));
    assert_non_null(strstr(text, "\"version\":21"));
    assert_null(map_remove(text, &c, &map, 0, &e));
    assert_null(
        map_remove(MAP("\"c\":" ENTRY("h:4", 2, 9)), &c, &map, 0, &e)); /* of another process */
    assert_null(map_remove(NULL, &c, &map, 0, &e));
    assert_int_equal(e.status, EMBD_OK);
    free(text);
    map_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_that_were_added_are_found_by_the_numbers_of_their_shards),
        cmocka_unit_test(of_two_that_had_a_number_the_later_one_has_it_and_stays),
        cmocka_unit_test(a_map_of_before_a_backup_gets_a_version_beyond_all_that_were_known),
        cmocka_unit_test(a_member_takes_those_off_that_had_its_shards_before_it),
        cmocka_unit_test(who_takes_a_place_keeps_the_placement_that_readers_know),
        cmocka_unit_test(a_server_whose_shards_another_one_has_by_now_is_not_put),
        cmocka_unit_test(the_server_of_shard_0_takes_those_off_that_have_left),
        cmocka_unit_test(a_server_that_leaves_removes_its_own_entry_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
