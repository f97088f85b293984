#!/bin/sh
# Tests that the code of a model family and of a kind of data is only where CONTRIBUTING.md requires
# it, and nowhere else in the tools. Tests may name them. The script first proves on a tree of its
# own that it detects each fault.
set -eu
cd "$(dirname "$0")/../.."

# uses PATTERN PLACES: prints lines of the tools that match, outside of PLACES and of comments.
uses() { grep -rnE --include='*.h' --include='*.cpp' "$1" tools | grep -vE "^($2):" | grep -vE '^[^:]*:[0-9]+: *//' | sed 's/^/not its place: /' || true; }

faults() {
  for header in tools/plan/models/*.h; do
    for family in $(sed -nE 's/^struct ([A-Za-z0-9]+Model)( : [^{]*)? \{.*/\1/p' "$header"); do
      uses "\\b$family\\b" "tools/plan/models/($(basename "$header" .h)(_[a-z]+)?\\.(h|cpp)|models\\.h)"
    done
    # GGUF has names of its own for its fields, which are often a family's name.
    for word in $(sed -nE 's/.*kFamily = "([a-z0-9]+)".*/\1/p' "$header"); do
      uses "\"$word\"" "$header|tools/files/weights/gguf_[a-z]+\\.cpp|tools/files/tokenizer/tokenizer_gguf\\.cpp"
    done
  done
  # The training program may also test for kText, because it prints a sample of text.
  uses 'DataSource::Kind::k(Idx|ImageFolder|Tensors|Tokens|Chat|Preferences|Synthetic|Csv|MaskFolder|Texts)\b' \
    'tools/plan/recipes/(recipe\.h|data_section\.cpp)|tools/run/(data|pictures|texts)/[a-z_]+\.(h|cpp)'
}

[ "$(grep -lE 'kFamily = ' tools/plan/models/*.h | wc -l)" -ge 2 ] \
  || { echo "one_place: the families were not found" >&2; exit 1; }
found=$(faults)
if [ -n "$found" ]; then printf '%s\n' "$found" >&2; exit 1; fi

# Proves that the test detects each fault.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tools/plan/models" "$tree/tools/run/training"
cp tools/plan/models/*.h "$tree/tools/plan/models"
cd "$tree"
try() {  # LINE: one fault must be found
  printf '%s\n' "$1" >tools/run/training/a.cpp
  [ "$(faults | wc -l)" = 1 ] || { echo "one_place: does not see $1" >&2; exit 1; }
}
[ -z "$(faults)" ] || { echo "one_place: sees faults where there are none" >&2; exit 1; }
try 'const auto* model = std::get_if<Gpt2Model>(&recipe.model);'
try 'std::get<ResNetModel>(recipe.model).classes;'
try 'if (config.at("family") == "gpt2") return;'
try 'if (recipe.data.kind == DataSource::Kind::kIdx) return;'
echo "families and kinds of data stand in one place"
