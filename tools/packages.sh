#!/bin/sh
# Installs the missing packages: packages.sh PACKAGE... If that is not possible, it names them in
# one line and fails. A package counts as installed if dpkg lists it, or if the compiler finds its
# header (another distribution, or a private copy). Only the installation needs root. LOG is the
# file for apt-get's output if it fails.
set -eu
log=${LOG:-apt.log}

header_of() {
  case $1 in
    libblis-dev) echo blis/blis.h blis.h ;;
    libxtensor-dev) echo xtensor/xarray.hpp ;;
    nlohmann-json3-dev) echo nlohmann/json.hpp ;;
    libcli11-dev) echo CLI/CLI.hpp ;;
    zlib1g-dev) echo zlib.h ;;
    libjpeg-dev) echo jerror.h ;;
    libstb-dev) echo stb/stb_image.h ;;
    libxxhash-dev) echo xxhash.h ;;
    libicu-dev) echo unicode/uchar.h ;;
    libonig-dev) echo oniguruma.h ;;
    libgtest-dev) echo gtest/gtest.h ;;
    libbenchmark-dev) echo benchmark/benchmark.h ;;
  esac
}
has_header() {
  for header in $(header_of "$1"); do
    if echo "#include <$header>" | ${CXX:-g++} -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then return 0; fi
  done
  return 1
}
is_there() {
  dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q 'ok installed' && return 0
  case $1 in
    g++) command -v "${CXX:-g++}" >/dev/null 2>&1 && return 0 ;;
    libopenmpi-dev) "${0%/*}/has_mpi.sh" "${MPICXX:-mpicxx}" && return 0 ;;  # any MPI is accepted
    openmpi-bin) command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 && return 0 ;;
  esac
  has_header "$1"
}

missing=
for package; do is_there "$package" || missing="$missing $package"; done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "make: missing Debian packages:$missing (there is no apt-get here; install their equivalents)" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  echo "make: missing Debian packages:$missing (no right to install: run as root: apt-get install$missing)" >&2
  exit 1
fi
echo "installing$missing"
# A lock serialises installations of parallel rules, because apt-get does not wait for another.
{ flock 9 && $as_root apt-get update -q && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -q --no-install-recommends $missing; } \
  >"$log" 2>&1 9<"$0" || { echo "make: apt-get could not install$missing; its words are in $log" >&2; exit 1; }
rm -f "$log"
