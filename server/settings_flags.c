/* settings_flags.c - the command line, through argp. Flags are the settings of settings.h with -
 * for _. */
#include "server/settings.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAG_FIRST = 1000, FLAG_CONFIG = 'c' };

static const char doc[] =
    "The embd server: holds embedding tables in memory and answers pulls and pushes."
    "\v"
    "Without a configuration this process is a cluster of its own:\n"
    "\n"
    "  embd --shards 2 --listen 127.0.0.1:7700\n"
    "\n"
    "Several processes form one cluster when they read the same file:\n"
    "\n"
    "  cluster:\n"
    "    name: shop\n"
    "    servers:\n"
    "      - {name: a, listen: \"127.0.0.1:7700\", shards: 2}\n"
    "      - {name: b, listen: \"127.0.0.1:7800\", shards: 2}\n"
    "\n"
    "  embd --config shop.yaml --server a\n"
    "  embd --config shop.yaml --server b\n"
    "\n"
    "These flags are keys of the file's top too, with _ for -, but for those of one start "
    "(--config, "
    "--server, --check, --ready-fd, --accept-journal-damage, --drop-table). A flag wins over the "
    "entry of a "
    "server, "
    "which wins over the top.\n"
    "\n"
    "SIGTERM and SIGINT finish what has begun, for 10 seconds at most; a second one ends at once.\n"
    "Exit status: 0 ended in order, 1 failure, 2 wrong usage or configuration, 3 cannot listen.";

/* Headings of --help: each stands above a flag and those that follow it in the list. */
static const struct {
    enum setting_id first;
    const char *text;
} headings[] = {
    {SETTING_SERVER, "Cluster and addresses:"},
    {SETTING_STORE, "Rows:"},
    {SETTING_ADMIN_DIR, "Security:"},
    {SETTING_FRAME_MEMORY, "Limits:"},
    {SETTING_LOG_LEVEL, "Running:"},
};
#define HEADINGS (sizeof headings / sizeof headings[0])

struct flags {
    struct settings *out;
    const char *path;
    char names[SETTING_COUNT][24];
    struct argp_option options[SETTING_COUNT + HEADINGS + 2];
};

/* A flag that may be repeated: its values, with commas between them. */
static error_t add_value(struct setting *setting, const char *value)
{
    char *both;
    if (asprintf(&both, "%s,%s", setting->text, value) < 0)
        return ENOMEM;
    free(setting->text);
    setting->text = both;
    return 0;
}

static error_t on_option(int key, char *value, struct argp_state *state)
{
    struct flags *flags = state->input;
    if (key == FLAG_CONFIG) {
        flags->path = value;
        return 0;
    }
    if (key == ARGP_KEY_ARG)
        argp_error(state, "'%s' is not a flag", value);
    if (key < FLAG_FIRST || key >= FLAG_FIRST + SETTING_COUNT)
        return ARGP_ERR_UNKNOWN;
    struct setting *setting = &flags->out->of[key - FLAG_FIRST];
    if (key == FLAG_FIRST + SETTING_DROP_TABLE && setting->text != NULL)
        return add_value(setting, value);
    free(setting->text);
    setting->text = strdup(value != NULL ? value : "yes");
    return setting->text != NULL ? 0 : ENOMEM;
}

static const char *heading_of(enum setting_id id)
{
    for (size_t i = 0; i < HEADINGS; i++)
        if (headings[i].first == id)
            return headings[i].text;
    return NULL;
}

static void list_options(struct flags *flags)
{
    static const struct argp_option config = {
        .name = "config",
        .key = FLAG_CONFIG,
        .arg = "FILE",
        .doc = "Read settings and the cluster's servers from this YAML file"};
    struct argp_option *option = flags->options;
    for (int i = 0; i < SETTING_COUNT; i++) {
        const struct setting_kind *kind = &setting_kinds[i];
        const char *heading = heading_of((enum setting_id)i);
        if (heading != NULL)
            *option++ = (struct argp_option){.doc = heading};
        if (i == SETTING_SERVER)
            *option++ = config;
        if ((kind->where & IN_FLAGS) == 0)
            continue;
        snprintf(flags->names[i], sizeof flags->names[i], "%s", kind->key);
        for (char *c = flags->names[i]; *c != '\0'; c++)
            *c = *c == '_' ? '-' : *c;
        *option++ = (struct argp_option){
            .name = flags->names[i], .key = FLAG_FIRST + i, .arg = kind->value, .doc = kind->help};
    }
}

int settings_flags_read(int argc, char **argv, struct settings *out, const char **path_out,
                        struct embd__error *e)
{
    struct flags flags = {.out = out};
    list_options(&flags);
    struct argp argp = {.options = flags.options, .parser = on_option, .doc = doc};
    /* a note on short options, which does not help */
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    argp_program_version = "embd " EMBD_VERSION;
    argp_err_exit_status = 2;
    memset(out, 0, sizeof *out);
    if (argp_parse(&argp, argc, argv, 0, NULL, &flags) != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
    *path_out = flags.path;
    return EMBD_OK;
}
