#!/bin/sh
# Fails if libsluice.so shows other names than cmake/exports.txt lists. A public
# interface that has changed is written down with --write, for a review to see.
#
# usage: scripts/check_exports.sh [--write] LIBSLUICE.SO   (of a release build
# by g++)
set -eu

write=no
if [ "${1-}" = --write ]; then
  write=yes
  shift
fi
library=${1:?usage: $0 [--write] LIBSLUICE.SO}
list=$(dirname "$0")/../cmake/exports.txt

# Weak symbols are inline functions and instances of templates, which come and
# go with a compiler's choices. Overloads share a name.
names() {
  nm -D --defined-only "$library" | awk '$2 ~ /[TDBR]/ { print $3 }' |
    sed 's/@.*//' | c++filt --no-params | sed 's/\[abi:[a-z0-9]*\]//g' |
    grep -vE '^(SLUICE_|vtable for|typeinfo|VTT for)' | LC_ALL=C sort -u
}
if [ $write = yes ]; then
  names >"$list"
elif ! names | diff "$list" - >&2; then
  echo "check_exports: libsluice.so shows (>) or misses (<) the names above; if" \
    "that is meant: scripts/check_exports.sh --write $library" >&2
  exit 1
fi
