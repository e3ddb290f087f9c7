#!/bin/bash
# Makes build/package/sluice.tar.xz: the programs, the GPU's tests and
# benchmarks, and the libraries they need that are not the system's or NVIDIA's,
# with their licence notices. It runs from any folder on an x86-64 Linux with
# glibc 2.36 or newer and an NVIDIA driver; CUDA's libraries are found on the
# system or in Python's `nvidia` packages. To be run on Debian 12 with nvcc.
#
#   package.sh [--cpu]   --cpu: without nvcc, and without the GPU's kernels
set -euo pipefail
cd "$(dirname "$0")/.."

programs=(mnist resnet50 sluice sluicerun)
benches=(kernel_bench step_bench)
tests=(kernels_cuda_tests)
limit_mb=30
# glibc's, of which every system has its own.
glibc='^(libc|libm|libresolv|libdl|librt|libpthread|ld-linux.*)[.]so'

die() {
  echo "package.sh: $*" >&2
  exit 1
}
nvcc=
if [[ ${1-} != --cpu ]]; then
  nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) ||
    die "needs nvcc in PATH or /usr/local/cuda/bin"
fi

cmake --preset release >/dev/null
cmake --build --preset release --target "${programs[@]/%sluice/sluice_tool}" \
  "${benches[@]}" "${tests[@]}"
root=build/package/sluice
rm -rf build/package
mkdir -p $root/licences $root/scripts $root/bench
# Installing gives programs the paths that they have there (sluice_relocatable).
for component in runtime measuring; do
  cmake --install build/release --component $component --prefix $root --strip \
    >/dev/null
done
if [[ -n $nvcc ]]; then
  CUDACXX=$nvcc cmake --preset cuda >/dev/null
  cmake --build --preset cuda
  cp build/cuda/bin/libsluice_cuda.so $root/lib/
fi
cp scripts/gpu_check.py scripts/gpu_rows.py $root/scripts/
cp -r bench/peers bench/comparing bench/compare $root/bench/
cp README.md $root/
cp LICENSE $root/licences/sluice

# Debian's library packages.
mapfile -t libraries < <(
  ldd $root/bin/* $root/lib/libsluice* | awk -v glibc="$glibc" '
    $2 == "=>" && $1 !~ glibc && $1 !~ /^libsluice/ { print $3 }' | sort -u
)
for library in "${libraries[@]}"; do
  cp -L "$library" $root/lib/
  # By name: packages know files below /lib that are now below /usr/lib.
  package=$(dpkg-query -S "*/$(basename "$(readlink -f "$library")")" |
    sed 's/:.*//;q')
  [[ -n $package ]] || die "$library belongs to no package: where is its licence?"
  cp "/usr/share/doc/$package/copyright" "$root/licences/$package"
done
if [[ -n $nvcc ]]; then
  cat >$root/licences/nvidia <<'EOF'
lib/libsluice_cuda.so contains NVIDIA's CUDA runtime library (libcudart_static),
redistributed under the CUDA Toolkit's End User License Agreement, attachment A.
EOF
fi

chmod u+w $root/lib/*
strip --strip-unneeded $root/lib/*

# Moved, everything is found in the archive that is not the system's.
moved=$(mktemp -d)
trap 'rm -rf "$moved"' EXIT
cp -a $root "$moved/sluice"
strangers=$(env -i "$(command -v ldd)" "$moved"/sluice/bin/* |
  awk -v moved="$moved/" -v glibc="$glibc" '
    $2 == "=>" && index($3, moved) != 1 && $1 !~ glibc { print $1, $3, $4 }' |
  sort -u)
[[ -z $strangers ]] || die "not in the archive: $strangers"

git rev-parse HEAD >$root/commit

# One dictionary over all programs: they share most of their code.
tar -C build/package --sort=name --owner=0 --group=0 -c sluice |
  xz -T2 --lzma2=preset=6,dict=64MiB >build/package/sluice.tar.xz
bytes=$(stat -c %s build/package/sluice.tar.xz)
echo "build/package/sluice.tar.xz: $((bytes / 1000)) kB," \
  "$(du -sm $root | cut -f1) MB unpacked"
((bytes <= limit_mb * 1000000)) || die "more than $limit_mb MB"
