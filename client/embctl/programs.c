/* programs.c - embctl bench and config check: other programs of embd, found beside this one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/embctl/embctl.h"

/* "DIR/NAME" and "DIR/../sbin/NAME" beside this program, else NAME in PATH. */
static void find_program(const char *name, char out[PATH_MAX])
{
    static const char *const places[] = {"", "/../sbin"};
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        int bytes =
            snprintf(out, PATH_MAX, "%.*s%s/%s", (int)(slash - self), self, places[i], name);
        if (bytes < PATH_MAX && access(out, X_OK) == 0)
            return;
    }
    snprintf(out, PATH_MAX, "%s", name);
}

/* argv[0] is set. */
static int become(const char *name, char **argv)
{
    char path[PATH_MAX];
    find_program(name, path);
    execvp(path, argv);
    fprintf(stderr, "embctl: cannot run %s: %s\n", path, strerror(errno));
    return EXIT_FAILED;
}

int command_bench(int argc, char **argv)
{
    char name[] = "embd-bench";
    (void)argc;
    argv[0] = name;
    return become("embd-bench", argv);
}

int command_config_check(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "FILE",
        .doc = "Checks a configuration file as a server of this version reads it, for every "
               "server it lists. Starts nothing.\v"
               "Exit code 0 when it is valid, else 2; stderr then names line, column and key. Runs "
               "'embd --config FILE --check'.\n"
               "\n"
               "Examples:\n"
               "  embctl config check shop.yaml && systemctl restart embd@shop"};
    struct words words = {.min = 1, .max = 1, .wanted = "name a file"};
    parse_command(&argp, argc, argv, &words);
    char path[PATH_MAX], name[] = "embctl", config[] = "--config", check[] = "--check";
    snprintf(path, sizeof path, "%s", words.list[0]);
    char *arguments[] = {name, config, path, check, NULL};
    return become("embd", arguments);
}
