#!/bin/sh
# Runs a command beside hosts: with_hosts.sh NUMBER COMMAND... They are network namespaces with the names host1, host2 and so on, as `ip -n host1` and
# `ip netns exec host1` know them, each without a network, which the command makes. Processes and mounts are the command's own, too, so that all is gone
# when it ends, and when whoever has started this is killed.
# Here because ranks on one machine never meet a network, and because hosts that stay behind spoil the next run. Where there can be none it says why, and
# exits with 77.
set -eu
if [ "${1:-}" != --inside ]; then
  own='--mount --net --pid --fork --kill-child --mount-proc'
  for tool in ip unshare setpriv; do command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool here (packages iproute2 util-linux)"; exit 77; }; done
  [ "$(id -u)" = 0 ] || { echo 'skipped: hosts are network namespaces, which root alone makes'; exit 77; }
  why=$(unshare $own true 2>&1) || { echo "skipped: no namespaces here: $why"; exit 77; }
  setpriv --pdeathsig KILL unshare $own "$0" --inside "$@" & inside=$!
  trap 'kill -9 $inside; exit 1' HUP INT TERM  # unshare hears none of them
  status=0
  wait $inside || status=$?
  exit $status
fi
hosts=$2
shift 2
mount -t tmpfs tmpfs /run
for n in $(seq "$hosts"); do ip netns add "host$n" && ip -n "host$n" link set lo up; done
status=0
"$@" || status=$?
exit $status
