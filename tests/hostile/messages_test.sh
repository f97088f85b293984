#!/bin/sh
# Every option that takes a file says in one line what is wrong with it (messages_test.py). BUILD names the output folder.
set -eu
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null 2>&1 || { echo 'skipped: no python3'; exit 0; }
exec python3 tests/hostile/messages_test.py
