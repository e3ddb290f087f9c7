#!/bin/sh
# Installs a build's Debian packages on a bare Debian 12 (debootstrap's minbase)
# and uses them there: the programs first, with nothing but what they depend on,
# then a compiler, libsluice-dev, an example and README's program.
#
#   check_deb.sh [BUILD]   the build, with everything built (build/release)
#
# Where there can be none (bare_debian.sh) it says so and does nothing. Not part
# of .ci/run.
set -eu
cd "$(dirname "$0")/.."
build=${1-build/release}
. scripts/bare_debian.sh
# shellcheck disable=SC2119  # it gets options, not the script's words
bare_debian

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

# With nothing of this system's environment but a proxy.
tell() {
  echo "+ $*"
  inside DEBIAN_FRONTEND=noninteractive \
    ${http_proxy:+http_proxy="$http_proxy"} "$@"
}
quietly() {
  tell "$@" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    exit 1
  }
}
install="apt-get install -y --no-install-recommends"
quietly apt-get update
# shellcheck disable=SC2086  # words
quietly $install "/packages/$(basename "$root"/packages/sluice_*.deb)"
tell mnist --help >"$work/log"
tell sluice doctor
tell mnist train --model softmax --steps 20 --log-dir /run1 --json |
  tail -n 1 | grep '"test_accuracy"'

# shellcheck disable=SC2086
quietly $install g++ cmake make \
  "/packages/$(basename "$root"/packages/libsluice-dev_*.deb)"
quietly cmake -S /package/consumer_shared -B /consumer -D SLUICE_TESTS=/tests
quietly cmake --build /consumer
tell /consumer/consumer
tell /consumer/program --help >"$work/log"
echo "check_deb: both packages work on a bare Debian 12"
