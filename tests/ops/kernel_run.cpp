// See kernel_run.h. The guards around every buffer are NaNs: what is read there poisons the result.
// Here so that one file holds the calls of all kernels.
// It must not know what the result should be.
#include "tests/ops/kernel_run.h"

#include <cstring>
#include <memory>

#include "tests/ref/kernel_data.h"

namespace reprise::test {
namespace {

// Memory aligned to kAlignment whose surroundings are NaN (as f32) and must stay so; one byte past the end is a fault.
class GuardedBuffer {
 public:
  // `odd_page` moves the start by kAlignment, so that two runs meet different addresses modulo larger powers of two.
  GuardedBuffer(uint64_t bytes, uint32_t poison, bool odd_page) : bytes_(bytes), storage_(bytes + 2 * kGuard + 3 * kAlignment, 0xff) {
    auto base = reinterpret_cast<uintptr_t>(storage_.data()) + kGuard;
    base = (base + 2 * kAlignment - 1) / (2 * kAlignment) * (2 * kAlignment) + (odd_page ? kAlignment : 0);
    data_ = reinterpret_cast<unsigned char*>(base);
    for (uint64_t i = 0; i < bytes; ++i) data_[i] = static_cast<unsigned char>(poison >> 8 * (i % 4));
  }
  unsigned char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool intact() const {
    for (const unsigned char* p = storage_.data(); p < storage_.data() + storage_.size(); ++p) {
      if ((p < data_ || p >= data_ + bytes_) && *p != 0xff) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t kGuard = 4096;
  uint64_t bytes_;
  std::vector<unsigned char> storage_;
  unsigned char* data_ = nullptr;
};

// A Bf16 converts from and to float alone.
template <typename T>
T element_as(double value) {
  if constexpr (std::is_same_v<T, Bf16>) return Bf16(static_cast<float>(value));
  else return static_cast<T>(value);
}
template <typename T>
T value_of(T element) { return element; }
inline float value_of(Bf16 element) { return element; }

template <typename T>
void write_as(const Array& values, unsigned char* out) {
  for (const double value : values) {
    const T element = element_as<T>(value);
    std::memcpy(out, &element, sizeof element);
    out += sizeof element;
  }
}
template <typename T>
std::vector<double> read_as(const Bytes& bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof element);
    values[i] = static_cast<double>(value_of(element));
  }
  return values;
}
void write_values(Element element, const Array& values, unsigned char* out) {
  switch (element) {
    case Element::kF32: return write_as<float>(values, out);
    case Element::kBf16: return write_as<Bf16>(values, out);
    case Element::kF64: return write_as<double>(values, out);
    case Element::kI32: return write_as<int32_t>(values, out);
    case Element::kI64: return write_as<int64_t>(values, out);
    case Element::kU8: return write_as<uint8_t>(values, out);
    case Element::kScalars: return;
  }
}

// Where the arguments of one call lie; absent ones are null.
struct CallArguments {
  void* pointers[kMaxArguments] = {};
  void* scratch = nullptr;
  uint64_t scratch_bytes = 0;

  float* f(uint32_t i) const { return static_cast<float*>(pointers[i]); }
  template <typename Stored>
  Stored* at(uint32_t i) const { return static_cast<Stored*>(pointers[i]); }
  StepScalars* scalars(uint32_t i) const { return static_cast<StepScalars*>(pointers[i]); }
};

// Calls the kernel of a case; the shapes of its argument struct come from the case's tensors.
template <typename Stored>
class KernelCall {
 public:
  KernelCall(const Backend& backend, const KernelContext& context, const KernelCase& c, const CallArguments& a)
      : backend_(backend), context_(context), case_(c), a_(a) {}

