/* configuration.c - the text behind "inproc:" becomes a configuration, as config.c reads it.
 *
 *     DIR?SETTING=VALUE&...        DIR is the data directory, which is made if it is not there
 *     FILE.yaml?SETTING=VALUE&...  FILE is a configuration file of one server
 *     ?SETTING=VALUE&...           tables are kept in memory only
 *
 * %XX stands for a byte, as in other addresses. A setting here wins over the file's. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/config_values.h"
#include "server/inproc/inproc.h"

static const char place[] = "inproc"; /* where a setting stands, for errors */

/* Of the server's program alone. */
static const enum setting_id of_program[] = {SETTING_SERVER, SETTING_CHECK, SETTING_READY_FD};
/* A service reads its files again from its working directory; a trainer may change that. */
static const enum setting_id paths[] = {
    SETTING_DATA_DIR,   SETTING_ADMIN_DIR, SETTING_LOCAL_SOCKET,
    SETTING_TLS_CERT,   SETTING_TLS_KEY,   SETTING_PEER_CA,
    SETTING_PEER_TOKEN, SETTING_TOKENS,    SETTING_TLS_CLIENT_CA,
};

/* ---- the text ---- */

/* 16: not a digit. */
static unsigned digit_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;
    return at != NULL ? (unsigned)(at - digits) : 16;
}

/* In place. */
static int decode(char *text, struct embd__error *e)
{
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        unsigned high = digit_of(at[1]), low = high < 16 ? digit_of(at[2]) : 16;
        if (high > 15 || low > 15 || high + low == 0)
            return embd__error_set(e, EMBD_INVALID,
                                   "inproc: '%.60s': %% is followed by two hexadecimal digits, "
                                   "which are not 00; %%25 is the sign itself",
                                   at);
        *to++ = (char)(high * 16 + low);
        at += 2;
    }
    *to = '\0';
    return EMBD_OK;
}

static bool is_of_program(int id)
{
    for (size_t i = 0; i < sizeof of_program / sizeof *of_program; i++)
        if ((int)of_program[i] == id)
            return true;
    return false;
}

static int keep(struct settings *into, enum setting_id id, const char *value, struct embd__error *e)
{
    struct setting *setting = &into->of[id];
    if (setting->text != NULL)
        return embd__error_set(e, EMBD_INVALID, "inproc: %s is given twice", setting_kinds[id].key);
    *setting = (struct setting){.text = strdup(value), .file = place};
    return setting->text != NULL ? EMBD_OK : embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
}

static int read_option(char *option, struct settings *into, struct embd__error *e)
{
    char *value = strchr(option, '=');
    if (value == NULL)
        return embd__error_set(e, EMBD_INVALID, "inproc: '%.60s' is not SETTING=VALUE", option);
    *value++ = '\0';
    int id = setting_find(option, IN_FLAGS);
    if (id < 0 || is_of_program(id))
        return embd__error_set(e, EMBD_INVALID,
                               "inproc: unknown setting '%.60s'; expected one of embd --help, with "
                               "_ for -",
                               option);
    int status = decode(value, e);
    return status == EMBD_OK ? keep(into, (enum setting_id)id, value, e) : status;
}

static int read_options(char *options, struct settings *into, struct embd__error *e)
{
    int status = EMBD_OK;
    for (char *option; status == EMBD_OK && (option = strsep(&options, "&")) != NULL;)
        if (option[0] != '\0')
            status = read_option(option, into, e);
    return status;
}

/* ---- the path ---- */

/* Where the text names it: a trainer's first run has none. */
static int make_dir(const struct setting *dir, struct embd__error *e)
{
    if (dir->text == NULL || mkdir(dir->text, 0777) == 0 || errno == EEXIST)
        return EMBD_OK;
    return embd__error_set(e, EMBD_IO, "inproc: cannot make the data directory %.200s: %s",
                           dir->text, strerror(errno));
}

static int read_path(char *path, struct sources *from, struct embd__error *e)
{
    struct stat found;
    int status = decode(path, e);
    if (status != EMBD_OK || path[0] == '\0')
        return status;
    if (stat(path, &found) == 0 && S_ISREG(found.st_mode))
        return settings_file_read(path, &from->file, e);
    size_t bytes = strlen(path);
    bool is_file = bytes > 5 && strcmp(path + bytes - 5, ".yaml") == 0;
    if (is_file)
        return embd__error_set(e, EMBD_INVALID, "inproc: cannot open %.200s: %s", path,
                               strerror(ENOENT));
    return keep(&from->flags, SETTING_DATA_DIR, path, e);
}

/* ---- all ---- */

static int make_absolute(struct settings *settings, const char *cwd, struct embd__error *e)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct setting *at = &settings->of[paths[i]];
        bool is_word =
            at->text != NULL && (strcmp(at->text, "off") == 0 || strcmp(at->text, "system") == 0);
        char *absolute;
        if (at->text == NULL || at->text[0] == '/' || at->text[0] == '\0' || is_word)
            continue;
        if (asprintf(&absolute, "%s/%s", cwd, at->text) < 0)
            return embd__error_set(e, EMBD_NO_MEMORY, "out of memory");
        free(at->text);
        at->text = absolute;
    }
    return EMBD_OK;
}

static int make_paths_absolute(struct sources *from, struct embd__error *e)
{
    char cwd[4096];
    if (getcwd(cwd, sizeof cwd) == NULL)
        return embd__error_set(e, EMBD_IO, "inproc: the working directory: %s", strerror(errno));
    int status = make_absolute(&from->flags, cwd, e);
    if (status == EMBD_OK)
        status = make_absolute(&from->file.top, cwd, e);
    if (status == EMBD_OK && from->file.n_servers > 0)
        status = make_absolute(&from->file.servers[0], cwd, e);
    return status;
}

/* Its shards are all of the cluster's. */
static int check_alone(const struct sources *from, struct embd__error *e)
{
    if (from->file.n_servers <= 1 && from->file.top.of[SETTING_ETCD].text == NULL)
        return EMBD_OK;
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "inproc: %.200s is of a cluster with etcd or several servers; a server "
                           "in another program is alone: list one server and no etcd",
                           from->file.path);
}

static int read_sources(char *text, struct sources *from, struct embd__error *e)
{
    char *options = strchr(text, '?');
    if (options != NULL)
        *options++ = '\0';
    int status = read_path(text, from, e);
    if (status == EMBD_OK && options != NULL)
        status = read_options(options, &from->flags, e);
    if (status == EMBD_OK)
        status = check_alone(from, e);
    if (status == EMBD_OK)
        status = make_dir(&from->flags.of[SETTING_DATA_DIR], e);
    return status == EMBD_OK ? make_paths_absolute(from, e) : status;
}

int inproc_config_read(const char *text, struct config *out, struct embd__error *e)
{
    struct sources from = {.is_embedded = true};
    char *own = strdup(text);
    *out = (struct config){0};
    int status = own == NULL ? embd__error_set(e, EMBD_NO_MEMORY, "out of memory")
                             : read_sources(own, &from, e);
    if (status == EMBD_OK)
        status = config_read_from(&from, out, e);
    settings_fini(&from.flags);
    settings_file_fini(&from.file);
    free(own);
    return status;
}
