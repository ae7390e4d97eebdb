#!/bin/bash
# Tries the wheel of client/python/make-wheel where nothing of embd's is installed: try_wheel.sh [FOLDER]
# A root with Debian's python3, numpy and cffi alone is made with mmdebstrap; a Python in it pulls and pushes at a server of
# $EMBD_BIN. Needs root, mmdebstrap, auditwheel (deploy/deps.sh --tools) and Debian's archive; exit status 77 without the first
# three. The folder keeps the root for the next time.
set -eu -o pipefail
tree=$(realpath "$(dirname "$0")/../..")
bin=$(realpath "${EMBD_BIN:-$tree/build/release/bin}")
PATH=$PATH:${XDG_CACHE_HOME:-$HOME/.cache}/embd/tools/bin
for tool in mmdebstrap auditwheel; do
    command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
folder=$(realpath -m "${1:-$tree/build/wheel}")
mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXXXX")
server=""
trap 'if [ -n "$server" ]; then kill "$server"; wait "$server" || true; fi; rm -rf "$work"' EXIT

say() { printf 'ok       %s\n' "$1"; }

[ -e "$folder/base.tar" ] || mmdebstrap --quiet --variant=minbase --include=python3,python3-numpy,python3-cffi bookworm \
    "$folder/base.tar"
mkdir "$work/root"
tar -x -C "$work/root" -f "$folder/base.tar"
for library in libuv libmsgpack libjansson; do
    ! find "$work/root/usr/lib" -name "$library*" | grep -q . || { echo "the root has $library"; exit 1; }
done
say "a root with Python alone"

wheel=$("$tree/client/python/make-wheel" "$work/wheels" | tail -1)
case $wheel in *-manylinux_*) ;; *) echo "$wheel is not for manylinux"; exit 1 ;; esac
python3 -m zipfile -e "$wheel" "$work/root/opt/embd"
say "$(basename "$wheel") lies in it"

"$bin/embd" --listen 127.0.0.1:0 --http off --admin-dir "$work/admin" --ready-fd 3 3>"$work/ready" >"$work/said" 2>"$work/log" &
server=$!
for _ in $(seq 300); do grep -q ready "$work/ready" && break; sleep 0.1; done
address=$(sed -n 's/.*listening on //p' "$work/said")
chroot "$work/root" /usr/bin/env -i PYTHONPATH=/opt/embd python3 -c '
import sys, embd, numpy as np
client = embd.connect(sys.argv[1])
table = client.create_table("t", 2, initializer=embd.Initializer("constant", 1), optimizer=embd.Optimizer("sgd", lr=0.5))
table.push([1, 2], np.ones((2, 2), np.float32))
assert table.pull([1, 3]).tolist() == [[0.5, 0.5], [1, 1]], table.pull([1, 3])
print(embd.__version__, embd.__file__)' "$address"
say "it pulls and pushes"
