#!/bin/sh
# Fails if an object compiled for one instruction set defines a symbol that the
# linker may merge with another file's (weak, unique or common): it could then
# run, say, AVX-512 code on a machine without it. See kernels/cpu/simd/simd.h.
#
# usage: scripts/check_isa_symbols.sh BUILD_FOLDER   (of a build without
# sanitizers, whose own symbols are weak)
set -eu

build=${1:?usage: $0 BUILD_FOLDER}
objects=$(find "$build" -path '*sluice_baseline.dir*' -name '*.o' \
               -o -path '*sluice_avx2.dir*' -name '*.o' \
               -o -path '*sluice_avx512.dir*' -name '*.o')
if [ -z "$objects" ]; then
  echo "check_isa_symbols: no vector kernels under $build; build them first" >&2
  exit 1
fi
# shellcheck disable=SC2086  # one word per object is meant
if nm --defined-only --demangle --print-file-name $objects |
    grep -E ' [WwVvuC] '; then
  echo "check_isa_symbols: the symbols above may be merged across instruction" \
    "sets; give them internal linkage" >&2
  exit 1
fi
