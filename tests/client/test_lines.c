/* test_lines.c - which trunk a link's line goes by, with carriers that connect to nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/io/channel.h"
#include "client/io/trunk.h"

static uint32_t n_carried;
static struct trunk *last_carried;

static int carry(struct trunk *trunk, uv_loop_t *loop, const struct link_config *config,
                 struct trunk_carrier *out, struct embd__error *e)
{
    (void)loop;
    (void)config;
    (void)out;
    (void)e;
    n_carried++;
    last_carried = trunk;
    return EMBD_OK;
}

static uint32_t n_lost;

static void on_lose(void *owner, int status, const char *why)
{
    (void)status;
    (void)why;
    n_lost++;
    embd__trunk_line_close(owner);
}

static const struct trunk_line_events events = {.on_lose = on_lose};

static void open_line(struct trunks *trunks, struct trunk_line *line, uint64_t process,
                      const char *host)
{
    struct embd__error e = {0};
    *line = (struct trunk_line){.events = &events, .owner = line};
    assert_int_equal(embd__trunk_line_open(trunks, line, process, host, NULL, &e), EMBD_OK);
}

static void lines_share_a_trunk_where_process_and_verified_name_are_the_same(void **state)
{
    enum { LINES = 6 };
    static const struct {
        uint64_t process;
        const char *host;
        uint32_t n_carried;
    } cases[LINES] = {
        {1, "", 1},          {1, "", 1},          {2, "", 2}, {1, "a.example", 3},
        {1, "a.example", 3}, {1, "b.example", 4}, /* which only says that it is that process */
    };
    struct trunk_line lines[LINES];
    struct trunks trunks;
    struct embd__error e = {0};
    uv_loop_t loop;
    (void)state;
    uv_loop_init(&loop);
    assert_int_equal(embd__trunks_init(&trunks, &loop, TRUNK_ALWAYS, &e), EMBD_OK);
    trunks.carry = carry;
    n_carried = 0;
    for (int i = 0; i < LINES; i++) {
        open_line(&trunks, &lines[i], cases[i].process, cases[i].host);
        assert_int_equal(n_carried, cases[i].n_carried);
    }
    embd__trunk_start(last_carried, &(struct channel){.fd = -1}); /* none was opened */
    assert_int_equal(n_lost, 1);
    assert_null(lines[LINES - 1].trunk);
    for (int i = 0; i < LINES; i++)
        embd__trunk_line_close(&lines[i]);
    assert_null(trunks.list);
    embd__trunks_close(&trunks);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    embd__trunks_fini(&trunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_share_a_trunk_where_process_and_verified_name_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
