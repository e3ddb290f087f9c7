#!/bin/sh
# Prints where cuobjdump is, which nvcc's packages need not bring along: in PATH,
# beside nvcc, or taken, with nvdisasm that it calls, from the wheel of triton
# into the user's cache. Quick where that was done before.
#
#   install_cuobjdump.sh [NVCC]
set -eu

for found in cuobjdump "$(dirname "${1:-nvcc}")/cuobjdump"; do
  if command -v "$found"; then exit 0; fi
done
folder=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/tools
if [ ! -x "$folder/cuobjdump" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  python3 -m pip download -q --disable-pip-version-check --no-deps \
    --only-binary :all: -d "$work" triton >&2
  python3 - "$work" <<'END'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    for name in "cuobjdump", "nvdisasm":
        file = folder / name
        file.write_bytes(archive.read(f"triton/backends/nvidia/bin/{name}"))
        file.chmod(0o755)
END
  mkdir -p "$folder"
  # cuobjdump last: where it is, both are whole.
  mv "$work/nvdisasm" "$folder/"
  mv "$work/cuobjdump" "$folder/"
fi
echo "$folder/cuobjdump"
