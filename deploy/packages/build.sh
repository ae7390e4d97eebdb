#!/bin/sh
# Builds the Debian packages: deploy/packages/build.sh [BUILD-FOLDER [CMAKE-ARG...]]  (build/packages)
#       deploy/packages/build.sh --from BUILD-FOLDER: of what was built there, with CMAKE_INSTALL_PREFIX=/usr
# The .debs are in the build folder. Where lintian is installed its errors and warnings fail.
set -eu
cd "$(dirname "$0")/../.."
umask 022
build=${1:-build/packages}
if [ "$build" = --from ]; then
    build=$2
else
    [ $# -gt 0 ] && shift
    # What Debian compiles its own packages with.
    hardening="-fstack-protector-strong -D_FORTIFY_SOURCE=2"
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_INSTALL_PREFIX=/usr -DEMBD_TESTS=OFF \
        -DCMAKE_C_FLAGS="$hardening" -DCMAKE_CXX_FLAGS="$hardening" \
        -DCMAKE_EXE_LINKER_FLAGS="-pie -Wl,-z,relro,-z,now" -DCMAKE_SHARED_LINKER_FLAGS="-Wl,-z,relro,-z,now" \
        -DCMAKE_MODULE_LINKER_FLAGS="-Wl,-z,relro,-z,now" "$@"
    ninja -C "$build"
fi
(cd "$build" && rm -f ./*.deb && cpack -G DEB)
if ! command -v lintian >/dev/null; then
    echo "packages: lintian is not installed, so nobody looked at them" >&2
    exit 0
fi
# Whoever publishes packages sets EMBD_MAINTAINER; until then its address is nobody's.
tags=initial-upload-closes-no-bugs
if grep -q 'EMBD_MAINTAINER.*@localhost>' "$build/CMakeCache.txt"; then
    tags=$tags,bogus-mail-host,bogus-mail-host-in-debian-changelog
fi
lintian --allow-root --fail-on error,warning --suppress-tags "$tags" "$build"/*.deb
echo "packages: lintian has no error and no warning"
