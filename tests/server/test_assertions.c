/* test_assertions.c - a broken promise between two modules ends the process: the server with
 * EXIT_ASSERTION and an error in its log, a program that links the library with SIGABRT and a line
 * on standard error. Each case runs in a child process. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/journal/journal.h"
#include "server/log/ending.h"
#include "server/store/contract.h"
#include "tests/unit/cmocka_all.h"

static char said[4096]; /* on standard error by the last child */

/* Runs it in a child; returns how that ended. */
static int ending_of(void (*run)(void))
{
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        run();
        _exit(0);
    }
    close(ends[1]);
    while (n + 1 < sizeof said && (got = read(ends[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void keep(void)
{
    log_take_assertions();
    EMBD_ASSERT(1 + 1 == 2);
}

static void break_in_a_program(void)
{
    EMBD_ASSERT(said[0] == 'x');
}

/* Nothing was written, so there is nothing to give back. */
static void break_the_journals(void)
{
    char dir[] = "/tmp/embd-assertions-XXXXXX";
    struct journal_config config = {.n_shards = 1};
    const struct journal_end end = {.segment = 0};
    struct embd__error e = {.status = EMBD_OK};
    struct journal *journal = NULL;
    log_take_assertions();
    if (mkdtemp(dir) == NULL)
        return;
    config.data_dir = open(dir, O_RDONLY | O_DIRECTORY);
    rmdir(dir);
    if (journal_open(&config, &end, &journal, &e) == EMBD_OK)
        journal_give_back(journal);
}

static void break_a_stores(void)
{
    static const uint64_t keys[2] = {1, 2};
    static const uint32_t offsets[2] = {0, 1};
    const struct store_keys in = {.n_keys = 2, .n_rows = 1, .keys = keys, .offsets = offsets};
    log_take_assertions();
    contract_keys(&in);
}

static void assert_logged(const char *file, const char *condition)
{
    char expected[256];
    snprintf(expected, sizeof expected, "condition=\"%s\" why=\"", condition);
    assert_non_null(strstr(said, "Z error assertion_failed at="));
    assert_non_null(strstr(said, file));
    assert_non_null(strstr(said, expected));
    assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1); /* one line */
}

static void test_kept(void **state)
{
    (void)state;
    assert_int_equal(ending_of(keep), 0);
    assert_string_equal(said, "");
}

static void test_server(void **state)
{
    (void)state;
    int status = ending_of(break_the_journals);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ASSERTION);
    assert_int_equal(EXIT_ASSERTION, 70); /* as deploy/OPERATING.md and embd(8) say */
    assert_logged("at=server/journal/journal.c:",
                  "journal->applying != NULL && journal->spare == NULL");
    status = ending_of(break_a_stores);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ASSERTION);
    assert_logged("at=server/store/contract.h:",
                  "in->offsets[0] == 0 && in->offsets[in->n_rows] == in->n_keys");
}

static void test_program(void **state)
{
    (void)state;
    int status = ending_of(break_in_a_program);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "embd: tests/server/test_assertions.c:"));
    assert_non_null(strstr(said, ": assertion failed: said[0] == 'x'; this is a bug in embd"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
