// What call.h refuses.
#include "tools/graph/call.h"

#include <stdexcept>

namespace reprise::call_places {

Call make(const KernelInfo& kernel, const std::vector<PlacedArgument>& arguments, uint32_t attribute) {
  uint32_t count = kernel.arity();
  if (count > 0 && kernel.arguments[count - 1].role == Role::kScratch) --count;
  const auto refuse = [&kernel](uint32_t place, const std::string& what) {
    const std::string name = place < kernel.arity() ? kernel.arguments[place].name : "argument " + std::to_string(place);
    throw std::logic_error(std::string(kernel.name) + ": " + name + " " + what);
  };
  Call call = {kernel.op, kernel.pass, attribute, std::vector<ValueId>(count, kNoValue)};
  uint32_t named = 0;
  for (const PlacedArgument& argument : arguments) {
    if (argument.place >= kernel.arity()) refuse(argument.place, "is none of this kernel's");
    if (argument.place >= count) refuse(argument.place, "is found by the planner; a call does not name it");
    if ((named >> argument.place & 1) != 0) refuse(argument.place, "is named twice");
    named |= 1u << argument.place;
    call.arguments[argument.place] = argument.value;
  }
  for (uint32_t a = 0; a < count; ++a) {
    const ArgumentInfo& info = kernel.arguments[a];
    if (info.optional) continue;
    if ((named >> a & 1) == 0) refuse(a, "is missing; it is not optional");
    if (call.arguments[a] == kNoValue && info.role != Role::kOutput) refuse(a, "has no value; it is not optional");
  }
  return call;
}

}  // namespace reprise::call_places
