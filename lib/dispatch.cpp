// The one switch: a row's references become named arguments, and its kernel is called.
// Here so that neither trainer nor kernels know how a row is encoded.
// It must not check what check.h has proved.
#include "lib/op.h"
#include "lib/trainer.h"

namespace reprise {

namespace {

// A row's arguments by their place in kOps.
class Arguments {
 public:
  Arguments(const Trainer& trainer, const Program& program, const Row& row) : trainer_(trainer), program_(program), row_(row) {}

  Ref ref(uint32_t i) const { return program_.arguments[row_.first_argument + i]; }

  const Tensor& tensor(uint32_t i) const {
    const uint32_t index = ref_index(ref(i));
    switch (ref_region(ref(i))) {
      case Region::kState: return trainer_.plan->state[index].tensor;
      case Region::kCarried: return trainer_.plan->carried[index];
      case Region::kDisk: return program_.disk[index].tensor;
      default: return program_.slots[index].tensor;
    }
  }

  template <typename T>
  T* pointer(uint32_t i) const {
    if (ref(i) == kNoRef) return nullptr;
    return reinterpret_cast<T*>((trainer_.region(ref_region(ref(i))) + tensor(i).offset).for_kernels);
  }
  float* f32(uint32_t i) const { return pointer<float>(i); }
  int32_t* i32(uint32_t i) const { return pointer<int32_t>(i); }
  uint8_t* u8(uint32_t i) const { return pointer<uint8_t>(i); }
  StepScalars* scalars(uint32_t i) const { return pointer<StepScalars>(i); }
  void* scratch(uint32_t i) const { return pointer<void>(i); }
  uint64_t bytes(uint32_t i) const { return ref(i) == kNoRef ? 0 : tensor(i).bytes; }
  bool adds(uint32_t i) const { return (row_.accumulate >> i & 1u) != 0; }
  uint64_t elements(uint32_t i) const { return tensor(i).elements(); }

 private:
  const Trainer& trainer_;
  const Program& program_;
  const Row& row_;
};

// The same for a row whose activations are stored so.
template <typename Stored>
struct StoredArguments : Arguments {
  Stored* at(uint32_t i) const { return pointer<Stored>(i); }
};

template <typename Args>
using Kernel = Status (*)(const KernelContext&, const Args&);

// Calls a kernel, or in a probe only says whether there is one.
struct Caller {
  const KernelContext& context;
  bool probe;

