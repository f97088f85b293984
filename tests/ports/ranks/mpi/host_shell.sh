#!/bin/sh
# Replaces ssh or rsh of mpirun for the hosts of with_hosts.sh: host_shell.sh [OPTION...] ADDRESS
# COMMAND... runs COMMAND on host 3 for the address 10.9.0.3.
set -eu
while [ "${1#-}" != "$1" ]; do shift; done
host=host${1##*.}
shift
exec ip netns exec "$host" sh -c "$*"
