#!/bin/sh
# Writes the path of NVIDIA's disassembler into FILE: find_nvdisasm.sh FILE. If the disassembler is
# missing, the script installs PyPI's nvidia-cuda-nvdisasm into FILE's folder and changes nothing
# outside. If that fails, FILE is empty and one line reports it. Reason: many installations of nvcc
# lack it, and no Debian package contains it alone. NVCC names the compiler.
set -eu
file=$1
folder=$(dirname "$file")
mkdir -p "$folder"
beside=$(dirname "$(readlink -f "$(command -v "${NVCC:-nvcc}")")")
found() {
  for each in "$(command -v nvdisasm || true)" "$beside/nvdisasm" "$folder"/python/nvidia/*/bin/nvdisasm; do
    if [ -x "$each" ]; then echo "$each"; return; fi
  done
}
if [ -z "$(found)" ]; then
  python3 -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 15 --target "$folder/python" nvidia-cuda-nvdisasm \
    >"$folder/pip.log" 2>&1 || echo "make: pip could not install nvidia-cuda-nvdisasm; its words are in $folder/pip.log" >&2
fi
found >"$file.new"
if cmp -s "$file.new" "$file"; then rm "$file.new"; else mv "$file.new" "$file"; fi
