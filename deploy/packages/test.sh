#!/bin/bash
# Uses the packages that deploy/packages/build.sh made as another project would: deploy/packages/test.sh FOLDER
# They are unpacked into a root of their own, and nothing is installed. The README example is built against that root by
# CMake package and by pkg-config, and run against the packaged server; embctl, man pages and the Python package are
# looked at. Prints a line for each; exit status 1 when one fails.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
SOURCE=$PWD
packages=$(realpath "$1")
WORK=$(mktemp -d "${TMPDIR:-/tmp}/embd-packages.XXXXXX")
. deploy/servers.sh
trap 'stop_servers >/dev/null 2>&1; rm -rf "$WORK"' EXIT
root=$WORK/root
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
lib=$root/usr/lib/$multiarch

say() { printf 'ok       %s\n' "$1"; }
field() { dpkg-deb -f "$packages/$1"_*.deb "$2"; }

for deb in "$packages"/*.deb; do
    dpkg-deb -x "$deb" "$root"
done
version=$(field libembd0.2 Version)
[ "$(field libembd-dev Depends)" = "libembd0.2 (= $version), libembd-data0.2 (= $version), libembd-hugectr0.2 (= $version)" ]
field libembd0.2 Depends | grep -q 'libc6 .*libuv1'
field embd Depends | grep -q libyaml
[ -z "$(field embd Depends | grep -o libembd0.2 || true)" ]
say "packages name what they depend on"

# What leaves a library is its API, under its version: abidiff and dpkg-gensymbols can follow it. libembd has a door for
# libembd-hugectr of the same release as well.
exports() { # LIBRARY PATTERN: nothing else leaves it, and something does
    nm -D --defined-only "$lib/lib$1.so.0.2" | awk -v name="^($2)\$" '
        $2 == "A" {next} {n++} $3 !~ name {print; bad = 1} END {exit bad || !n}'
}
exports embd "embd_[a-z0-9_]*@@EMBD_0.2|(embd__copy_[a-z_]*|embd__error_keep)@@EMBD_PRIVATE_[0-9.]*"
exports embd-data "embd_(csr|reader|writer)_[a-z_]*@@EMBD_DATA_0.2"
exports embd-hugectr "embd_(hugectr|arrays)_[a-z_]*@@EMBD_HUGECTR_0.2"
exports embd-inproc "embd__inproc_library"
say "each library exports its own part of the API and nothing else"

cmake -S tests/install -B "$WORK/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$root/usr" \
    -DCMAKE_BUILD_RPATH="$lib" -DEXAMPLE="$SOURCE/client/examples/readme.c" >/dev/null
ninja -C "$WORK/consumer" >/dev/null
# shellcheck disable=SC2046
PKG_CONFIG_PATH=$lib/pkgconfig cc -std=c11 -Wall -Werror client/examples/readme.c -o "$WORK/consumer-pc" \
    $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs embd) -Wl,-rpath,"$lib"
say "the README example builds by CMake package and by pkg-config"
ldd "$WORK/consumer-pc" >"$WORK/needs"
! grep -q 'libembd-' "$WORK/needs"
ldd "$WORK/consumer/consumer-all" >"$WORK/needs"
grep -q "libembd-data.so.0.2 => $lib" "$WORK/needs"
grep -q "libembd-hugectr.so.0.2 => $lib" "$WORK/needs"
printf '#include <embd/data.h>\n#include <embd/hugectr.h>\n#include <stddef.h>\nint main(void) { embd_csr_free(NULL); return embd_hugectr_is_folder("/"); }\n' >"$WORK/all.c"
# shellcheck disable=SC2046
PKG_CONFIG_PATH=$lib/pkgconfig cc -std=c11 -Wall "$WORK/all.c" -o "$WORK/all" \
    $(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs embd-data embd-hugectr) -Wl,-rpath,"$lib"
LD_LIBRARY_PATH=$lib "$WORK/all"
say "a program gets libembd-data and libembd-hugectr where it asks for them, and only there"

export LD_LIBRARY_PATH=$lib
EMBD_BIN=$root/usr/sbin # start_server's
export EMBD_BIN
start_server packaged --listen 127.0.0.1:0 --shards 2 --http off --admin-dir "$WORK/admin"
address=$(server_address packaged)
"$root/usr/bin/embctl" -s "$address" wait --ready --timeout 10
for program in "$WORK/consumer/consumer" "$WORK/consumer-pc"; do
    [ "$("$program" "$address" | wc -l)" = 2 ]
done
"$root/usr/bin/embctl" -s "$address" table list >"$WORK/tables"
grep -q '^[a-z]' "$WORK/tables"
say "both run against the packaged server, and embctl sees their table"
[ "$("$WORK/consumer-pc" "inproc:$WORK/tables-of-one" | wc -l)" = 2 ]
[ -e "$WORK/tables-of-one/identity.json" ]
say "a program has the packaged server in its own process, where it asks for inproc:"

if [ -d "$root/usr/lib/python3/dist-packages/embd" ]; then
    PYTHONPATH=$root/usr/lib/python3/dist-packages /usr/bin/python3 -B -c \
        "import embd, sys; embd.connect(sys.argv[1]); print(embd.__file__)" "$address" | grep -q "^$root/"
    say "the Python package connects"
fi
stop_server packaged
say "the packaged server stops with status 0 on SIGTERM"

for unit in embd.service embd@.service; do
    program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$root/usr/lib/systemd/system/$unit")
    [ -x "$root$program" ]
done
say "the units start the packaged server"

if [ -d "$root/usr/share/man" ]; then
    for page in man1/embctl.1 man1/embd-bench.1 man8/embd.8; do
        zcat "$root/usr/share/man/$page.gz" >"$WORK/page" # whole: a pipe that grep leaves early would count as failed
        grep -q '^.SH SEE ALSO' "$WORK/page"
    done
    zcat "$root/usr/share/man/man1/embctl.1.gz" >"$WORK/page"
    grep -q 'embctl shard drain' "$WORK/page"
    pages=$(find "$root/usr/share/man/man3" -name 'embd_*.3.gz' | wc -l)
    [ "$pages" -gt 60 ]
    zcat "$root/usr/share/man/man3/embd_pull.3.gz" >"$WORK/page"
    grep -q '^.SH "ERRORS"' "$WORK/page"
    zcat "$root/usr/share/man/man5/embd.yaml.5.gz" "$root/usr/share/man/man7/embd.7.gz" >"$WORK/page"
    grep -q 'journal_limit' "$WORK/page"
    say "man pages are there, $pages of them about functions"
else
    printf 'skipped  man pages: scdoc was not installed\n'
fi
bash -n "$root/usr/share/bash-completion/completions/embctl"
say "the completion script is sound"
