#!/bin/sh
# Unpacks the archive that scripts/package.sh made on a bare Debian 12
# (debootstrap's minbase) that has python3 beside it and nothing else, and runs
# the GPU's check there: without a GPU every row has to say so in one line (or
# that a tool which is not of the archive is missing), and the exit status is 0.
# Then a program of the archive is broken: its row fails, and the exit status
# is 1.
#
#   check_package.sh [ARCHIVE]   (build/package/sluice.tar.xz)
#
# Where there can be none (bare_debian.sh) it says so and does nothing. Not part
# of .ci/run.
set -eu
cd "$(dirname "$0")/.."
archive=${1-build/package/sluice.tar.xz}

fail() {
  echo "check_package: $*" >&2
  exit 1
}
[ -e "$archive" ] || fail "$archive is missing; scripts/package.sh makes it"
. scripts/bare_debian.sh
bare_debian --include=python3
mkdir "$root/work"
tar -C "$root/work" -xJf "$archive"

# gpu_check.py with these arguments: what it prints is in $work/said, its exit
# status the result.
check() {
  inside python3 /work/sluice/scripts/gpu_check.py "$@" >"$work/said" 2>&1
}
reason=': not possible (.* s) \(no GPU: .*\|[a-z-]* is not installed\)$'
check --list || fail "it does not list its rows: $(cat "$work/said")"
all=$(wc -l <"$work/said")
status=0
check --minutes 120 /work/out || status=$?
cat "$work/said"
[ "$status" -eq 0 ] || fail "exit status $status without a GPU, wanted 0"
said=$(grep -c "$reason" "$work/said" || :)
[ "$said" -eq "$all" ] || fail "$said of $all rows say that there is no GPU"
lines=$(grep -vc "$reason" "$work/said" || :)
[ "$lines" -eq 1 ] || fail "$lines lines beside the rows', wanted the reason alone"

printf 'broken' >"$root/work/sluice/bin/step_bench"
status=0
check --row "mnist mlp, fp32" --row "resnet50_training fp16" /work/broken ||
  status=$?
cat "$work/said"
[ "$status" -eq 1 ] || fail "exit status $status of a broken program, wanted 1"
grep -q '^mnist mlp, fp32: not possible' "$work/said" ||
  fail "the row beside the broken one does not say that there is no GPU"
grep -q '^resnet50_training fp16: FAILED' "$work/said" ||
  fail "the broken program's row has not failed"
echo "check_package: $all rows of the archive say that there is no GPU"
