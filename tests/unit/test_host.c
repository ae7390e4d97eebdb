/* test_host.c - the limit on memory is the least of a cgroup's and those around it, whichever
 * version has it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/net/http/host.h"

static char root[] = "/tmp/embd-test-cgroup-XXXXXX";

static void make(const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, dir);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void put(const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static uint64_t limit_of(const char *cgroups_of_process)
{
    char path[256];
    put("of-process", cgroups_of_process);
    snprintf(path, sizeof path, "%s/of-process", root);
    return host_cgroup_limit(path, root);
}

static int make_cgroups(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    make("pod");
    make("pod/small");
    make("pod/large");
    make("pod/open");
    put("pod/memory.max", "4000\n");
    put("pod/small/memory.max", "1000\n");
    put("pod/large/memory.max", "9000\n");
    put("pod/open/memory.max", "max\n");
    make("memory");
    make("memory/one");
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/one/memory.limit_in_bytes", "2000\n");
    return 0;
}

static int remove_cgroups(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void the_least_of_a_cgroup_and_those_around_it(void **state)
{
    (void)state;
    assert_int_equal(limit_of("0::/pod/small\n"), 1000);
    assert_int_equal(limit_of("0::/pod/large\n"), 4000);
    assert_int_equal(limit_of("0::/pod/open\n"), 4000);
    assert_int_equal(limit_of("0::/pod/that/is/another/namespace's\n"), 4000);
    assert_int_equal(limit_of("0::/\n"), UINT64_MAX);
}

static void a_container_sees_its_own_cgroup_as_the_root(void **state)
{
    (void)state;
    put("memory.max", "3000\n");
    assert_int_equal(limit_of("0::/\n"), 3000);
    assert_int_equal(limit_of("0::/kubepods/of/the/host\n"), 3000);
    put("memory.max", "max\n");
}

static void version_1_has_it_too(void **state)
{
    (void)state;
    assert_int_equal(limit_of("12:cpu,cpuacct:/one\n9:memory:/one\n1:name=systemd:/one\n0::/\n"),
                     2000);
}

static void what_cannot_be_read_is_no_limit(void **state)
{
    (void)state;
    assert_int_equal(limit_of(""), UINT64_MAX);
    assert_int_equal(limit_of("no colons\n0:\n0::\n9:memory\n"), UINT64_MAX);
    assert_int_equal(host_cgroup_limit("/nowhere", root), UINT64_MAX);
    assert_true(host_memory_limit() > 0);
    assert_true(host_memory_limit() <=
                (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_of_a_cgroup_and_those_around_it),
        cmocka_unit_test(a_container_sees_its_own_cgroup_as_the_root),
        cmocka_unit_test(version_1_has_it_too),
        cmocka_unit_test(what_cannot_be_read_is_no_limit),
    };
    return cmocka_run_group_tests(tests, make_cgroups, remove_cgroups);
}
