#!/bin/sh
# Packs the results of `make board` as a plain tar, whose bin/ and share/ may be unpacked anywhere,
# and as a Debian package.
#   board_package.sh REPRISE PROGRAM NAME VERSION TARGET FOLDER FILES
# REPRISE and PROGRAM are the two programs, NAME is the name of PROGRAM in the package. FILES lists
# the program's other input files, in the format of `reprise name --files`; the package contains the
# list as share/reprise/NAME.files. Writes both files into FOLDER and prints their names.
set -eu
reprise=$1 program=$2 name=$3 version=$4 target=$5 folder=$6 files=$7
# The program is installed next to reprise in /usr/bin, where a recipe's name must not replace a
# program of the system.
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
{
  echo "bin/reprise: the command line, and bin/$name: the program that trains"
  [ ! -s "$files" ] || echo "to copy beside, into the working folder, or to where the option says:"
  cat "$files"
} >"$made/share/reprise/$name.files"
cp LICENSE "$made/share/doc/reprise/copyright"
cp README.md tools/COMMANDS.md tools/FILES.md "$made/share/doc/reprise"
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
