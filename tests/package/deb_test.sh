#!/bin/sh
# usage: deb_test.sh BUILD WORK. Packs the build as Debian packages and uses what
# they hold, as it would be installed.
set -eu

build=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
(cd "$build" && cpack -G DEB -B "$work" >"$work/log") || {
  cat "$work/log" >&2
  exit 1
}
fail() {
  echo "deb_test: $*" >&2
  exit 1
}
runtime=$(ls "$work"/sluice_*.deb)
development=$(ls "$work"/libsluice-dev_*.deb)

# What it loads is depended on, and nothing that only compiling needs.
depends=$(dpkg-deb --field "$runtime" Depends)
for library in libc6 libstdc++6 libfmt9 zlib1g; do
  case ", $depends" in
    *", $library"*) ;;
    *) fail "does not depend on $library: $depends" ;;
  esac
done
case $depends in *-dev*) fail "depends on what compiling needs: $depends" ;; esac
dpkg-deb --field "$development" Depends | grep -q '^sluice (= ' ||
  fail "libsluice-dev depends on another sluice"

dpkg-deb --extract "$runtime" "$work/root"
dpkg-deb --contents "$runtime" | grep -qE '\.(a|h|cmake)$' &&
  fail "the programs' package has files for compiling"
"$work/root/usr/bin/mnist" train --model softmax --steps 2 \
  --log-dir "$work/run" --json
ldd "$work/root/usr/bin/mnist" | grep "libsluice" | grep -v "=> $work/root/" &&
  fail "another libsluice was loaded"
dpkg-deb --extract "$development" "$work/root"
test -e "$work/root/usr/include/sluice/sluice.h"
config=$(find "$work/root/usr/lib" -name sluiceConfig.cmake)
test -n "$config"

# It suggests what the static libraries want, and nothing else.
suggests=$(dpkg-deb --field "$development" Suggests)
wanted=$(sed -n 's/.*foreach(dependency \(.*\))/\1/p' "$config")
for package in fmt:libfmt-dev ZLIB:zlib1g-dev Protobuf:libprotobuf-dev \
  PNG:libpng-dev JPEG:libjpeg62-turbo-dev dnnl:libdnnl-dev \
  CURL:libcurl4-openssl-dev OpenSSL:libssl-dev EXPAT:libexpat1-dev; do
  is_wanted=no is_suggested=no
  case " $wanted " in *" ${package%:*} "*) is_wanted=yes ;; esac
  case ", $suggests," in *", ${package#*:},"*) is_suggested=yes ;; esac
  test $is_wanted = $is_suggested ||
    fail "${package%:*} is wanted: $is_wanted, suggested: $suggests"
done
