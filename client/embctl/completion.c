/* completion.c - embctl completion: what a shell needs to complete commands, options and tables.
 *
 * Names of commands come from the list in main.c when the script is made, options from --help when
 * they are completed, tables from the cluster: so nothing is written down twice. */
#include <stdio.h>
#include <string.h>

#include "client/embctl/embctl.h"

static void print_words(const struct command *group)
{
    for (const struct command *c = group; c->name; c++)
        printf("%s%s", c == group ? "" : " ", c->name);
}

static void print_bash(const struct command *commands)
{
    printf("# bash completion of embctl; in ~/.bashrc: source <(embctl completion bash)\n"
           "_embctl() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} i word words=() at\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        word=${COMP_WORDS[i]}\n"
           "        case $word in\n"
           "        -s | --servers | -o | --output | --deadline) ((i++)) ;;\n"
           "        -*) ;;\n"
           "        *) words+=(\"$word\") ;;\n"
           "        esac\n"
           "    done\n"
           "    if [[ $cur == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$(embctl \"${words[@]:0:2}\" --help 2>/dev/null |\n"
           "            grep -oE -- '--[a-z][a-z-]*' | sort -u)\" -- \"$cur\"))\n"
           "        return\n"
           "    fi\n"
           "    at=${words[*]}\n"
           "    case $at in\n"
           "    \"\") COMPREPLY=($(compgen -W \"");
    print_words(commands);
    printf("\" -- \"$cur\")) ;;\n");
    for (const struct command *c = commands; c->name; c++) {
        if (!c->group)
            continue;
        printf("    %s) COMPREPLY=($(compgen -W \"", c->name);
        print_words(c->group);
        printf("\" -- \"$cur\")) ;;\n");
    }
    printf(
        "    completion) COMPREPLY=($(compgen -W \"bash zsh\" -- \"$cur\")) ;;\n"
        "    hot | get | \"table stats\" | \"table describe\" | \"table set\" | \"table drop\")\n"
        "        COMPREPLY=($(compgen -W \"$(embctl table list --deadline 1 2>/dev/null |\n"
        "            awk 'NR > 1 {print $1}')\" -- \"$cur\")) ;;\n"
        "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
        "    esac\n"
        "}\n"
        "complete -F _embctl embctl\n");
}

/* zsh runs bash's function. */
static void print_zsh(const struct command *commands)
{
    printf("#compdef embctl\n"
           "# zsh completion of embctl; in ~/.zshrc: source <(embctl completion zsh)\n"
           "autoload -U +X bashcompinit && bashcompinit\n");
    print_bash(commands);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_ARG && strcmp(arg, "bash") && strcmp(arg, "zsh"))
        argp_error(state, "unknown shell '%s'; expected bash or zsh", arg);
    return parse_words(key, arg, state);
}

int command_completion(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "bash|zsh",
        .doc = "Prints a script that completes commands, options and names of tables in a "
               "shell.\v"
               "Examples:\n"
               "  source <(embctl completion bash)\n"
               "  embctl completion zsh > ~/.zfunc/_embctl"};
    struct words words = {.min = 1, .max = 1, .wanted = "name a shell: bash or zsh"};
    parse_command(&argp, argc, argv, &words);
    strcmp(words.list[0], "bash") ? print_zsh(globals.commands) : print_bash(globals.commands);
    return EXIT_DONE;
}
