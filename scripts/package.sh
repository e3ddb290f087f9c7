#!/bin/bash
# Makes build/package/sluice.tar.xz: the programs, the GPU's tests and
# benchmarks, and the libraries they need that are not the system's or NVIDIA's,
# with their licence notices. It runs from any folder on an x86-64 Linux with
# glibc 2.36 or newer and an NVIDIA driver; CUDA's libraries are found on the
# system or in Python's `nvidia` packages (see scripts/gpu_check.py). To be run
# on Debian 12 with nvcc; needs patchelf.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=(mnist resnet50 sluice)
benches=(kernel_bench step_bench)
tests=(kernels_cuda_tests)
limit_mb=30

die() {
  echo "package.sh: $*" >&2
  exit 1
}
command -v patchelf >/dev/null || die "needs patchelf (Debian's package)"
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) ||
  die "needs nvcc in PATH or /usr/local/cuda/bin"

cmake --preset release >/dev/null
cmake --build --preset release --target "${programs[@]/#sluice/sluice_tool}" \
  "${benches[@]}" "${tests[@]}"
CUDACXX=$nvcc cmake --preset cuda >/dev/null
cmake --build --preset cuda

root=build/package/sluice
rm -rf build/package
mkdir -p $root/bin $root/lib $root/licences $root/scripts $root/bench
for name in "${programs[@]}" "${benches[@]}" "${tests[@]}"; do
  cp build/release/bin/"$name" $root/bin/
done
cp build/cuda/bin/libsluice_cuda.so build/release/bin/libsluice{,_cli}.so.?.? \
  $root/lib/
cp scripts/gpu_check.py scripts/gpu_rows.py $root/scripts/
cp -r bench/peers bench/comparing bench/compare $root/bench/
cp README.md $root/
cp LICENSE $root/licences/sluice

# Debian's library packages, without ours and glibc's, which every system has its
# own of.
mapfile -t libraries < <(
  ldd $root/bin/* $root/lib/libsluice_cuda.so | awk '$2 == "=>" { print $3 }' |
    sort -u | grep -vE '/(libsluice|libsluice_cli|libc|libm|libdl|librt|libpthread|ld-linux.*)\.so'
)
for library in "${libraries[@]}"; do
  cp -L "$library" $root/lib/
  # By name: packages know files below /lib that are now below /usr/lib.
  package=$(dpkg-query -S "*/$(basename "$(readlink -f "$library")")" |
    sed 's/:.*//;q')
  [[ -n $package ]] || die "$library belongs to no package: where is its licence?"
  cp "/usr/share/doc/$package/copyright" "$root/licences/$package"
done
cat >$root/licences/nvidia <<'EOF'
lib/libsluice_cuda.so contains NVIDIA's CUDA runtime library (libcudart_static),
redistributed under the CUDA Toolkit's End User License Agreement, attachment A.
EOF

chmod u+w $root/lib/*
strip --strip-unneeded $root/bin/* $root/lib/*
# Old-style, so that libraries of libraries are found beside them too.
for file in $root/bin/*; do
  patchelf --force-rpath --set-rpath "\$ORIGIN/../lib" "$file"
done
for file in $root/lib/*; do
  patchelf --force-rpath --set-rpath "\$ORIGIN" "$file"
done
git rev-parse HEAD >$root/commit

# One dictionary over all programs: they share most of their code.
tar -C build/package --sort=name --owner=0 --group=0 -c sluice |
  xz -T2 --lzma2=preset=6,dict=64MiB >build/package/sluice.tar.xz
bytes=$(stat -c %s build/package/sluice.tar.xz)
echo "build/package/sluice.tar.xz: $((bytes / 1000)) kB," \
  "$(du -sm $root | cut -f1) MB unpacked"
((bytes <= limit_mb * 1000000)) || die "more than $limit_mb MB"
