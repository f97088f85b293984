#!/bin/sh
# Writes into the file FILE where NVIDIA's disassembler is: find_nvdisasm.sh FILE. Where it is missing PyPI has it (nvidia-cuda-nvdisasm);
# it is installed beside FILE, and nothing outside is touched. FILE stays empty where that fails, too, and one line says so.
# Here because nvcc comes without it in many installations, and no Debian package has it alone. NVCC names the compiler.
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
