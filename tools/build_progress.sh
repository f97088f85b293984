#!/bin/sh
# Prints the line of one compilation: build_progress.sh WORDS [BEGAN HAD OBJECT...]. In a first build
# the line also says how many of the OBJECTs exist, and from the tenth on how long the rest takes.
# The build began at BEGAN, in seconds since 1970, with HAD of the objects.
set -eu
words=$1
if [ $# -eq 1 ]; then echo "  $words"; exit; fi
began=$2 had=$3
shift 3
have=$(ls "$@" 2>/dev/null | wc -l)
made=$((have - had))
left=
[ $made -lt 10 ] || left=", about $((($(date +%s) - began) * ($# - have) / made)) s left"
echo "  $words ($have of $# made$left)"
