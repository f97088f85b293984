#!/bin/sh
# Tests that every option that reads a file reports its faults in one line (messages_test.py). BUILD
# is the output folder.
set -eu
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null 2>&1 || { echo 'skipped: no python3'; exit 0; }
exec python3 tests/hostile/messages_test.py
