#!/bin/sh
# Tests that the paths of the repository's files that sources, scripts and recipes name exist: a
# moved file leaves no old name behind. A recipe's relative path must lead into build/.
set -eu
cd "$(dirname "$0")/../.."
git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: no git repository"; exit 0; }
python3 - <<'PYTHON'
import os, re, subprocess, sys

PATH = re.compile(r"(?<![\w./${}*-])((?:lib|cuda|ports|tools|tests)/[\w/.-]+\.(?:h|cpp|cu|c|sh|py|json|md|ld|awk))\b")
LEFT_OUT = ("tests/golden/", "tests/fuzz/corpus/", "tests/data/", "tests/repository/paths_test.sh")
# Names that tests make in trees of their own, or that a page gives as an example.
MADE = re.compile(r"/(a|utils|absent\w*|\w*NAME\w*|FAMILY\w*|KIND\w*)\b|^cuda/(plan\.h|manifest\.json)$")


def faults(name, text):
    for path in PATH.findall(text):
        if not os.path.exists(path) and not MADE.search(path):
            yield f"{name}: names {path}, which does not exist"
    if name.endswith(".json") and re.search(r'"(optimizer|lora|data)"', text):
        for path in re.findall(r'"((?:\.\./)+[^"]*)"', text):
            if not os.path.normpath(os.path.join(os.path.dirname(name), path)).startswith("build/"):
                yield f"{name}: {path} does not lead into build/"


planted = list(faults("tests/bench/x/y.json", '{"data": {"path": "../../build/z"}, "see": "lib/cpu/gone.h"}'))
assert len(planted) == 2, planted
found = []
listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.split("\n")
for name in listed:
    if name.startswith(LEFT_OUT) or not os.path.isfile(name):
        continue
    try:
        found += faults(name, open(name, encoding="utf-8").read())
    except UnicodeDecodeError:
        pass  # a picture
for fault in sorted(set(found)):
    print(f"paths: {fault}", file=sys.stderr)
sys.exit(1 if found else 0)
PYTHON
echo "all paths of files that are named exist"
