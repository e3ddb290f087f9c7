#!/bin/sh
# Fails if libsluice_cuda.so holds a second copy of the engine: what it uses of
# it must be undefined there, and found in libsluice.so when it is loaded. Two
# copies would have two op tables, two kernel tables and two sets of threads.
#
# usage: scripts/check_module_symbols.sh LIBSLUICE_CUDA.SO LIBSLUICE.SO
set -eu

module=${1:?usage: $0 LIBSLUICE_CUDA.SO LIBSLUICE.SO}
engine=${2:?usage: $0 LIBSLUICE_CUDA.SO LIBSLUICE.SO}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "check_module_symbols: $*" >&2
  exit 1
}

# Strong symbols alone: weak ones are inline functions and instances of
# templates, of which every library may have its own.
names() {
  awk '$2 ~ /^[TDBR]$/ { print $3 }' | sed 's/@.*//' | LC_ALL=C sort -u
}
nm -D --defined-only "$module" | names >"$work/shown"
[ "$(cat "$work/shown")" = sluice_module_load ] ||
  fail "$module shows more than sluice_module_load: $(head -n 5 "$work/shown")"

nm -D --undefined-only "$module" | awk '{ print $NF }' | sed 's/@.*//' |
  LC_ALL=C sort -u >"$work/used"
nm -D --defined-only "$engine" | names | grep '^_ZN\(K\|\)6sluice' \
  >"$work/engine"
LC_ALL=C comm -12 "$work/used" "$work/engine" | grep -q . ||
  fail "$module takes nothing from $engine"

# Hidden ones too, which only the symbol table names, local in a linked library.
nm "$module" 2>/dev/null | awk '$2 ~ /^[TtDdBbRr]$/ { print $3 }' |
  LC_ALL=C sort -u >"$work/held"
LC_ALL=C comm -12 "$work/held" "$work/engine" >"$work/twice"
[ ! -s "$work/twice" ] ||
  fail "$module has its own: $(head -n 5 "$work/twice" | c++filt)"
