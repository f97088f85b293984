#!/bin/sh
# Runs a command with several hosts: with_hosts.sh NUMBER COMMAND... The hosts are network
# namespaces named host1, host2 and so on, for `ip -n host1` and `ip netns exec host1`. The command
# creates their network. Processes and mounts are in namespaces of the command, so that nothing
# remains when it ends or when the caller is killed. Reasons: ranks on one machine use no network,
# and hosts that remain would disturb the next run. If there can be no hosts, it prints why and
# exits with 77.
set -eu
if [ "${1:-}" != --inside ]; then
  own='--mount --net --pid --fork --kill-child --mount-proc'
  for tool in ip unshare setpriv; do command -v $tool >/dev/null 2>&1 || { echo "skipped: no $tool here (packages iproute2 util-linux)"; exit 77; }; done
  [ "$(id -u)" = 0 ] || { echo 'skipped: hosts are network namespaces, which root alone makes'; exit 77; }
  why=$(unshare $own true 2>&1) || { echo "skipped: no namespaces here: $why"; exit 77; }
  setpriv --pdeathsig KILL unshare $own "$0" --inside "$@" & inside=$!
  trap 'kill -9 $inside; exit 1' HUP INT TERM  # unshare ignores these signals
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
