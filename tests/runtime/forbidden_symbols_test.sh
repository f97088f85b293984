#!/bin/sh
# Tests by their symbols that the objects of lib and ports use no heap, exceptions, RTTI or streams.
# They must also use no function of the C library whose last bit may differ between libraries.
# Reason: a single std::vector would bring in the heap and exceptions unseen, and the results of
# std::exp depend on the library. BUILD names the output folder.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
exec 9<"$build" && flock 9  # other tests make objects there
objects=$(find "$build/lib" "$build/ports" -name '*.o' 2>/dev/null || true)
if [ -z "$objects" ]; then echo "no objects in $build/lib: make it first" >&2; exit 1; fi
if nm $objects | grep -q '__asan_'; then echo "skipped: the sanitizers' build has symbols of its own"; exit 0; fi

# Mangled names: _Zn/_Zd(w|a|l) operator new/delete, _ZT(I|S|V) typeinfo and vtables, _ZNSt/_ZSt the
# C++ library.
forbidden='(malloc|calloc|realloc|free|posix_memalign|aligned_alloc|memalign|strdup|_Zn[wa].*|_Zd[la].*|__cxa_(throw|rethrow|allocate_exception|begin_catch|guard_acquire|atexit|bad_cast|pure_virtual)|__dynamic_cast|__gxx_personality_v0|_Unwind_Resume|_ZT[ISV].*|_ZNSt8ios_base.*|_ZSt4c(out|err|in|log)|_ZNK?St(7__cxx11)?.*(basic_)?(string|stream|ostream).*|_ZSt[0-9]+__throw.*|std::.*|(a?(sin|cos|tan)h?|sincos|atan2|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|erfc?|[lt]gamma)[fl]?)'

# symbols FILES: prints "object symbol" for every symbol that is referenced or defined.
symbols() { nm -A -P "$@" | awk '{ print $1, $2 }'; }
found=$(symbols $objects | grep -E " ($forbidden)\$" || true)
if [ -n "$found" ]; then
  printf '%s\n' "$found" | c++filt >&2
  echo "lib and ports must do without these" >&2
  exit 1
fi

# Proves that the test detects each kind of forbidden symbol.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
try() {
  printf '%s\n' "$1" >"$scratch/a.cpp"
  ${CXX:-g++} -std=c++20 -O1 -c "$scratch/a.cpp" -o "$scratch/a.o"
  symbols "$scratch/a.o" | grep -qE " ($forbidden)\$" || { echo "forbidden_symbols: does not see: $1" >&2; exit 1; }
}
try '#include <cstdlib>
void* f(unsigned long n) { return std::malloc(n); }'
try 'int* f() { return new int; }'
try 'void f(int* p) { delete[] p; }'
try 'void f() { throw 1; }'
try 'struct A { virtual int f() const; }; int A::f() const { return 1; }'
try '#include <iostream>
void f() { std::cout << 1; }'
try '#include <cmath>
double f(double x) { return std::log1p(x); }'
try '#include <cmath>
float f(float x) { return std::exp(x); }'
echo "$(printf '%s\n' $objects | wc -l) objects of lib and ports take no heap, throw nothing, know no streams and call nothing of libm that rounds in its own way"
