#!/bin/sh
# usage: compile_arithmetic.sh SOURCE_DIR - compiles arithmetic.cu for two generations of GPUs; 77 where there is no
# nvcc, which ctest shows as skipped. nvcc is looked for in PATH and in CUDA's usual place.
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
if ! command -v nvcc >/dev/null; then
    echo "skipped: no nvcc on this machine"
    exit 77
fi
object=$(mktemp) || exit 1
trap 'rm -f "$object"' EXIT
for arch in sm_80 sm_90; do
    nvcc -std=c++17 -fmad=false -arch=$arch -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion \
        -I"$1" -I"$1/include" -c "$1/tests/store/arithmetic.cu" -o "$object" || exit 1
done
