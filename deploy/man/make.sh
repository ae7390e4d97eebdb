#!/bin/sh
# Man pages of the programs from their own --help, so that there is one source: deploy/man/make.sh BINARIES OUT
# Writes embctl.1, embd-bench.1 and embd.8 into OUT, gzipped as Debian wants them. Needs scdoc.
set -eu
bin=$1
out=$2
mkdir -p "$out"

# embctl's help wraps at 79 columns wherever it is run.
export COLUMNS=80 LC_ALL=C.UTF-8
unset ARGP_HELP_FMT || true

help() { "$@" --help | sed 's/^Usage: [^ ]*\/\([^ /]*\)/Usage: \1/'; }

# literal COMMAND...: its help as a literal block.
literal() {
    echo '```'
    help "$@"
    echo '```'
    echo
}

# page NAME SECTION SUMMARY: begins a page.
page() {
    version=$("$bin/$1" --version | awk '{print $NF}')
    printf '%s(%s) "" "embd %s"\n\n# NAME\n\n%s - %s\n\n' "$1" "$2" "$version" "$1" "$3"
}

# The words of every command below embctl WORDS..., one command a line.
commands() {
    "$bin/embctl" "$@" --help | sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\) .*/\1/p' | while read -r name; do
        if "$bin/embctl" "$@" "$name" --help | grep -q '^Commands:$'; then
            commands "$@" "$name"
        else
            echo "$* $name"
        fi
    done
}

see_also() { printf '# SEE ALSO\n\n%s\n' "$1"; }

{
    page embctl 1 "operate a cluster of embd servers"
    printf '# DESCRIPTION\n\n'
    literal "$bin/embctl"
    printf '# COMMANDS\n\n'
    commands | while read -r words; do
        [ "$words" = bench ] && continue
        printf '## embctl %s\n\n' "$words"
        # shellcheck disable=SC2086
        literal "$bin/embctl" $words </dev/null
    done
    printf '# ENVIRONMENT\n\n*EMBD\\_SERVERS*\n\tServers of the cluster, if --servers is not given.\n\n'
    printf '*EMBD\\_TOKEN\\_FILE*\n\tFile of mode 0600 with a token.\n\n'
    printf '*EMBD\\_TLS\\_CA*\n\tAuthorities to trust (PEM), or system: those of this machine.\n\n'
    printf '*EMBD\\_TLS\\_CERT*, *EMBD\\_TLS\\_KEY*\n\tClient certificate and its key (PEM).\n\n'
    printf '*NO\\_COLOR*\n\tIf set: no colours.\n\n'
    see_also '*embd*(8), *embd-bench*(1)'
} | scdoc >"$out/embctl.1"

{
    page embd-bench 1 "load generator for embd"
    printf '# DESCRIPTION\n\n'
    literal "$bin/embd-bench"
    see_also '*embd*(8), *embctl*(1)'
} | scdoc >"$out/embd-bench.1"

{
    page embd 8 "embedding parameter server"
    printf '# DESCRIPTION\n\n'
    literal "$bin/embd"
    printf '# HTTP\n\nThe port of --http answers GET and HEAD: / (a page for browsers), /metrics (Prometheus), /livez,\n'
    printf '/readyz and /healthz (with ?verbose a line for each shard), /statusz.json.\n\n'
    printf '# EXIT STATUS\n\n*0*\tended in order.\n\n*1*\tfailure; the last line of the log has the cause.\n\n'
    printf '*2*\twrong usage or configuration.\n\n*3*\tcannot listen on a port or socket.\n\n'
    printf '*70*\tan internal assertion failed (log event assertion_failed): a bug in embd. Report the line, then start again.\n\n'
    printf '*74*\ta sync of the journal failed, or a recorded change cannot be applied. Check the disk, then start again.\n\n'
    see_also '*embd.yaml*(5), *embctl*(1), *embd-bench*(1)'
} | scdoc >"$out/embd.8"

for page in embctl.1 embd-bench.1 embd.8; do
    gzip -9nf "$out/$page"
done
