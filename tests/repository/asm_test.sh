#!/bin/sh
# Tests inline assembly: it is only in cuda/warp.h, and each statement tells the compiler its
# effects. A statement that touches memory, or orders accesses to it, is volatile and names
# "memory", so that no load or store moves across it. A statement that a whole warp executes
# together is volatile, so that it is neither moved into a branch nor dropped nor merged. An
# optimizer may handle a statement without these words correctly today: PTX shows only one result.
# The script first proves on a text of its own that it detects each fault.
set -eu
cd "$(dirname "$0")/../.."

# statements FILE: prints one a line, "line number: statement". A statement ends with a line that
# ends in ");".
statements() {
  awk '/(^|[^[:alnum:]_])asm[ (]/ && !inside { inside = 1; text = ""; first = FNR }
       inside { sub(/^[[:space:]]+/, ""); text = text " " $0 }
       inside && /\);[[:space:]]*}?[[:space:]]*(\/\/.*)?$/ { print first ":" text; inside = 0 }
       END { if (inside) print first ": a statement without an end" }' "$1"
}
memory='(cp\.async|ldmatrix|stmatrix|(ld|st|atom|red|bar|barrier|membar|fence)\.)'
faults() {
  statements "$1" | grep -E 'without an end' || true
  statements "$1" | grep -E "\"[^\"]*$memory[^\"]*\"" | grep -vE 'asm volatile\(.*: "memory"\)' \
    | sed 's/$/   <- touches or orders memory: asm volatile, "memory"/' || true
  statements "$1" | grep -E '"[^"]*\.sync[^"]*"' | grep -vE 'asm volatile\(' | sed 's/$/   <- a warp executes it together: asm volatile/' || true
}

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
# planted COUNT TEXT: requires that COUNT statements of the text are faults.
planted() {
  printf '%s\n' "$2" >"$scratch"
  [ "$(faults "$scratch" | wc -l)" = "$1" ] || { echo "of this, $1 faults must be seen: $2" >&2; faults "$scratch" >&2; exit 1; }
}
planted 0 'void f() { asm volatile("cp.async.commit_group;" : : : "memory"); }'
planted 1 'void f() { asm("cp.async.commit_group;" : : : "memory"); }'
planted 1 'void f() { asm volatile("cp.async.wait_group 0;"); }'
planted 1 '  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address));'
planted 2 '  asm("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");'
planted 0 '  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3};"
      : "+f"(c[0]));'
planted 1 '  asm(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3};"
      : "+f"(c[0]));'
planted 0 '  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));'
planted 1 '  asm volatile("membar.gl;");'
planted 1 '  asm volatile("never ends"'

found=$(faults cuda/warp.h)
if [ -n "$found" ]; then echo "cuda/warp.h: $found" >&2; exit 1; fi
count=$(statements cuda/warp.h | wc -l)
[ "$count" -ge 12 ] || { echo "cuda/warp.h has $count statements of inline assembly: the script no longer finds them" >&2; exit 1; }
elsewhere=$(grep -lrE '(^|[^[:alnum:]_"])asm[[:space:]]*(volatile[[:space:]]*)?\(' cuda | grep -v '^cuda/warp.h$' || true)
[ -z "$elsewhere" ] || { echo "inline assembly stands in cuda/warp.h alone, and not in: $elsewhere" >&2; exit 1; }
echo "$count statements of inline assembly say what they touch"