  Status operator()() const {
    switch (case_.op) {
      case Op::kConv:
      case Op::kNormConv: return conv();
      case Op::kBatchNorm: return batch_norm();
      case Op::kNormRelu: return norm_relu();
      case Op::kNormAddRelu: return norm_add_relu();
      case Op::kMaxPool: return max_pool();
      case Op::kGlobalPool: return global_pool();
      case Op::kLinear: return linear();
      case Op::kLayerNorm: return layer_norm();
      case Op::kEmbedding: return embedding();
      case Op::kAttention: return attention();
      case Op::kLossHead: return loss_head();
      case Op::kGradNorm: return grad_norm();
      case Op::kSgd:
      case Op::kAdamW: return update();
      default: return elementwise();
    }
  }

 private:
  const ActivationKernels<Stored>& kernels() const { return *backend_.template activations<Stored>(); }
  Stored* s(uint32_t i) const { return a_.template at<Stored>(i); }
  uint32_t dim(uint32_t argument, uint32_t d) const { return case_.tensor(argument).shape[d]; }
  bool adds(uint32_t i) const { return (case_.accumulate >> i & 1u) != 0; }

  Status conv() const {
    const uint32_t x = case_.pass == Pass::kForward ? 3 : case_.pass == Pass::kBackwardData ? 0 : 1;
    const uint32_t y = case_.pass == Pass::kForward ? 0 : case_.pass == Pass::kBackwardData ? 1 : 2;
    const ConvShape shape{.N = dim(x, 0), .H = dim(x, 1), .W = dim(x, 2), .C = dim(x, 3),
                          .P = dim(y, 1), .Q = dim(y, 2), .K = dim(y, 3), .window = case_.window};
    const uint32_t mean = case_.pass == Pass::kForward ? 5 : 3;
    const InputNorm norm = case_.op == Op::kNormConv ? InputNorm{a_.f(mean), a_.f(mean + 1), a_.f(mean + 2), a_.f(mean + 3)} : InputNorm{};
    if (case_.pass == Pass::kForward) {
      return kernels().conv_forward(context_, {s(0), s(3), a_.f(4), a_.scratch, a_.scratch_bytes, shape, norm, a_.f(1), a_.f(2)});
    }
    if (case_.pass == Pass::kBackwardData) {
      return kernels().conv_backward_data(context_, {s(0), s(1), a_.f(2), a_.scratch, a_.scratch_bytes, shape, adds(0)});
    }
    return kernels().conv_backward_weight(context_, {a_.f(0), s(1), s(2), a_.scratch, a_.scratch_bytes, shape, adds(0), norm});
  }

  Status batch_norm() const {
    const uint64_t M = case_.norm.count;
    const float epsilon = case_.norm.epsilon;
    switch (case_.pass) {
      case Pass::kStatistics:
        return kernels().batch_norm_statistics(
            context_, {a_.f(0), a_.f(1), s(2), a_.scratch, a_.scratch_bytes, M, dim(0, 0), epsilon});
      case Pass::kRunning:
        return backend_.batch_norm_running(context_, {a_.f(0), a_.f(1), static_cast<int64_t*>(a_.pointers[2]), a_.f(3), a_.f(4), M,
                                                      dim(0, 0), epsilon, case_.norm.momentum});
      case Pass::kForward:
        return kernels().batch_norm_forward(context_, {s(0), s(1), a_.f(2), a_.f(3), a_.f(4), a_.f(5), M, dim(2, 0)});
      case Pass::kInference:
        return kernels().batch_norm_inference(context_,
                                             {s(0), s(1), a_.f(2), a_.f(3), a_.f(4), a_.f(5), M, dim(2, 0), epsilon});
      default:
        return kernels().batch_norm_backward(context_, {s(0), a_.f(1), a_.f(2), s(3), a_.f(4), a_.f(5), a_.f(6), s(7),
                                                       a_.scratch, a_.scratch_bytes, M, dim(4, 0), adds(1), adds(2), nullptr});
    }
  }

  Status norm_relu() const {
    return kernels().batch_norm_backward(context_, {s(0), a_.f(1), a_.f(2), s(3), a_.f(4), a_.f(5), a_.f(6), s(8), a_.scratch,
                                                   a_.scratch_bytes, case_.norm.count, dim(4, 0), adds(1), adds(2), a_.f(7)});
  }

