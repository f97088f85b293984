#!/bin/sh
# What mpirun takes for ssh or rsh among the hosts of with_hosts.sh: host_shell.sh [OPTION...] ADDRESS COMMAND... runs it on host 3 for 10.9.0.3.
set -eu
while [ "${1#-}" != "$1" ]; do shift; done
host=host${1##*.}
shift
exec ip netns exec "$host" sh -c "$*"
