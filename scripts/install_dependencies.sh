#!/bin/sh
# Installs what Sluice needs on Debian 12, as root or through sudo. Does nothing,
# quickly, where everything is there already.
#
#   install_dependencies.sh             to build everything and run the tests
#   install_dependencies.sh --minimal   the required libraries only
#   install_dependencies.sh --ci        also the tools that .ci/run uses
set -eu

required="g++ cmake ninja-build libeigen3-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev zlib1g-dev"
optional="protobuf-compiler libprotobuf-dev libpng-dev
  libdnnl-dev libjpeg62-turbo-dev libcurl4-openssl-dev libssl-dev
  libexpat1-dev doctest-dev"
tools="git clang-16 clang-tidy-16 libclang-rt-16-dev clang-format
  python3-torch python3-torchvision python3-numpy python3-onnx
  python3-botocore
  openssh-client openssh-server openssl iproute2 openmpi-bin libopenmpi-dev"

case "${1-}" in
  "") wanted="$required $optional" ;;
  --minimal) wanted="$required" ;;
  --ci) wanted="$required $optional $tools" ;;
  *)
    echo "usage: $0 [--minimal | --ci]" >&2
    exit 2
    ;;
esac

missing=""
for package in $wanted; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) ||
    state=absent
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: run as root, or install sudo; missing packages:$missing" >&2
    exit 1
  fi
  sudo=sudo
fi
echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086  # one word per package
$sudo apt-get install -y -qq --no-install-recommends $missing