  Status norm_add_relu() const {
    return kernels().norm_add_relu_forward(
        context_, {s(0), s(1), s(2), a_.f(3), a_.f(4), a_.f(5), a_.f(6), case_.norm.count, dim(3, 0)});
  }

  Status elementwise() const {
    const uint64_t n = case_.tensor(0).elements();
    const UnaryArgsOf<Stored> unary{s(0), s(1), n, adds(0), case_.tanh_form};
    const ActivationBackwardArgsOf<Stored> backward{s(0), s(1), s(2), n, case_.tanh_form};
    const bool forward = case_.pass == Pass::kForward;
    switch (case_.op) {
      case Op::kRelu: return forward ? kernels().relu_forward(context_, unary) : kernels().relu_backward(context_, backward);
      case Op::kGelu: return forward ? kernels().gelu_forward(context_, unary) : kernels().gelu_backward(context_, backward);
      case Op::kAdd: return kernels().add_forward(context_, {s(0), s(1), s(2), n});
      case Op::kCopy: return kernels().copy_forward(context_, unary);
      case Op::kMove: return kernels().move(context_, unary);
      default: return kernels().dropout(context_, {s(0), s(1), a_.scalars(2), n, case_.dropout});
    }
  }

  Status max_pool() const {
    const uint32_t x = case_.pass == Pass::kForward ? 2 : 0, y = case_.pass == Pass::kForward ? 0 : 2;
    const PoolShape shape{.N = dim(x, 0), .H = dim(x, 1), .W = dim(x, 2), .C = dim(x, 3), .P = dim(y, 1), .Q = dim(y, 2),
                          .window = case_.window};
    const auto index = static_cast<uint8_t*>(a_.pointers[1]);
    if (case_.pass == Pass::kForward) return kernels().max_pool_forward(context_, {s(0), index, s(2), shape});
    return kernels().max_pool_backward(context_, {s(0), index, s(2), shape, adds(0)});
  }

  Status global_pool() const {
    const uint32_t x = case_.pass == Pass::kForward ? 1 : 0;
    const GlobalPoolArgsOf<Stored> args{s(0), s(1), dim(x, 0), dim(x, 1) * dim(x, 2), dim(x, 3), adds(0)};
    return case_.pass == Pass::kForward ? kernels().global_pool_forward(context_, args)
                                        : kernels().global_pool_backward(context_, args);
  }

  Status linear() const {
    const bool by_input = case_.input_major;
    switch (case_.pass) {
      case Pass::kForward:
        return kernels().linear_forward(context_, {s(0), s(1), a_.f(2), a_.f(3), a_.scratch, a_.scratch_bytes, dim(0, 0),
                                                  dim(1, 1), dim(0, 1), by_input});
      case Pass::kBackwardData:
        return kernels().linear_backward_data(context_, {s(0), s(1), a_.f(2), a_.scratch, a_.scratch_bytes, dim(0, 0),
                                                        dim(0, 1), dim(1, 1), by_input, adds(0)});
      case Pass::kBackwardWeight:
        return kernels().linear_backward_weight(context_, {a_.f(0), s(1), s(2), a_.scratch, a_.scratch_bytes, dim(1, 0),
                                                          dim(1, 1), dim(2, 1), by_input, adds(0)});
      default:
        return kernels().linear_backward_bias(context_,
                                             {a_.f(0), s(1), a_.scratch, a_.scratch_bytes, dim(1, 0), dim(1, 1), adds(0)});
    }
  }

  Status layer_norm() const {
    const uint64_t M = dim(3, 0);
    if (case_.pass == Pass::kForward) {
      return kernels().layer_norm_forward(
          context_, {s(0), a_.f(1), a_.f(2), s(3), a_.f(4), a_.f(5), M, dim(3, 1), case_.norm.epsilon});
    }
    return kernels().layer_norm_backward(context_, {s(0), a_.f(1), a_.f(2), s(3), a_.f(4), a_.f(5), a_.f(6), s(7),
                                                   a_.scratch, a_.scratch_bytes, M, dim(3, 1), adds(0), adds(1), adds(2)});
  }

