// Puts a kernel's arguments, given by their names, into the order of its kInfo. Only the header of
// the op's family defines the index of an argument. Code that used indices itself could become
// wrong without an error.
#pragma once

#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/op.h"

namespace reprise {

// One argument of K. `argument` is an enumerator of K, which is the argument's index; the
// enumerator of another kernel does not compile.
template <typename K, typename T>
struct NamedArgument {
  decltype(K::kArity) argument;
  T value;
};

template <typename T>
struct PlacedArgument {
  uint32_t place;
  std::optional<T> value;
};

// Returns the arguments in the kernel's order, without the scratch; an absent optional argument is
// empty. Throws std::logic_error with the kernel's and the argument's name for: an argument that is
// named twice; a required argument that is not named; a required argument without a value that is
// not an output; the scratch; an index that the kernel does not have.
template <typename T>
std::vector<std::optional<T>> in_order(const KernelInfo& kernel, const std::vector<PlacedArgument<T>>& arguments) {
  uint32_t count = kernel.arity();
  if (count > 0 && kernel.arguments[count - 1].role == Role::kScratch) --count;
  const auto refuse = [&kernel](uint32_t place, const std::string& what) {
    const std::string name =
        place < kernel.arity() ? kernel.arguments[place].name : "argument " + std::to_string(place);
    throw std::logic_error(std::string(kernel.name) + ": " + name + " " + what);
  };
  std::vector<std::optional<T>> ordered(count);
  uint32_t named = 0;
  for (const PlacedArgument<T>& argument : arguments) {
    if (argument.place >= kernel.arity()) refuse(argument.place, "is none of this kernel's");
    if (argument.place >= count) refuse(argument.place, "is found by the planner; a call does not name it");
    if ((named >> argument.place & 1) != 0) refuse(argument.place, "is named twice");
    named |= 1u << argument.place;
    ordered[argument.place] = argument.value;
  }
  for (uint32_t a = 0; a < count; ++a) {
    const ArgumentInfo& info = kernel.arguments[a];
    if (info.optional) continue;
    if ((named >> a & 1) == 0) refuse(a, "is missing; it is not optional");
    if (!ordered[a] && info.role != Role::kOutput) refuse(a, "has no value; it is not optional");
  }
  return ordered;
}

}  // namespace reprise
