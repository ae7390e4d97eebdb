#!/usr/bin/env bash
# shellcheck disable=SC2317 # step calls its functions by name
# Builds and checks everything: README command 2, and what .ci/run runs.
#
#   deploy/check.sh           all of it, some 27 minutes on two cores
#   deploy/check.sh --quick   optimized build and its tests only, but for long ones and those that inject faults: 10 minutes
#
# Each step prints one line; a step that fails prints the end of its log. The last line counts the tests of all
# suites and the steps around them. Exit status: 0 if nothing failed, 1 if something did, 2 for a wrong flag.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit
ROOT=$PWD

quick=no
case ${1:-} in
"") ;;
--quick) quick=yes ;;
--help | -h)
    sed -n '3,9s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
*)
    echo "check: '$1' is not understood; the one flag is --quick" >&2
    exit 2
    ;;
esac

WORK=$(mktemp -d "${TMPDIR:-/tmp}/embd-check.XXXXXX") || exit 1
EMBD_BIN=$ROOT/build/ci/bin
passed=0
failed=0
skipped=0
declare -A building=()
ctest=(ctest)
. deploy/servers.sh

finish() {
    stop_servers >/dev/null 2>&1
    if [ ${#building[@]} != 0 ]; then
        kill "${building[@]}" 2>/dev/null
        wait "${building[@]}"
    fi
    rm -rf "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

say() { printf '%-8s %s\n' "$1" "$2"; }

fail() { # TITLE LOG
    failed=$((failed + 1))
    say FAILED "$1"
    sed 's/^/    | /' "$2" | tail -n 40
}

pass() {
    passed=$((passed + 1))
    say ok "$1"
}

# step TITLE COMMAND...: counts one.
step() {
    local title=$1 log=$WORK/step.log start=$SECONDS
    shift
    if "$@" >"$log" 2>&1 </dev/null; then
        pass "$title ($((SECONDS - start)) s)"
    else
        fail "$title" "$log"
        return 1
    fi
}

# The number of an attribute of the first element of a JUnit file.
junit() { sed -n '2,12s/.*\b'"$2"'="\([0-9]*\)".*/\1/p' "$1" | head -n 1; }

# What the failed tests of a ctest log printed, at most 60 lines of each.
failures() {
    awk '/^ *[0-9]+\/[0-9]+ Test +#/ { shown = /\*\*\*/ && !/Skipped/ ? 60 : 0 }
         /^ +Start +[0-9]+: / { next }
         shown > 0 && NF { print "    | " $0; shown-- }' "$1"
}

# suite TITLE FOLDER CTEST-ARG...: counts each test of a build folder. Two thirds of the time that tests take is waiting: so six run
# on two cores; those that need it to themselves say how many PROCESSORS they are.
suite() {
    local title=$1 folder=$2 log=$WORK/ctest.log report=$WORK/ctest.xml start=$SECONDS n bad off
    shift 2
    rm -f "$report"
    "${ctest[@]}" --test-dir "$folder" --output-on-failure -j6 --no-tests=error --output-junit "$report" "$@" \
        >"$log" 2>&1 </dev/null
    local status=$?
    n=$(junit "$report" tests 2>/dev/null)
    bad=$(junit "$report" failures 2>/dev/null)
    off=$(($(junit "$report" skipped 2>/dev/null || echo 0) + $(junit "$report" disabled 2>/dev/null || echo 0)))
    if [ -z "$n" ] || [ -z "$bad" ] || { [ $status != 0 ] && [ "$bad" = 0 ]; }; then
        fail "$title" "$log"
        return 1
    fi
    passed=$((passed + n - bad - off))
    failed=$((failed + bad))
    skipped=$((skipped + off))
    if [ "$bad" = 0 ]; then
        say ok "$title: $((n - off)) tests ($((SECONDS - start)) s)"
    else
        say FAILED "$title: $bad of $n tests"
        failures "$log"
        return 1
    fi
}

# configure_and_build PRESET [TARGET...]
configure_and_build() {
    local preset=$1
    shift
    cmake --preset "$preset" -DEMBD_TESTS=ON && ninja -C "build/$preset" "$@"
}

# build_ahead PRESET [TARGET...]: with the processor time that tests leave while they wait. step_built TITLE PRESET waits for it.
build_ahead() {
    local preset=$1
    shift
    (
        renice -n 19 "$BASHPID"
        cmake --preset "$preset" -DEMBD_TESTS=ON && exec ninja -C "build/$preset" "$@"
    ) >"$WORK/$preset.log" 2>&1 </dev/null &
    building[$preset]=$!
}

wait_for_build() { # PRESET
    wait "${building[$1]}"
    local status=$?
    unset "building[$1]"
    cat "$WORK/$1.log"
    return "$status"
}

step_built() { step "$1" wait_for_build "$2"; }

# ThreadSanitizer of gcc 12 cannot live with the address randomization of newer kernels.
fix_addresses() {
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        ctest=(setarch "$(uname -m)" -R ctest)
    fi
}

# The README example as another project would build it: by CMake package, and by pkg-config.
consumer_by_cmake() {
    cmake -S tests/install -B "$WORK/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$WORK/prefix" \
        -DEXAMPLE="$ROOT/client/examples/readme.c" && ninja -C "$WORK/consumer"
}

consumer_by_pkg_config() {
    local lib
    lib=$(dirname "$(find "$WORK/prefix" -name embd.pc)")
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Werror client/examples/readme.c -o "$WORK/consumer-pc" \
        $(PKG_CONFIG_PATH=$lib pkg-config --cflags --libs embd) -Wl,-rpath,"$(dirname "$lib")"
}

# Both print the two pooled rows that the example pulls.
consumers_run() {
    local address program
    address=$(server_address installed)
    for program in "$WORK/consumer/consumer" "$WORK/consumer-pc"; do
        "$program" "$address" >"$WORK/consumer.out" || return 1
        cat "$WORK/consumer.out"
        [ "$(wc -l <"$WORK/consumer.out")" = 2 ] || return 1
    done
}

start_installed() {
    EMBD_BIN=$(dirname "$(find "$WORK/prefix" -name embd -type f -perm -u+x | head -n 1)")
    start_server installed --listen 127.0.0.1:0 --shards 2 --admin-dir "$WORK/admin"
}

check_install() {
    step "installs under a prefix" cmake --install build/ci --prefix "$WORK/prefix" || return
    step "the README example builds by CMake package" consumer_by_cmake || return
    step "the README example builds by pkg-config" consumer_by_pkg_config || return
    if start_installed >"$WORK/start.log" 2>&1; then
        pass "the installed server starts"
        step "the README example runs" consumers_run
        if stop_server installed >"$WORK/stop.log" 2>&1; then
            pass "the installed server stops with status 0 on SIGTERM"
        else
            fail "the installed server stops with status 0 on SIGTERM" "$WORK/installed.log"
        fi
    else
        fail "the installed server starts" "$WORK/installed.log"
    fi
}

conclude() {
    local tail=""
    [ $skipped = 0 ] || tail=", $skipped skipped"
    echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
    echo "$passed passed, $failed failed$tail"
    [ $failed = 0 ]
    exit $?
}

step "dependencies" deploy/deps.sh || conclude
[ $quick = yes ] || deploy/deps.sh --tools >/dev/null 2>&1 ||
    say skipped "checks whose tools cannot be had: see deploy/deps.sh --tools"
if [ $quick = yes ]; then
    step "build" configure_and_build release &&
        suite "tests, without long ones" build/release -LE '^(long|slow|foreign|fault|history|game-days)$'
    conclude
fi
step "build, warnings are errors" configure_and_build ci
ci=$?
build_ahead asan
[ $ci != 0 ] || suite "tests" build/ci

export UBSAN_OPTIONS=print_stacktrace=1
check_install
step "Debian packages, without an error or warning of lintian" deploy/packages/build.sh --from build/ci &&
    step "the packages are used by another project" deploy/packages/test.sh build/ci
step_built "build with address and undefined-behaviour sanitizers" asan
asan=$?
build_ahead tsan embd-server tests/client/all
build_ahead fuzz tests/fuzz/all
[ $asan != 0 ] || suite "tests under both sanitizers, without slow ones, those of sources and programs that are not ours" \
    build/asan -LE '^(slow|style|foreign)$'
step_built "build with the thread sanitizer" tsan && fix_addresses &&
    suite "client tests under the thread sanitizer" build/tsan/tests/client
step_built "build of the fuzzers" fuzz &&
    suite "libFuzzer on each decoder, five at a time" build/fuzz/tests/fuzz -j10
conclude