  // Where the table or the positions are absent, V and L are those of a table as long as the data needs.
  Status embedding() const {
    const bool forward = case_.pass == Pass::kForward;
    const uint32_t tokens = forward ? 1 : 2, y = forward ? 0 : 3, table = forward ? 2 : 0, positions = forward ? 3 : 1;
    const uint32_t B = dim(tokens, 0), T = dim(tokens, 1), C = dim(y, 2);
    const uint32_t V = case_.has(table) ? dim(table, 0) : 5, L = case_.has(positions) ? dim(positions, 0) : 0;
    const auto indices = static_cast<const int32_t*>(a_.pointers[tokens]);
    if (forward) return kernels().embedding_forward(context_, {s(0), indices, a_.f(2), a_.f(3), B, T, C, V, L});
    return kernels().embedding_backward(context_, {a_.f(0), a_.f(1), indices, s(3), B, T, C, V, L, adds(0), adds(1)});
  }

  Status attention() const {
    const uint32_t y = case_.pass == Pass::kForward ? 0 : 2;
    const uint32_t B = dim(y, 0), T = dim(y, 1), C = dim(y, 2);
    if (case_.pass == Pass::kForward) {
      return kernels().attention_forward(
          context_, {s(0), a_.f(1), s(2), a_.scalars(3), a_.scratch, a_.scratch_bytes, B, T, C, case_.attention});
    }
    return kernels().attention_backward(context_, {s(0), s(1), s(2), a_.f(3), s(4), a_.scalars(5), a_.scratch,
                                                  a_.scratch_bytes, B, T, C, case_.attention});
  }

  Status loss_head() const {
    const bool backward = case_.pass == Pass::kBackward;
    const uint32_t x = backward ? 4 : 1;
    const uint64_t M = dim(x, 0);
    const uint32_t C = dim(x, 1), V = dim(x + 1, 0);
    const auto labels = static_cast<const int32_t*>(a_.pointers[x + 3]);
    if (backward) {
      return kernels().loss_head_backward(context_, {s(0), a_.f(1), a_.f(2), a_.scalars(3), s(4), a_.f(5), a_.f(6), labels,
                                                    a_.scratch, a_.scratch_bytes, M, C, V, adds(1), adds(2)});
    }
    return kernels().loss_head_evaluate(
        context_, {a_.scalars(0), s(1), a_.f(2), a_.f(3), labels, a_.scratch, a_.scratch_bytes, M, C, V});
  }

  Status grad_norm() const {
    if (case_.pass == Pass::kReduce) {
      return backend_.grad_norm_reduce(context_, {static_cast<double*>(a_.pointers[0]), a_.f(1), case_.group.data(),
                                                  static_cast<uint32_t>(case_.group.size())});
    }
    return backend_.grad_norm_finish(
        context_, {a_.scalars(0), static_cast<const double*>(a_.pointers[1]), dim(1, 0), case_.max_norm});
  }

  Status update() const {
    const UpdateAttribute& u = case_.update;
    const uint64_t n = case_.tensor(0).elements();
    if (case_.op == Op::kSgd) {
      return backend_.sgd_update(
          context_, {a_.f(0), a_.f(1), a_.f(2), a_.scalars(3), n, u.weight_decay, u.momentum, u.nesterov != 0});
    }
    return backend_.adamw_update(context_, {a_.f(0), a_.f(1), a_.f(2), a_.f(3), a_.scalars(4), n, u.weight_decay, u.beta1,
                                            u.beta2, u.epsilon});
  }

