#!/bin/sh
# Installs what is missing, builds everything and runs the tests. Run it again
# and it only builds what changed.
#
#   test.sh [PRESET] [CTEST ARGUMENT...]   PRESET: release (default), dev, asan
#                                          or tsan
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
preset=${1:-release}
[ $# -eq 0 ] || shift
scripts/install_dependencies.sh
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset"
ctest --test-dir "build/$preset" --output-on-failure -j 2 "$@"
