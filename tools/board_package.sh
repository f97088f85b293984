#!/bin/sh
# Packs what `make board` made as a plain tar, of which bin/ and share/ may lie anywhere, and as a package of Debian's.
#   board_package.sh REPRISE PROGRAM NAME VERSION TARGET FOLDER
# REPRISE and PROGRAM are the two programs, NAME is what PROGRAM is called there. FOLDER gets both files, and their names are printed.
set -eu
reprise=$1 program=$2 name=$3 version=$4 target=$5 folder=$6
# The program stands beside reprise in /usr/bin, where a recipe's name must not take the place of a system's own program.
if [ "$name" = reprise ] || command -v "$name" >/dev/null 2>&1; then
  echo "board_package: a recipe named \"$name\" would be installed over the command $name: give it another \"name\"" >&2
  exit 1
fi
made=$folder/reprise-$version-$target
package=$folder/reprise_${version}_arm64.deb

rm -rf "$made" "$made.deb"
mkdir -p "$made/bin" "$made/share/reprise/boards" "$made/share/doc/reprise" "$made.deb/DEBIAN"
cp "$reprise" "$made/bin/reprise"
cp "$program" "$made/bin/$name"
cp tools/boards/*.json "$made/share/reprise/boards"
cp LICENSE "$made/share/doc/reprise/copyright"
cp README.md tools/FORMATS.md "$made/share/doc/reprise"
tar -czf "$made-arm64.tar.gz" -C "$folder" "${made##*/}"

mv "$made" "$made.deb/usr"
cat >"$made.deb/DEBIAN/control" <<TEXT
Package: reprise
Version: $version
Architecture: arm64
Maintainer: the engineers of Reprise <reprise@localhost>
Depends: libc6 (>= 2.35)
Section: science
Priority: optional
Description: training inside a memory plan that is proved before it runs
 The command line, and the program that trains $name.
TEXT
dpkg-deb --root-owner-group --build "$made.deb" "$package" >/dev/null
rm -r "$made.deb"
echo "$made-arm64.tar.gz and $package"
