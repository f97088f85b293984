// See bitsandbytes_weights.h.
#include "tools/files/weights/bitsandbytes_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/weight_blocks.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr const char* kState = ".quant_state.bitsandbytes__";
// kMaxStateBytes: maximum bytes of a quant_state. kKeptBlock: numbers in a block whose codes can be
// kept without conversion. kKeptGroups: blocks of NF4 in one block of NF4_DOUBLE.
constexpr uint64_t kMaxStateBytes = 1 << 16, kKeptBlock = 64, kKeptGroups = 8;
const char* const kParts[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"};

// The description of one quantised matrix: the state that bitsandbytes stores with it.
struct Packed {
  StoredWeight weight;
  // `block`: numbers in a block. `nested_block`: blocks in a group of double quantisation; 0 if the
  // magnitudes are f32.
  uint64_t block = 64, nested_block = 0;
  float offset = 0;
  std::vector<float> nested_map;
  uint64_t elements() const {
    uint64_t n = 1;
    for (const uint64_t d : weight.shape) n *= d;
    return n;
  }
};

class BitsandbytesWeights : public WeightSource {
 public:
  explicit BitsandbytesWeights(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {
    for (const std::string& name : source_->names()) {
      if (const size_t at = name.find(kState); at != std::string::npos)
        packed_[name.substr(0, at)] = read_packed(name, name.substr(0, at));
    }
  }

  const std::string& path() const override { return source_->path(); }
  std::vector<std::string> shards() const override { return source_->shards(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const std::string& name : source_->names()) {
      if (!is_part(name)) names.push_back(name);
    }
    return names;
  }
  const StoredWeight* find(const std::string& name) const override {
    const auto packed = packed_.find(name);
    if (packed != packed_.end()) return &packed->second.weight;
    return is_part(name) ? nullptr : source_->find(name);
  }

  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto found = packed_.find(name);
    if (found == packed_.end()) return source_->read_exact(name, first, count, to);
    const uint64_t begin = first / 2, end = (first + count + 1) / 2, block = found->second.block;
    const std::vector<unsigned char> pairs = bytes_of(name, begin, end - begin);
    const std::vector<float> largest = magnitudes(name, found->second, first / block, (first + count - 1) / block + 1);
    float* numbers = static_cast<float*>(to);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = first + i;
      const int place = pairs[at / 2 - begin] >> (at % 2 == 0 ? 4 : 0) & 0xf;
      numbers[i] = blocks::NF4::quantile(place) * largest[at / block - first / block];
    }
  }

  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto found = packed_.find(name);
    if (found == packed_.end()) return source_->read_stored(name, first, count, to);
    const Packed& packed = found->second;
    const std::vector<unsigned char> pairs = bytes_of(name, first / 2, count / 2);
    const uint64_t begin = first / kKeptBlock, end = (first + count) / kKeptBlock;
    unsigned char* at = static_cast<unsigned char*>(to);
    const auto put = [&at](const void* from, size_t bytes) {
      at = std::copy_n(static_cast<const unsigned char*>(from), bytes, at);
    };
    if (packed.weight.format == DType::kNF4) {
      const std::vector<float> largest = magnitudes(name, packed, begin, end);
      for (uint64_t b = 0; b < largest.size(); ++b) {
        put(&largest[b], sizeof(float));
        put(&pairs[b * kKeptBlock / 2], kKeptBlock / 2);
      }
      return;
    }
    const NestedCodes nested = nested_codes(name, packed, begin, end);
    for (uint64_t b = begin; b < end; b += kKeptGroups) {
      put(&nested.scale_of(b), sizeof(float));
      put(&packed.offset, sizeof(float));
      put(&nested.codes[b - begin], kKeptGroups);
      put(&pairs[(b - begin) * kKeptBlock / 2], kKeptGroups * kKeptBlock / 2);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& tensor, const std::string& reason) const {
    throw UserError(path() + ": tensor " + json_shown(tensor) + ": " + reason);
  }

  bool is_part(const std::string& name) const {
    if (name.find(kState) != std::string::npos) return true;
    const auto ends = [&](const char* part) {
      return name.ends_with(part) && packed_.count(name.substr(0, name.size() - std::strlen(part))) > 0;
    };
    return std::any_of(std::begin(kParts), std::end(kParts), ends);
  }

  std::vector<unsigned char> bytes_of(const std::string& name, uint64_t first, uint64_t count) const {
    std::vector<unsigned char> bytes(count);
    source_->read_exact(name, first, count, bytes.data());
    return bytes;
  }
  std::vector<float> floats_of(const std::string& name, uint64_t first, uint64_t count) const {
    std::vector<float> floats(count);
    source_->read(name, first, count, floats.data());
    return floats;
  }

  // Throws if the matrix has no part of this name, or if the part is not `count` numbers of type
  // `type`.
  void require_part(const std::string& part, DType type, uint64_t count) const {
    const StoredWeight* stored = source_->find(part);
    if (stored == nullptr) refuse(part, "missing; a matrix of bitsandbytes has it");
    uint64_t n = 1;
    for (const uint64_t d : stored->shape) n *= d;
    if (stored->exact != type || n != count) {
      refuse(part, "must be " + std::string(type == DType::kU8 ? "U8" : "F32") + " of " + std::to_string(count) +
                       " numbers, is " + stored->type + " of " + std::to_string(n));
    }
  }

  json read_state(const std::string& tensor) const {
    const StoredWeight& stored = *source_->find(tensor);
    if (stored.exact != DType::kU8 || stored.shape.size() != 1 || stored.shape[0] > kMaxStateBytes)
      refuse(tensor, "must be the bytes of a JSON object, U8");
    const std::vector<unsigned char> bytes = bytes_of(tensor, 0, stored.shape[0]);
    json state = json::parse(bytes.begin(), bytes.end(), nullptr, false);
    if (!state.is_object()) refuse(tensor, "must be the bytes of a JSON object");
    return state;
  }

  Packed read_packed(const std::string& tensor, const std::string& name) const {
    const json state = read_state(tensor);
    if (state.value("quant_type", json()) != "nf4")
      refuse(tensor, "quant_type: must be \"nf4\", not " + json_shown(state.value("quant_type", json())));
    const auto size_of = [&](const char* key, uint64_t low, uint64_t high) {
      const json value = state.value(key, json());
      if (!value.is_number_unsigned() || value.get<uint64_t>() < low || value.get<uint64_t>() > high) {
        refuse(tensor, std::string(key) + ": must be an integer from " + std::to_string(low) + " to " +
                           std::to_string(high) + ", not " + json_shown(value));
      }
      return value.get<uint64_t>();
    };
    Packed packed;
    const json shape = state.value("shape", json());
    const auto is_size = [](const json& d) {
      return d.is_number_unsigned() && d.get<uint64_t>() > 0 && d.get<uint64_t>() < uint64_t{1} << 32;
    };
    if (!shape.is_array() || shape.size() != 2 || !std::all_of(shape.begin(), shape.end(), is_size))
      refuse(tensor, "shape: must be the rows and columns of a matrix");
    packed.weight.shape = shape.get<std::vector<uint64_t>>();
    packed.block = size_of("blocksize", 32, 4096);
    const uint64_t blocks = (packed.elements() + packed.block - 1) / packed.block;
    require_part(name, DType::kU8, (packed.elements() + 1) / 2);
    if (state.contains("nested_blocksize")) {
      packed.nested_block = size_of("nested_blocksize", 32, 4096);
      const json offset = state.value("nested_offset", json());
      if (!offset.is_number()) refuse(tensor, "nested_offset: must be a number, not " + json_shown(offset));
      packed.offset = offset.get<float>();
      require_part(name + ".absmax", DType::kU8, blocks);
      require_part(name + ".nested_absmax", DType::kF32, (blocks + packed.nested_block - 1) / packed.nested_block);
      require_part(name + ".nested_quant_map", DType::kF32, 256);
      packed.nested_map = floats_of(name + ".nested_quant_map", 0, 256);
    } else {
      require_part(name + ".absmax", DType::kF32, blocks);
    }
    packed.weight.type = "NF4";
    packed.weight.exact = DType::kF32;
    packed.weight.bytes = source_->find(name)->bytes + source_->find(name + ".absmax")->bytes;
    packed.weight.format = kept_format(packed);
    return packed;
  }

  // Returns the format of lib that keeps the matrix's numbers exactly; nothing if there is none.
  // NF4_DOUBLE requires that the NF4 blocks of each NF4_DOUBLE block share a scale. It also
  // requires that the codes represent the values that lib uses.
  static std::optional<DType> kept_format(const Packed& packed) {
    const uint64_t columns = packed.weight.shape[1];
    if (packed.block != kKeptBlock || !are_whole_blocks(DType::kNF4, columns)) return std::nullopt;
    bool is_usual = packed.nested_map.size() == kDynamicCodes;
    for (uint32_t code = 0; is_usual && code < kDynamicCodes; ++code)
      is_usual = packed.nested_map[code] == dynamic_number(code, true);
    const bool has_one_scale = packed.nested_block > 0 && packed.nested_block % kKeptGroups == 0;
    return has_one_scale && is_usual && are_whole_blocks(DType::kNF4Double, columns) ? DType::kNF4Double : DType::kNF4;
  }

  // The data of double quantisation for blocks [begin, end): one code for each block, and one scale
  // for each group of blocks.
  struct NestedCodes {
    std::vector<unsigned char> codes;
    std::vector<float> scales;
    uint64_t block, first;  // blocks in a group, and the index of the first scale that was read
    const float& scale_of(uint64_t b) const { return scales[b / block - first]; }
  };
  NestedCodes nested_codes(const std::string& name, const Packed& packed, uint64_t begin, uint64_t end) const {
    const uint64_t first = begin / packed.nested_block, last = (end - 1) / packed.nested_block;
    return {bytes_of(name + ".absmax", begin, end - begin), floats_of(name + ".nested_absmax", first, last - first + 1),
            packed.nested_block, first};
  }

  // Returns the maximum magnitudes of blocks [begin, end). With double quantisation, code * scale
  // is rounded to f32 before the offset is added, as in bitsandbytes.
  std::vector<float> magnitudes(const std::string& name, const Packed& packed, uint64_t begin, uint64_t end) const {
    if (packed.nested_block == 0) return floats_of(name + ".absmax", begin, end - begin);
    const NestedCodes nested = nested_codes(name, packed, begin, end);
    std::vector<float> largest(nested.codes.size());
    for (uint64_t b = begin; b < end; ++b) {
      const double product =
          static_cast<double>(packed.nested_map[nested.codes[b - begin]]) * static_cast<double>(nested.scale_of(b));
      largest[b - begin] = static_cast<float>(product) + packed.offset;
    }
    return largest;
  }

  const std::unique_ptr<WeightSource> source_;
  std::map<std::string, Packed> packed_;
};

}  // namespace

bool has_bitsandbytes_weights(const WeightSource& source) {
  const std::vector<std::string> names = source.names();
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.find(kState) != std::string::npos; });
}

std::unique_ptr<WeightSource> open_bitsandbytes_weights(std::unique_ptr<WeightSource> source) {
  return std::make_unique<BitsandbytesWeights>(std::move(source));
}

}  // namespace reprise
