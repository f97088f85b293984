#!/bin/sh
# Requires that tools/board_package.sh refuses a recipe whose name is already a command, because the
# package installs a program with the recipe's name. It must write nothing then.
set -eu
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "board_package: $1" >&2; exit 1; }
command -v dpkg-deb >/dev/null 2>&1 || { echo "skipped: no dpkg-deb here"; exit 0; }
echo program >"$scratch/program"
echo "/my/flowers (data.path, --data)" >"$scratch/files"
for name in reprise ls sh dpkg; do
  ! tools/board_package.sh "$scratch/program" "$scratch/program" $name 1.0 aarch64 "$scratch/dist" "$scratch/files" >"$scratch/words" 2>&1 || fail "$name is packed"
  [ "$(wc -l <"$scratch/words")" = 1 ] && grep -q "\"$name\"" "$scratch/words" || fail "$name is refused so: $(cat "$scratch/words")"
  [ ! -e "$scratch/dist" ] || fail "$name leaves files"
done
tools/board_package.sh "$scratch/program" "$scratch/program" my-net.v1 1.0 aarch64 "$scratch/dist" "$scratch/files" >"$scratch/words" 2>&1 || fail "my-net.v1 is refused: $(cat "$scratch/words")"
tar -xOzf "$scratch"/dist/reprise-1.0-aarch64-arm64.tar.gz reprise-1.0-aarch64/share/reprise/my-net.v1.files | grep -qx '/my/flowers (data.path, --data)' \
  || fail "the package does not list what its program reads"
