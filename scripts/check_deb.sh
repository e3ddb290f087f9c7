#!/bin/sh
# Installs a build's Debian packages on a bare Debian 12 (debootstrap's minbase)
# and uses them there: the programs first, with nothing but what they depend on,
# then a compiler, libsluice-dev, an example and README's program.
#
#   check_deb.sh [BUILD]   the build, with everything built (build/release)
#
# Needs root, debootstrap and a mirror of Debian's (MIRROR); says in one line
# which of them it lacks and does nothing then. Not part of .ci/run.
set -eu
cd "$(dirname "$0")/.."
build=${1-build/release}
mirror=${MIRROR-http://deb.debian.org/debian}

skip() {
  echo "check_deb: skipped: $*"
  exit 0
}
[ "$(id -u)" -eq 0 ] || skip "not run as root"
command -v debootstrap >/dev/null || skip "no debootstrap (Debian's package)"
work=$(mktemp -d)
root=$work/root
clean() {
  umount "$root/proc" 2>/dev/null || :
  rm -rf --one-file-system "$work"
}
trap clean EXIT
debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/log" 2>&1 || {
  tail -n 5 "$work/log" >&2
  skip "no Debian 12 from $mirror"
}

(cd "$build" && cpack -G DEB -B "$work/packages" >"$work/log") || {
  cat "$work/log" >&2
  exit 1
}
mkdir "$root/packages"
cp "$work"/packages/*.deb "$root/packages/"
cp -r tests/package "$root/package"
mkdir -p "$root/tests/apps"
cp tests/apps/readme_mnist.cc "$root/tests/apps/"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || :
mount -t proc proc "$root/proc" 2>/dev/null || : # fewer facts for the doctor

# With nothing of this system's environment but a proxy.
inside() {
  echo "+ $*"
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@"
}
quietly() {
  inside "$@" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
  }
}
install="apt-get install -y --no-install-recommends"
quietly apt-get update
# shellcheck disable=SC2086  # words
quietly $install "/packages/$(basename "$root"/packages/sluice_*.deb)"
inside mnist --help >"$work/log"
inside sluice doctor
inside mnist train --model softmax --steps 20 --log-dir /run1 --json |
  tail -n 1 | grep '"test_accuracy"'

# shellcheck disable=SC2086
quietly $install g++ cmake make \
  "/packages/$(basename "$root"/packages/libsluice-dev_*.deb)"
quietly cmake -S /package/consumer_shared -B /consumer -D SLUICE_TESTS=/tests
quietly cmake --build /consumer
inside /consumer/consumer
inside /consumer/program --help >"$work/log"
echo "check_deb: both packages work on a bare Debian 12"