  template <typename Args>
  Status operator()(Kernel<Args> kernel, const Args& args) const {
    if (kernel == nullptr) return {Code::kUnsupported, "the backend lacks a kernel that the plan calls", 0};
    return probe ? ok_status() : kernel(context, args);
  }
};

ConvShape conv_shape(const Tensor& x, const Tensor& y, const WindowAttribute& window) {
  return {x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2], y.shape[3], window};
}

template <typename Stored>
Status call_conv(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                 const Plan& plan) {
  const WindowAttribute& window = plan.attributes.window[row.attribute];
  const bool folds = row.op == Op::kNormConv;
  const uint32_t plain = row.pass == Pass::kForward ? 5 : 3;  // arguments before batch-norm's four and the scratch
  const InputNorm norm = folds ? InputNorm{a.f32(plain), a.f32(plain + 1), a.f32(plain + 2), a.f32(plain + 3)} : InputNorm{};
  const uint32_t scratch = folds ? plain + 4 : plain;
  switch (row.pass) {
    case Pass::kForward:
      return call(b.conv_forward, ConvForwardArgsOf<Stored>{a.at(0), a.at(3), a.f32(4), a.scratch(scratch), a.bytes(scratch),
                                                            conv_shape(a.tensor(3), a.tensor(0), window), norm, a.f32(1), a.f32(2)});
    case Pass::kBackwardData:
      return call(b.conv_backward_data, ConvBackwardDataArgsOf<Stored>{a.at(0), a.at(1), a.f32(2), a.scratch(3), a.bytes(3),
                                                                       conv_shape(a.tensor(0), a.tensor(1), window), a.adds(0)});
    default:
      return call(b.conv_backward_weight, ConvBackwardWeightArgsOf<Stored>{a.f32(0), a.at(1), a.at(2), a.scratch(scratch),
                                                                           a.bytes(scratch),
                                                                           conv_shape(a.tensor(1), a.tensor(2), window), a.adds(0),
                                                                           norm});
  }
}

template <typename Stored>
Status call_batch_norm(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                       const Plan& plan) {
  const NormAttribute& norm = plan.attributes.norm[row.attribute];
  const uint64_t M = norm.count;
  const uint32_t C = static_cast<uint32_t>(a.tensor(0).last_dimension());
  switch (row.pass) {
    case Pass::kStatistics:
      return call(b.batch_norm_statistics, BatchNormStatisticsArgsOf<Stored>{a.f32(0), a.f32(1), a.at(2), a.scratch(3), a.bytes(3), M,
                                                                             C, norm.epsilon});
    case Pass::kForward:
      return call(b.batch_norm_forward, BatchNormForwardArgsOf<Stored>{a.at(0), a.at(1), a.f32(2), a.f32(3), a.f32(4), a.f32(5), M, C});
    case Pass::kInference:
      return call(b.batch_norm_inference, BatchNormInferenceArgsOf<Stored>{a.at(0), a.at(1), a.f32(2), a.f32(3), a.f32(4), a.f32(5), M,
                                                                           C, norm.epsilon});
    default:
      return call(b.batch_norm_backward, BatchNormBackwardArgsOf<Stored>{a.at(0), a.f32(1), a.f32(2), a.at(3), a.f32(4), a.f32(5),
                                                                         a.f32(6), a.at(7), a.scratch(8), a.bytes(8), M, C, a.adds(1),
                                                                         a.adds(2), nullptr});
  }
}

template <typename Stored>
Status call_norm_relu(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                      const Plan& plan) {
  const uint64_t M = plan.attributes.norm[row.attribute].count;
  const uint32_t C = static_cast<uint32_t>(a.tensor(0).last_dimension());
  if (row.op == Op::kNormAddRelu) {
    return call(b.norm_add_relu_forward, NormAddReluArgsOf<Stored>{a.at(0), a.at(1), a.at(2), a.f32(3), a.f32(4), a.f32(5), a.f32(6), M, C});
  }
  return call(b.batch_norm_backward, BatchNormBackwardArgsOf<Stored>{a.at(0), a.f32(1), a.f32(2), a.at(3), a.f32(4), a.f32(5), a.f32(6),
                                                                     a.at(8), a.scratch(9), a.bytes(9), M, C, a.adds(1), a.adds(2),
                                                                     a.f32(7)});
}

Status call_running(const Backend& b, const Caller& call, const Arguments& a, const Row& row, const Plan& plan) {
  const NormAttribute& norm = plan.attributes.norm[row.attribute];
  const uint32_t C = static_cast<uint32_t>(a.tensor(0).last_dimension());
  return call(b.batch_norm_running, BatchNormRunningArgs{a.f32(0), a.f32(1), a.pointer<int64_t>(2), a.f32(3), a.f32(4), norm.count, C,
                                                         norm.epsilon, norm.momentum});
}

template <typename Stored>
Status call_layer_norm(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                       const Plan& plan) {
  const NormAttribute& norm = plan.attributes.norm[row.attribute];
  const uint64_t M = a.tensor(0).leading_elements();
  const uint32_t C = static_cast<uint32_t>(a.tensor(0).last_dimension());
  if (row.pass == Pass::kForward) {
    return call(b.layer_norm_forward, LayerNormForwardArgsOf<Stored>{a.at(0), a.f32(1), a.f32(2), a.at(3), a.f32(4), a.f32(5), M, C,
                                                                     norm.epsilon});
  }
  return call(b.layer_norm_backward, LayerNormBackwardArgsOf<Stored>{a.at(0), a.f32(1), a.f32(2), a.at(3), a.f32(4), a.f32(5),
                                                                     a.f32(6), a.at(7), a.scratch(8), a.bytes(8), M, C, a.adds(0),
                                                                     a.adds(1), a.adds(2)});
}

// Elementwise kernels: argument 0 from argument 1.
template <typename Stored>
UnaryArgsOf<Stored> unary(const StoredArguments<Stored>& a, bool tanh_form) {
  return {a.at(0), a.at(1), a.elements(0), a.adds(0), tanh_form};
}

template <typename Stored>
Status call_activation(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                       const Plan& plan) {
  const bool gelu = row.op == Op::kGelu;
  const bool tanh_form = gelu && plan.attributes.gelu[row.attribute].tanh_form != 0;
  if (row.pass == Pass::kForward) return call(gelu ? b.gelu_forward : b.relu_forward, unary(a, tanh_form));
  return call(gelu ? b.gelu_backward : b.relu_backward,
      ActivationBackwardArgsOf<Stored>{a.at(0), a.at(1), a.at(2), a.elements(0), tanh_form});
}

template <typename Stored>
Status call_pool(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                 const Plan& plan) {
  const bool forward = row.pass == Pass::kForward;
  if (row.op == Op::kGlobalPool) {
    const Tensor& image = a.tensor(forward ? 1 : 0);
    const GlobalPoolArgsOf<Stored> args = {a.at(0), a.at(1), image.shape[0], image.shape[1] * image.shape[2], image.shape[3], a.adds(0)};
    return call(forward ? b.global_pool_forward : b.global_pool_backward, args);
  }
  const Tensor &x = a.tensor(forward ? 2 : 0), &y = a.tensor(forward ? 0 : 2);
  const PoolShape shape = {x.shape[0], x.shape[1], x.shape[2], x.shape[3], y.shape[1], y.shape[2], plan.attributes.window[row.attribute]};
  if (forward) return call(b.max_pool_forward, MaxPoolForwardArgsOf<Stored>{a.at(0), a.u8(1), a.at(2), shape});
  return call(b.max_pool_backward, MaxPoolBackwardArgsOf<Stored>{a.at(0), a.u8(1), a.at(2), shape, a.adds(0)});
}

template <typename Stored>
Status call_linear(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                   const Plan& plan) {
  const auto rows = [&a](uint32_t i) { return a.tensor(i).leading_elements(); };
  const auto columns = [&a](uint32_t i) { return static_cast<uint32_t>(a.tensor(i).last_dimension()); };
  if (row.pass == Pass::kBackwardBias) {
    return call(b.linear_backward_bias, LinearBackwardBiasArgsOf<Stored>{a.f32(0), a.at(1), a.scratch(2), a.bytes(2), rows(1),
                                                                         columns(1), a.adds(0)});
  }
  const bool input_major = plan.attributes.linear[row.attribute].input_major != 0;
  switch (row.pass) {
    case Pass::kForward:
      return call(b.linear_forward, LinearForwardArgsOf<Stored>{a.at(0), a.at(1), a.f32(2), a.f32(3), a.scratch(4), a.bytes(4),
                                                                rows(1), columns(1), columns(0), input_major});
    case Pass::kBackwardData:
      return call(b.linear_backward_data, LinearBackwardDataArgsOf<Stored>{a.at(0), a.at(1), a.f32(2), a.scratch(3), a.bytes(3),
                                                                           rows(1), columns(0), columns(1), input_major, a.adds(0)});
    default:
      return call(b.linear_backward_weight, LinearBackwardWeightArgsOf<Stored>{a.f32(0), a.at(1), a.at(2), a.scratch(3), a.bytes(3),
                                                                               rows(1), columns(1), columns(2), input_major,
                                                                               a.adds(0)});
  }
}

template <typename Stored>
Status call_embedding(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row) {
  const auto table_rows = [&a](uint32_t i) { return a.ref(i) == kNoRef ? 0 : a.tensor(i).shape[0]; };
  if (row.pass == Pass::kForward) {
    const Tensor& y = a.tensor(0);
    return call(b.embedding_forward, EmbeddingForwardArgsOf<Stored>{a.at(0), a.i32(1), a.f32(2), a.f32(3), y.shape[0], y.shape[1],
                                                                    y.shape[2], table_rows(2), table_rows(3)});
  }
  const Tensor& dy = a.tensor(3);
  return call(b.embedding_backward, EmbeddingBackwardArgsOf<Stored>{a.f32(0), a.f32(1), a.i32(2), a.at(3), dy.shape[0], dy.shape[1],
                                                                    dy.shape[2], table_rows(0), table_rows(1), a.adds(0), a.adds(1)});
}

template <typename Stored>
Status call_attention(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row,
                      const Plan& plan) {
  const AttentionAttribute& attention = plan.attributes.attention[row.attribute];
  if (row.pass == Pass::kForward) {
    const Tensor& y = a.tensor(0);
    return call(b.attention_forward, AttentionForwardArgsOf<Stored>{a.at(0), a.f32(1), a.at(2), a.scalars(3), a.scratch(4), a.bytes(4),
                                                                    y.shape[0], y.shape[1], y.shape[2], attention});
  }
  const Tensor& y = a.tensor(2);
  return call(b.attention_backward, AttentionBackwardArgsOf<Stored>{a.at(0), a.at(1), a.at(2), a.f32(3), a.at(4), a.scalars(5),
                                                                    a.scratch(6), a.bytes(6), y.shape[0], y.shape[1], y.shape[2],
                                                                    attention});
}

template <typename Stored>
Status call_loss_head(const ActivationKernels<Stored>& b, const Caller& call, const StoredArguments<Stored>& a, const Row& row) {
  const bool backward = row.pass == Pass::kBackward;
  const Tensor &x = a.tensor(backward ? 4 : 1), &w = a.tensor(backward ? 5 : 2);
  const uint64_t M = x.leading_elements();
  if (backward) {
    return call(b.loss_head_backward, LossHeadBackwardArgsOf<Stored>{a.at(0), a.f32(1), a.f32(2), a.scalars(3), a.at(4), a.f32(5),
                                                                     a.f32(6), a.i32(7), a.scratch(8), a.bytes(8), M, w.shape[1],
                                                                     w.shape[0], a.adds(1), a.adds(2)});
  }
  return call(b.loss_head_evaluate, LossHeadEvaluateArgsOf<Stored>{a.scalars(0), a.at(1), a.f32(2), a.f32(3), a.i32(4), a.scratch(5),
                                                                   a.bytes(5), M, w.shape[1], w.shape[0]});
}

Status call_update(const Backend& b, const Caller& call, const Arguments& a, const Row& row, const Plan& plan) {
  const UpdateAttribute& u = plan.attributes.update[row.attribute];
  if (row.op == Op::kSgd) {
    return call(b.sgd_update, SgdArgs{a.f32(0), a.f32(1), a.f32(2), a.scalars(3), u.group.elements, u.weight_decay, u.momentum,
                                      u.nesterov != 0});
  }
  return call(b.adamw_update, AdamWArgs{a.f32(0), a.f32(1), a.f32(2), a.f32(3), a.scalars(4), u.group.elements, u.weight_decay,
                                        u.beta1, u.beta2, u.epsilon});
}

Status call_grad_norm(const Backend& b, const Caller& call, const Arguments& a, const Row& row, const Plan& plan) {
  if (row.pass == Pass::kFinish) {
    const uint32_t count = static_cast<uint32_t>(a.elements(1) * sizeof(float) / sizeof(double));
    return call(b.grad_norm_finish, GradNormFinishArgs{a.scalars(0), a.pointer<double>(1), count,
                                                       plan.attributes.clip[row.attribute].max_norm});
  }
  const GroupAttribute& group = plan.attributes.group[row.attribute];
  // A group of several tensors lies in Carried; a released gradient is a slot, alone.
  return call(b.grad_norm_reduce, GradNormReduceArgs{a.pointer<double>(0) + group.first_norm, a.f32(1), &a.tensor(1), group.tensors});
}

// Between memory and the disk, or from memory to memory, which is done when it is started.
template <typename Stored>
Status call_transfer(const ActivationKernels<Stored>& b, const HostAccess& host, const Disk& disk, const Caller& call, const StoredArguments<Stored>& a,
    const Row& row) {
  const bool starts = row.pass == Pass::kStart, writes = ref_region(a.ref(0)) == Region::kDisk;
  if (!writes && ref_region(a.ref(1)) != Region::kDisk) return starts ? call(b.copy_forward, unary(a, false)) : ok_status();
  if (call.probe) return ok_status();  // bind has looked for the disk
  const uint64_t offset = a.tensor(writes ? 0 : 1).offset, bytes = a.elements(0) * sizeof(Stored);
  if (!starts) return disk.wait(disk.state, offset);
  REPRISE_RETURN_IF_ERROR(host.synchronise(call.context));  // the disk is no part of the backend's order
  return writes ? disk.start_write(disk.state, offset, a.at(1), bytes) : disk.start_read(disk.state, offset, a.at(0), bytes);
}

// Rows over activations that are stored so.
template <typename Stored>
Status dispatch_to(const ActivationKernels<Stored>& b, const Trainer& trainer, const Caller& call, const StoredArguments<Stored>& a,
    const Row& row) {
  const Plan& plan = *trainer.plan;
  switch (row.op) {
    case Op::kConv:
    case Op::kNormConv: return call_conv(b, call, a, row, plan);
    case Op::kBatchNorm: return call_batch_norm(b, call, a, row, plan);
    case Op::kNormRelu:
    case Op::kNormAddRelu: return call_norm_relu(b, call, a, row, plan);
    case Op::kRelu:
    case Op::kGelu: return call_activation(b, call, a, row, plan);
    case Op::kAdd: return call(b.add_forward, AddArgsOf<Stored>{a.at(0), a.at(1), a.at(2), a.elements(0)});
    case Op::kCopy: return call(b.copy_forward, unary(a, false));
    case Op::kMaxPool:
    case Op::kGlobalPool: return call_pool(b, call, a, row, plan);
    case Op::kLinear: return call_linear(b, call, a, row, plan);
    case Op::kLayerNorm: return call_layer_norm(b, call, a, row, plan);
    case Op::kEmbedding: return call_embedding(b, call, a, row);
    case Op::kAttention: return call_attention(b, call, a, row, plan);
    case Op::kDropout:
      return call(b.dropout, DropoutArgsOf<Stored>{a.at(0), a.at(1), a.scalars(2), a.elements(0),
                                                   plan.attributes.dropout[row.attribute]});
    case Op::kLossHead: return call_loss_head(b, call, a, row);
    case Op::kMove: return call(b.move, unary(a, false));
    case Op::kTransfer: return call_transfer(b, trainer.backend->host, trainer.disk, call, a, row);
    default: return {Code::kBadPlan, "the row names no kernel", 0};
  }
}

}  // namespace

Status dispatch(const Trainer& trainer, const Program& program, const Row& row, bool probe) {
  const Backend& b = *trainer.backend;
  const Plan& plan = *trainer.plan;
  const Arguments a(trainer, program, row);
  KernelContext context = trainer.context;
  context.row = static_cast<uint32_t>(&row - program.rows.data);
  const Caller call = {context, probe};
  if (row.op == Op::kGradNorm) return call_grad_norm(b, call, a, row, plan);
  if (row.op == Op::kSgd || row.op == Op::kAdamW) return call_update(b, call, a, row, plan);
  if (row.op == Op::kBatchNorm && row.pass == Pass::kRunning) return call_running(b, call, a, row, plan);
  if (a.tensor(first_activation(kOps[kernel_index(row.op, row.pass)])).dtype == DType::kF32) return dispatch_to<float>(b, trainer,
      call, {a}, row);
  if (b.bf16 == nullptr) return {Code::kUnsupported, "the backend stores no activations as bf16", 0};
  return dispatch_to<Bf16>(*b.bf16, trainer, call, {a}, row);
}

}  // namespace reprise
