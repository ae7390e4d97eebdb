#!/usr/bin/env bash
# Shows embd end to end, README command 1: builds it, starts a cluster of two processes with two shards each,
# trains a factorization machine on the package graph of this machine's Debian or Ubuntu archive, dumps the
# tables, loads them into a cluster of three shards and measures again: the same to the last digit.
#
#   deploy/demo.sh [--keep] [-- FLAGS OF package_samples.py]
#
#   --keep   leave the folder with configuration, logs, samples and the dump, and say where it is
#
# Listens on free ports of 127.0.0.1 only, and stops everything it started. About a minute on two cores.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit
ROOT=$PWD

keep=no
if [ "${1:-}" = --keep ]; then
    keep=yes
    shift
fi
case ${1:-} in
"") ;;
--) shift ;;
--help | -h)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
*)
    echo "demo: '$1' is not understood; see deploy/demo.sh --help" >&2
    exit 2
    ;;
esac

WORK=$(mktemp -d "${TMPDIR:-/tmp}/embd-demo.XXXXXX") || exit 1
EMBD_BIN=$ROOT/build/release/bin
sampling=
. deploy/servers.sh

finish() {
    local status=$?
    [ -z "$sampling" ] || kill "$sampling" 2>/dev/null
    stop_servers || status=1
    if [ $keep = yes ]; then
        echo "kept: $WORK"
    else
        rm -rf "$WORK"
    fi
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

title() { printf '\n== %s\n' "$*"; }

die() { # SENTENCE [LOG]
    printf 'demo: %s\n' "$1" >&2
    [ $# -lt 2 ] || tail -n 30 "$2" | sed 's/^/    | /' >&2
    exit 1
}

# quietly LOG COMMAND...: shows nothing unless it fails.
quietly() {
    local log=$WORK/$1.log
    shift
    "$@" >"$log" 2>&1 </dev/null || die "failed: $*" "$log"
}

# ---- a cluster from one configuration file ------------------------------------------------------

# write_config FILE BASE SHARDS...: a server for each number of shards, on consecutive ports.
write_config() {
    local file=$1 port=$2 shards
    shift 2
    {
        echo "admin_dir: $WORK/admin"
        echo "cluster:"
        echo "  name: demo"
        echo "  servers:"
        for shards in "$@"; do
            echo "    - {listen: \"127.0.0.1:$port\", shards: $shards}"
            port=$((port + shards))
        done
    } >"$file"
}

# start_cluster NAME SHARDS...: looks for free ports by trying; embd ends with 3 when it cannot bind. Sets
# `servers` to the address of the first shard.
start_cluster() {
    local name=$1 attempt base process status
    shift
    for attempt in {1..20}; do
        base=$((20000 + RANDOM % 12000))
        write_config "$WORK/$name.yaml" $base "$@"
        status=0
        for ((process = 0; process < $#; process++)); do
            start_server "$name-$process" --config "$WORK/$name.yaml" --server "$process"
            status=$?
            [ $status = 0 ] || break
        done
        if [ $status = 0 ]; then
            servers=$(server_address "$name-0")
            return
        fi
        stop_servers
        [ $status = 3 ] || die "embd did not start (status $status)" "$WORK/$name-$process.log"
    done
    die "no free ports after $attempt attempts" "$WORK/$name-$process.log"
}

# With kernels for GPUs only where there is one, or where the folder was configured so before.
configure() {
    local cuda=()
    [ -e build/release/CMakeCache.txt ] || nvidia-smi -L >/dev/null 2>&1 || cuda=(-DEMBD_CUDA=OFF)
    cmake --preset release -DEMBD_TESTS=OFF "${cuda[@]}"
}

example() { EMBD_SERVERS=$servers "$EMBD_BIN/embd-example-fm" "$WORK/samples" "$@"; }

embctl() { "$EMBD_BIN/embctl" --servers "$servers" "$@" || die "embctl $1 failed"; }

# The line with all digits.
measured() { grep '^held out: .* AUC ' "$1" | tail -n 1; }

# ---- the steps ----------------------------------------------------------------------------------

title "1. dependencies and build"
deploy/deps.sh || die "deploy/deps.sh failed"
python3 client/examples/package_samples.py "$WORK/samples" "$@" >"$WORK/samples.log" 2>&1 &
sampling=$!
quietly configure configure
quietly build ninja -C build/release embd-server embctl embd-example-fm
echo "built in $SECONDS s: $EMBD_BIN"
wait "$sampling" || die "client/examples/package_samples.py failed" "$WORK/samples.log"

title "2. a cluster: 2 processes, 2 shards each"
start_cluster four 2 2
cat "$WORK/four.yaml"
embctl cluster

title "3. training: does package A depend on package B?"
cat "$WORK/samples.log"
example | tee "$WORK/train.out" || die "training failed"

title "4. what the servers say"
embctl stats

title "5. dump and verify"
embctl dump --all "$WORK/dump"
embctl verify "$WORK/dump"
first=$servers
stop_servers || die "a server did not stop cleanly"
echo "stopped the cluster of four shards ($first)"

title "6. another cluster: 1 process, 3 shards; load"
start_cluster three 3
embctl load "$WORK/dump"
embctl cluster

title "7. the same model on three shards"
example --eval-only | tee "$WORK/again.out" || die "evaluating failed"
stop_servers || die "a server did not stop cleanly"

before=$(measured "$WORK/train.out")
after=$(measured "$WORK/again.out")
[ -n "$before" ] || die "training printed no result"
if [ "$before" != "$after" ]; then
    die "the results differ: '$before' on four shards, '$after' on three"
fi
title "done in $SECONDS s: the same on four shards and on three, to the last digit"
echo "$after"
