#!/bin/bash
# Checks and measures Sluice on a machine with a GPU, from a package that
# scripts/package.sh made: nothing is compiled here.
#
#   gpu_check.sh --part correctness|kernels|models OUTDIR
#
# Each part ends within nine minutes: what there is no time for is named in the
# table. Rows are written as they come, so that an interrupted run leaves what
# it measured:
#   OUTDIR/machine.json        device, driver, library versions, commit, date
#   OUTDIR/PART.jsonl, PART.md one row a check or measurement
#   OUTDIR/gpu_check.log       what the programs wrote beside
# CUDA's libraries are looked for on the system and in Python's `nvidia`
# packages; the peers need PyTorch in python3. Exits with 1 if a check failed.
set -uo pipefail

usage() {
  echo "usage: $0 --part correctness|kernels|models OUTDIR" >&2
  exit 2
}
[[ $# == 3 && $1 == --part ]] || usage
part=$2
out=$3
[[ $part =~ ^(correctness|kernels|models)$ ]] || usage
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.." || exit 1
bin=$PWD/bin
readonly budget=510 # seconds; the rest of nine minutes is for the last row
deadline=$((SECONDS + budget))
failed=0

# Python's packages keep CUDA's libraries in folders that no loader searches.
wheels=$(python3 - <<'EOF' 2>/dev/null
import glob, os, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()] + sys.path
found = []
for folder in folders:
    for lib in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib"))):
        if lib not in found:
            found.append(lib)
print(":".join(found))
EOF
)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${wheels:+$wheels:}/usr/local/cuda/lib64

# json_string TEXT
json_string() {
  python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$1"
}

# row NAME PASSED SECONDS RESULT: RESULT is JSON.
row() {
  printf '{"check": %s, "passed": %s, "seconds": %s, "result": %s}\n' \
    "$(json_string "$1")" "$2" "$3" "$4" >>"$out/$part.jsonl"
  printf '| %s | %s | %s | `%s` |\n' "$1" "$2" "$3" "${4//|/\\|}" \
    >>"$out/$part.md"
  echo "$1: $2 ($3 s) $4"
  [[ $2 != false ]] || failed=1
}

# check NAME SECONDS COMMAND...: passes if the command does. Its last line is
# the result; lines that are JSON objects become rows of their own.
check() {
  local name=$1 limit=$2 begin=$SECONDS left=$((deadline - SECONDS)) status
  shift 2
  if ((left < 5)); then
    row "$name" null 0 '"no time was left"'
    return
  fi
  ((limit < left)) || limit=$left
  echo "=== $name: $*" >>"$out/gpu_check.log"
  timeout -k 5 "$limit" "$@" >"$out/.last" 2>"$out/.errors"
  status=$?
  cat "$out/.last" "$out/.errors" >>"$out/gpu_check.log"
  local lines
  mapfile -t lines < <(grep '^{' "$out/.last")
  if ((${#lines[@]})); then
    local line
    for line in "${lines[@]}"; do
      row "$name" "$( ((status == 0)) && echo true || echo false)" \
        $((SECONDS - begin)) "$line"
    done
  fi
  if ((status != 0 || ${#lines[@]} == 0)); then
    local text
    # What is wrong, where something is: a test's first error, a program's last
    # word.
    text=$( ((status == 0)) || grep -m 1 'ERROR' "$out/.last" ||
      grep -v '^ *$' "$out/.errors" | tail -n 1)
    [[ -n $text ]] || text=$(grep -v '^ *$' "$out/.last" | tail -n 1)
    ((status != 124)) || text="not over after $limit s; $text"
    row "$name" "$( ((status == 0)) && echo true || echo false)" \
      $((SECONDS - begin)) "$(json_string "${text:-exit status $status}")"
  fi
  rm -f "$out/.last" "$out/.errors"
}

machine() {
  "$bin/sluice" doctor --json >"$out/.doctor" 2>>"$out/gpu_check.log"
  python3 - "$out/.doctor" "$(cat commit 2>/dev/null)" >"$out/machine.json" <<'EOF'
import datetime, json, subprocess, sys

def said(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() if done.returncode == 0 else None
    except OSError:
        return None

try:
    doctor = json.load(open(sys.argv[1]))
except ValueError:
    doctor = None
query = "name,driver_version,memory.total,clocks.max.sm,power.limit"
torch = said("python3", "-c", "import torch; print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())")
print(json.dumps({
    "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    "commit": sys.argv[2],
    "gpu": said("nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader"),
    "torch_cuda_cudnn": torch,
    "system": said("uname", "-sr"),
    "doctor": doctor,
}, indent=1))
EOF
  rm -f "$out/.doctor"
}

correctness() {
  local tests=("$bin/kernels_cuda_tests" "--source-file=*/kernels/cuda")
  export SLUICE_TEST_GPU=1
  check "op table" 200 "${tests[@]}/op_table_test.cc"
  check "fused programs" 60 "${tests[@]}/fused_test.cc"
  check "sessions" 60 "${tests[@]}/session_test.cc"
  check "bad indices" 60 "${tests[@]}/bad_index_test.cc"
  check "training against the CPU" 120 "${tests[@]}/training_test.cc"
  local precision
  for precision in fp32 tf32 fp16 bf16; do
    check "mnist mlp, $precision" 60 "$bin/mnist" train --model mlp \
      --device /gpu:0 --precision "$precision" --steps 600 --json
    check "mnist cnn, $precision" 60 "$bin/mnist" train --model cnn \
      --device /gpu:0 --precision "$precision" --steps 300 --json
  done
  unset SLUICE_TEST_GPU
  if command -v compute-sanitizer >/dev/null; then
    local tool
    for tool in memcheck racecheck; do
      SLUICE_TEST_GPU=1 check "compute-sanitizer $tool, op table" 150 \
        compute-sanitizer --tool "$tool" --error-exitcode 1 \
        "${tests[@]}/op_table_test.cc"
    done
  else
    row "compute-sanitizer" null 0 '"not on this machine"'
  fi
}

kernels() {
  local dtype suite
  for dtype in float16 float32 bfloat16; do
    for suite in memcpy elementwise chain batch_norm optimizer reduction \
      softmax pool gemm conv; do
      check "kernel_bench $suite $dtype" 120 "$bin/kernel_bench" \
        --device /gpu:0 --dtype "$dtype" --suite "$suite" --seconds 0.05 --json
    done
  done
}

# ours MODEL BATCH PRECISION; theirs the same and MODE.
ours() {
  check "$1, batch $2, $3: sluice" 90 "$bin/step_bench" --model "$1" \
    --batch "$2" --device /gpu:0 --precision "$3" --json --blocks 7
}
theirs() {
  local script=torch_mnist.py
  [[ $1 != resnet50* ]] || script=torch_resnet50.py
  check "$1, batch $2, $3: pytorch $4" 120 python3 "bench/peers/$script" \
    --model "$1" --batch "$2" --device cuda --precision "$3" --mode "$4" \
    --steps 20 --blocks 7 --json
}

models() {
  ours resnet50_training 256 fp16
  theirs resnet50_training 256 fp16 compile-nhwc
  theirs resnet50_training 256 fp16 eager-nhwc
  ours mnist_mlp 100 fp32
  theirs mnist_mlp 100 fp32 graph
  theirs mnist_mlp 100 fp32 compile
  local precision
  for precision in bf16 tf32; do
    ours resnet50_training 256 $precision
    theirs resnet50_training 256 $precision compile-nhwc
  done
  ours mnist_cnn 100 fp32
  theirs mnist_cnn 100 fp32 graph
  theirs resnet50_training 256 fp16 graph-nhwc
  ours resnet50_inference 256 fp16
  theirs resnet50_inference 256 fp16 compile-nhwc
  check "resnet50 bench, fed from the host" 60 "$bin/resnet50" bench \
    --batch-size 256 --device /gpu:0 --precision fp16 --json
}

: >"$out/$part.jsonl"
echo "=== part $part" >>"$out/gpu_check.log"
printf '| check | passed | seconds | result |\n|---|---|---|---|\n' \
  >"$out/$part.md"
machine
"$part"
exit $failed
