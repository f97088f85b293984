#!/usr/bin/env bash
# Tests the audit's page in a real browser: audit_page_test.py makes pages of a small network's
# plans with BUILD/reprise, opens them and compares their content with the manifests. Skipped if
# there is no Chromium.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
if ! command -v chromium >/dev/null 2>&1; then
  echo "skipped: no chromium (Debian's package) to open the page in"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
timeout 300 python3 tests/interfaces/audit_page_test.py "$build/reprise" "$scratch"