  const Backend& backend_;
  const KernelContext& context_;
  const KernelCase& case_;
  const CallArguments& a_;
};

}  // namespace

Element element_of(const KernelCase& c, uint32_t i) {
  if (c.op == Op::kGradNorm && c.tensor(i).dtype == DType::kI64) return Element::kF64;
  switch (c.tensor(i).dtype) {
    case DType::kI32: return Element::kI32;
    case DType::kI64: return Element::kI64;
    case DType::kU8: return c.info().arguments[i].name == std::string("scalars") ? Element::kScalars : Element::kU8;
    case DType::kBf16: return Element::kBf16;
    default: return Element::kF32;
  }
}

std::vector<double> read_values(Element element, const Bytes& bytes) {
  switch (element) {
    case Element::kF64: return read_as<double>(bytes);
    case Element::kBf16: return read_as<Bf16>(bytes);
    case Element::kI32: return read_as<int32_t>(bytes);
    case Element::kI64: return read_as<int64_t>(bytes);
    case Element::kU8: return read_as<uint8_t>(bytes);
    default: return read_as<float>(bytes);
  }
}

uint64_t scratch_bytes_of(const Backend& backend, const KernelCase& c) {
  const uint32_t arity = c.info().arity();
  if (c.info().arguments[arity - 1].role != Role::kScratch) return 0;
  const Tensor* tensors[kMaxArguments] = {};
  for (uint32_t i = 0; i < c.arguments.size(); ++i) tensors[i] = c.has(i) ? &c.tensor(i) : nullptr;
  return backend.scratch_bytes(c.op, c.pass, tensors);
}

RunResult run_case(const Backend& backend, const KernelCase& c, const CaseData& data, const RunOptions& options) {
  const KernelInfo& info = c.info();
  const uint64_t scratch_bytes = scratch_bytes_of(backend, c);
  GuardedBuffer scratch(scratch_bytes, options.poison, options.odd_page);
  CallArguments arguments{.scratch = scratch_bytes != 0 ? scratch.data() : nullptr, .scratch_bytes = scratch_bytes};
  std::vector<std::unique_ptr<GuardedBuffer>> buffers(c.arguments.size());
  std::vector<Bytes> before(c.arguments.size());
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.has(i)) continue;
    buffers[i] = std::make_unique<GuardedBuffer>(c.tensor(i).elements() * dtype_bytes(c.tensor(i).dtype), options.poison,
                                                 options.odd_page);
    if (element_of(c, i) == Element::kScalars) std::memcpy(buffers[i]->data(), &data.scalars, sizeof data.scalars);
    write_values(element_of(c, i), data.values[i], buffers[i]->data());
    before[i].assign(buffers[i]->data(), buffers[i]->data() + buffers[i]->bytes());
    arguments.pointers[i] = buffers[i]->data();
  }
  const auto shared_output = static_cast<uint32_t>(info.in_place_output), shared_input = static_cast<uint32_t>(info.in_place_input);
  if (options.in_place) arguments.pointers[shared_output] = arguments.pointers[shared_input];

  StepScalars found = {};  // of a step that has had no fault
  const KernelContext context{.workers = options.workers, .row = kCallingRow, .scalars = &found};
  RunResult result;
  result.status = stores_bf16(c) ? KernelCall<Bf16>(backend, context, c, arguments)() : KernelCall<float>(backend, context, c, arguments)();
  result.data_fault = found.fault;
  if (found.skip != (found.fault.code != DataFault::kNone)) result.fault += "a fault in data and skip go together; ";
  result.outputs.resize(c.arguments.size());
  if (!scratch.intact()) result.fault += "wrote outside its scratch; ";
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.has(i)) continue;
    const auto* bytes = static_cast<const unsigned char*>(arguments.pointers[i]);
    const Bytes after(bytes, bytes + before[i].size());
    if (!buffers[i]->intact()) result.fault += std::string("wrote outside ") + info.arguments[i].name + "; ";
    const bool input = info.arguments[i].role == Role::kInput;
    const bool shared = options.in_place && i == shared_input;
    if (input && !shared && after != before[i]) result.fault += std::string("changed its input ") + info.arguments[i].name + "; ";
    if (!input && element_of(c, i) == Element::kScalars) std::memcpy(&result.scalars, after.data(), sizeof result.scalars);
    if (!input) result.outputs[i] = after;
  }
  return result;
}

}  // namespace reprise::test
