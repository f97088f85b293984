#!/usr/bin/env bash
# Runs every test program and script given, shows what failed, and closes with "N passed, N failed".
# A program counts its GoogleTest cases; a script counts as one; a crash counts as a failure; what is skipped says why.
set -u
passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for test in "$@"; do
  name=$(basename "$test")
  start=$SECONDS
  if [[ $test == *.sh ]]; then
    if "$test" >"$log" 2>&1; then ok=1 bad=0; else ok=0 bad=1; fi
  else
    "$test" --gtest_brief=0 >"$log" 2>&1
    status=$?
    ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    ok=${ok:-0} bad=${bad:-0}
    if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
    if [ "$status" = 0 ] && [ "$ok" = 0 ] && [ -z "$skipped" ]; then bad=1; echo "no test ran" >>"$log"; fi
  fi
  printf '%-28s %5d passed %3d failed  %3d s\n' "$name" "$ok" "$bad" $((SECONDS - start))
  grep -h '^skipped: ' "$log" | sed 's/^/    /'
  grep -h -A1 'Skipped$' "$log" | grep -vE 'Skipped$|^--$' | sort -u | sed 's/^/    skipped: /'
  if [ "$bad" != 0 ]; then
    if [[ $test == *.sh ]]; then tail -n 40 "$log"; else grep -vE '^\[ RUN|^\[       OK' "$log" | tail -n 80; fi
  fi
  passed=$((passed + ok)) failed=$((failed + bad))
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
