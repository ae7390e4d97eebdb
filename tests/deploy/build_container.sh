#!/bin/bash
# Builds the container file's target for CPUs and tries what comes out: build_container.sh [FOLDER]
# No registry is asked: the image that it begins with, debian:12, is made here with mmdebstrap. Needs root, buildah, mmdebstrap
# (deploy/deps.sh --tools), Debian's archive, 4 GB of disk and ten minutes; exit status 77 without the first three. What is
# built, and is not what git has, is not looked at. The folder keeps the base for the next time. The target for GPUs begins with
# an image of NVIDIA's, and is not tried here.
set -eu -o pipefail
cd "$(dirname "$0")/../.."
for tool in buildah mmdebstrap; do
    command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: not root"; exit 77; }
folder=$(realpath -m "${1:-build/container}")
mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXXXX")
box() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
trap 'box rm --all >/dev/null 2>&1; rm -rf "$work"' EXIT

say() { printf 'ok       %s\n' "$1"; }
inside() { box run --isolation chroot --user 7700:7700 "$image" -- "$@"; }

[ -e "$folder/base.tar" ] || mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$folder/base.tar"
base=$(box from scratch)
box add --quiet "$base" "$folder/base.tar" / >/dev/null
for name in debian:12 debian:12-slim; do
    box commit --quiet "$base" "localhost/$name" >/dev/null
done
say "a base of Debian's archive"

mkdir "$work/tree"
git ls-files -z | xargs -0 tar -c | tar -x -C "$work/tree"
box build --isolation chroot --pull-never --target cpu --tag localhost/embd --file deploy/Containerfile "$work/tree" \
    >"$folder/log" 2>&1 || { tail -40 "$folder/log"; exit 1; }
say "target cpu is built"

image=$(box from --pull-never localhost/embd)
inside /usr/sbin/embd --version
for program in cc cmake git; do
    ! inside /bin/sh -c "command -v $program" || { echo "the image has $program"; exit 1; }
done
box copy --quiet "$image" deploy/kubernetes/base/embd.yaml /etc/embd/embd.yaml >/dev/null
inside /usr/sbin/embd --config /etc/embd/embd.yaml --server embd-1 --check
say "the image has the server, which reads the configuration of Kubernetes, and nothing to build with"
inside /bin/sh -c 'embd --listen 127.0.0.1:17700 --http off --admin-dir /run/embd --data-dir /var/lib/embd &
    export EMBD_SERVERS=127.0.0.1:17700; embctl wait --ready --timeout 20 &&
    embctl table create items --dim 4 --create-on pull && embctl get items 7 && embctl snapshot first &&
    embctl verify /var/lib/embd/first && embctl drain && wait'
say "the server serves, makes a snapshot and drains, as the user it is for"
