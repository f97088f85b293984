#!/bin/sh
# Tests tools/packages.sh on a system without dpkg's list and apt-get: a package counts as installed
# if its header compiles, else one line names it. Reason: a wrapper without its header once passed
# as an MPI, and every rule that compiles with it failed. CXX names the compiler.
set -eu
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "packages: $1" >&2; exit 1; }

mkdir "$scratch/bin" "$scratch/headers"
for command in sh cat grep; do ln -s "$(command -v $command)" "$scratch/bin/$command"; done
touch "$scratch/headers/mpi.h" "$scratch/headers/zlib.h"
compiler=$(command -v "${CXX:-g++}")
# compiler NAME OPTION...: makes a compiler that finds headers only by the OPTIONs.
compiler() { name=$1; shift; printf '#!/bin/sh\nPATH=%s exec %s -nostdinc %s "$@"\n' "$PATH" "$compiler" "$*" >"$scratch/bin/$name"; chmod +x "$scratch/bin/$name"; }
there() { PATH=$scratch/bin CXX=bare MPICXX=wrapper tools/packages.sh "$1" >"$scratch/words" 2>&1; }
missing() {
  ! there "$1" || fail "$1 passes: $2"
  [ "$(cat "$scratch/words")" = "make: missing Debian packages: $1 (there is no apt-get here; install their equivalents)" ] || fail "$1, $2: $(cat "$scratch/words")"
}

compiler bare
missing zlib1g-dev 'the compiler finds no header'
missing libopenmpi-dev 'there is no wrapper'
compiler wrapper
missing libopenmpi-dev 'the wrapper finds no header'
compiler bare -I "$scratch/headers"
compiler wrapper -I "$scratch/headers"
for package in zlib1g-dev libopenmpi-dev; do there $package && [ ! -s "$scratch/words" ] || fail "$package is not seen: $(cat "$scratch/words")"; done
