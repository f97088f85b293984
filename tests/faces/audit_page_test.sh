#!/usr/bin/env bash
# The audit's page in a real browser: audit_page_test.py makes pages of a small network's plans with BUILD/reprise, opens them and compares
# what they say with the manifests. Skipped where there is no Chromium.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
if ! command -v chromium >/dev/null 2>&1; then
  echo "skipped: no chromium (Debian's package) to open the page in"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
timeout 300 python3 tests/faces/audit_page_test.py "$build/reprise" "$scratch"
