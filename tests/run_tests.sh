#!/usr/bin/env bash
# Runs the given test programs and scripts, in parallel on all processors (JOBS=N: N at a time), and
# shows each when it has ended, with its failures. At the end it shows the failures once more in
# short, and "N passed, N failed". A program counts its GoogleTest cases; a script counts as one; a
# crash counts as a failure; a skipped test states why.
set -u
jobs=${JOBS:-$(nproc)}
# The folder's path is short because Unix sockets below it may have 107 bytes.
logs=$(mktemp -d "${TMPDIR:-/tmp}/r.XXXXXX")
trap 'rm -rf "$logs"' EXIT
export XDG_CACHE_HOME=$logs/cache  # keeps the programs' caches out of the user's folder

# Runs one test into a log, writes "PASSED FAILED" to LOG.counts, and prints a summary. Each test
# has a TMPDIR of its own, which is removed with it: two mpirun of one user would share a folder
# there, and the one that ends first removes it.
run_test() {
  local test=$1 log=$2 start=$SECONDS name status ok bad skipped
  name=$(basename "$test")
  export TMPDIR=$log.d
  mkdir "$TMPDIR"
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
  echo "$ok $bad" >"$log.counts"
  rm -rf "$TMPDIR"
  {
    printf '%-28s %5d passed %3d failed  %3d s\n' "$name" "$ok" "$bad" $((SECONDS - start))
    grep -h '^skipped: ' "$log" | sed 's/^/    /'
    grep -h -A1 'Skipped$' "$log" | grep -vE 'Skipped$|^--$' | sort -u | sed 's/^/    skipped: /'
    if [ "$bad" != 0 ]; then
      if [[ $test == *.sh ]]; then tail -n 40 "$log"; else grep -vE '^\[ RUN|^\[       OK' "$log" | tail -n 80; fi
    fi
  } >"$log.shown"
  cat "$log.shown"  # at once, so that two tests do not mix their lines
}

n=0
for test in "$@"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  run_test "$test" "$logs/$n" &
  n=$((n + 1))
done
wait
passed=0 failed=0
for ((i = 0; i < n; ++i)); do
  read -r ok bad <"$logs/$i.counts" || { ok=0 bad=1; echo "a test left no result"; }
  passed=$((passed + ok)) failed=$((failed + bad))
  [ "$bad" = 0 ] || { head -n 1 "$logs/$i.shown"; tail -n 8 "$logs/$i.shown" | cut -c 1-300 | sed 's/^/    /'; }
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
