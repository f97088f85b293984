// See tied_head.h.
#include "tools/files/weights/tied_head.h"

#include <algorithm>

namespace reprise {
namespace {

const StoredWeight* find_floats(const WeightSource& source, const std::string& name) {
  const StoredWeight* weight = source.find(name);
  return weight != nullptr && (weight->exact == DType::kF32 || weight->exact == DType::kBf16) ? weight : nullptr;
}

bool same_numbers(const WeightSource& source, const std::string& a, const std::string& b,
                  const std::vector<uint64_t>& shape) {
  constexpr uint64_t kPiece = uint64_t{1} << 14;
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) elements *= dimension;
  std::vector<float> of_a(std::min(kPiece, elements)), of_b(of_a.size());
  for (uint64_t at = 0; at < elements; at += kPiece) {
    const uint64_t count = std::min(kPiece, elements - at);
    source.read(a, at, count, of_a.data());
    source.read(b, at, count, of_b.data());
    if (!std::equal(of_a.begin(), of_a.begin() + static_cast<int64_t>(count), of_b.begin())) return false;
  }
  return true;
}

}  // namespace

std::string find_embeddings(const WeightSource& source) {
  for (const char* embeddings : {"model.embed_tokens.weight", "transformer.wte.weight"}) {
    const std::string name = stored_name(source, embeddings);
    if (find_floats(source, name) != nullptr) return name;
  }
  return "";
}

bool has_other_head(const WeightSource& source) {
  const StoredWeight* head = find_floats(source, kHead);
  const std::string name = find_embeddings(source);
  if (head == nullptr || name.empty()) return false;
  return source.find(name)->shape != head->shape || !same_numbers(source, kHead, name, head->shape);
}

}  // namespace reprise
