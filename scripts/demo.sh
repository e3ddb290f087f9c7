#!/bin/sh
# Installs what is missing, builds, and trains a convolutional network on the
# embedded handwritten-like digits. Prints the accuracy on digits that the
# network has not seen. Run it again and it only trains.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
scripts/install_dependencies.sh
cmake --preset release >/dev/null
cmake --build --preset release --target mnist sluice_tool

log_dir=build/demo
result=$(build/release/bin/mnist train --model cnn --epochs 1 --restart \
  --log-dir "$log_dir" --json | tail -n 1)
field() { # prints the number of one field of the result
  printf '%s\n' "$result" | sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p"
}
accuracy=$(field test_accuracy)
seconds=$(field seconds)
if [ -z "$accuracy" ]; then
  echo "demo: mnist printed no result; its last line was: $result" >&2
  exit 1
fi
awk -v accuracy="$accuracy" -v seconds="$seconds" -v log_dir="$log_dir" 'BEGIN {
  printf "\nThe network reads %.2f %% of the held-out digits", 100 * accuracy
  printf " after %.0f seconds of training.\n", seconds
  printf "Checkpoints and TensorBoard events are in %s.\n", log_dir
  if (accuracy < 0.97) {
    print "demo: expected at least 97 %" > "/dev/stderr"
    exit 1
  }
}'
