#!/bin/sh
# Fills a folder with the libraries for programs of an AArch64 board: Debian's packages of that
# architecture and of all, and Oniguruma, whose static library Debian lacks, built from Debian's
# source. Nothing is installed: apt-get works in the folder.
#   board_root.sh FOLDER
# Needs the cross compiler (packages.sh). A folder that this version of the script has filled is not
# changed.
set -eu
root=$1
compiler=aarch64-linux-gnu
made_by=$(cksum <"$0")
if [ "$(cat "$root/made" 2>/dev/null)" = "$made_by" ]; then touch "$root/made"; exit 0; fi
fail() { echo "make: board: $1; the words of what failed are in $root/log" >&2; exit 1; }
command -v apt-get >/dev/null 2>&1 || { echo "make: board: there is no apt-get here, which fetches the board's libraries" >&2; exit 1; }
mkdir -p "$root/apt/lists/partial" "$root/apt/source-lists/partial" "$root/apt/cache/archives/partial" "$root/packages"
root=$(cd "$root" && pwd)

apt_here() { apt-get -q -oDebug::NoLocking=1 -oAPT::Sandbox::User=root -oDir::Cache="$root/apt/cache" "$@" >>"$root/log" 2>&1; }
apt_board() { apt_here -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists="$root/apt/lists" "$@"; }
apt_source() { apt_here -oDir::Etc::SourceList="$root/apt/sources.list" -oDir::Etc::SourceParts=/nonexistent -oDir::State::Lists="$root/apt/source-lists" "$@"; }

: >"$root/log"
apt_board update || fail "the lists of Debian's packages for arm64 could not be had"
(cd "$root/packages" && apt_board download zlib1g-dev libjpeg62-turbo-dev libicu-dev nlohmann-json3-dev libcli11-dev libstb-dev libxxhash-dev) || fail "its packages could not be had"
for package in "$root"/packages/*.deb; do dpkg-deb -x "$package" "$root"; done

# shellcheck disable=SC2016
apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Origin: Debian' | sort -u >"$root/apt/sources.list"
(apt_source update && cd "$root/packages" && apt_source source --download-only libonig) || fail "the source of libonig could not be had"
mkdir -p "$root/oniguruma" && tar -xzf "$root"/packages/libonig_*.orig.tar.gz -C "$root/oniguruma" --strip-components=1
# Oniguruma's own configuration needs autoconf, whose results are the same on every AArch64 Linux.
# Its Makefile names the sources.
cd "$root/oniguruma/src"
cat >config.h <<'TEXT'
#define HAVE_ALLOCA_H 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_UNISTD_H 1
#define SIZEOF_INT 4
#define SIZEOF_LONG 8
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOIDP 8
#define PACKAGE "onig"
#define VERSION "6.9.8"
TEXT
sources=$(sed -n '/libonig_la_SOURCES/,/[^\\]$/p' Makefile.am | grep -o '[a-z0-9_]*\.c')
# shellcheck disable=SC2086
($compiler-gcc -O2 -DHAVE_CONFIG_H -I. -c $sources && $compiler-ar rcs "$root/usr/lib/$compiler/libonig.a" ./*.o && cp oniguruma.h "$root/usr/include") >>"$root/log" 2>&1 \
  || fail "Oniguruma could not be compiled"
rm -rf "$root/apt" "$root/packages" "$root/oniguruma"
echo "$made_by" >"$root/made"
