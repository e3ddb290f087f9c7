#!/bin/sh
# Prints a folder with OpenStack Swift's servers, taken from Debian's packages
# into the user's cache: nothing is installed. Quick where that was done before.
# tests/crosscheck/run --only store --store swift runs them.
set -eu

folder=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/tools/swift
if [ ! -d "$folder" ]; then
  mkdir -p "$(dirname "$folder")"
  work=$(mktemp -d "$folder.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/packages/partial" "$work/root"
  # What of them is missing here; of these the modules and libraries.
  apt-get install --download-only --no-install-recommends -y \
    -o Dir::Cache::archives="$work/packages" -o Debug::NoLocking=1 \
    swift-proxy swift-account swift-container swift-object >&2
  for package in "$work"/packages/python3-*.deb "$work"/packages/lib*.deb; do
    dpkg -x "$package" "$work/root"
  done
  mv "$work/root" "$folder"
fi
echo "$folder"
