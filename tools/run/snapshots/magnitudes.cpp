// See magnitudes.h. A weight is read in pieces, which are decoded from its stored format.
#include "tools/run/snapshots/magnitudes.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/op.h"
#include "tools/files/formats/ggml_blocks.h"
#include "tools/plan/graph/graph.h"
#include "tools/run/snapshots/reach.h"

namespace reprise {
namespace {

uint32_t state_index(const Plan& plan, const std::string& name) {
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (plan.state[i].name == name) return i;
  }
  throw std::logic_error("the state has no tensor " + name);
}

// Adds the squares of the numbers to one sum for each row; for each column if the weight is [C,K]
// (`by_input`).
void add_squares(const Workers& workers, const std::vector<float>& numbers, uint64_t columns, bool by_input,
                 double* sums) {
  const auto square = [](float x) { return static_cast<double>(x) * static_cast<double>(x); };
  const uint64_t rows = numbers.size() / columns;
  if (by_input) {
    for (uint64_t i = 0; i < numbers.size(); ++i) sums[i % columns] += square(numbers[i]);
    return;
  }
  parallel_for(workers, static_cast<uint32_t>(rows), [&](uint32_t row) {
    for (uint64_t c = 0; c < columns; ++c) sums[row] += square(numbers[row * columns + c]);
  });
}

void read_weight(const Trainer& trainer, const InputFile* streamed, uint32_t weight, uint64_t at,
                 std::vector<unsigned char>& to) {
  const StateTensor& state = trainer.plan->state[weight];
  if (state.kind == StateKind::kStreamed) return streamed->read(state.tensor.offset + at, to.data(), to.size());
  require_reached(trainer.read(to.data(), trainer.state_tensor(weight) + at, to.size()));
}

// Returns the lengths of the rows of a weight [K,C] in State; of its columns if it is stored as
// [C,K] (`by_input`).
std::vector<float> lengths_of_rows(const Trainer& trainer, const InputFile* streamed, uint32_t weight, bool by_input) {
  constexpr uint64_t kPieceElements = uint64_t{1} << 18;
  const Tensor& tensor = trainer.plan->state[weight].tensor;
  const uint64_t rows = tensor.shape[0], columns = tensor.shape[1],
                 together = std::max<uint64_t>(1, kPieceElements / columns);
  std::vector<double> sums(by_input ? columns : rows);
  std::vector<unsigned char> stored;
  std::vector<float> numbers;
  for (uint64_t row = 0; row < rows; row += together) {
    numbers.resize(std::min(together, rows - row) * columns);
    stored.resize(stored_bytes(tensor.dtype, numbers.size()));
    read_weight(trainer, streamed, weight, stored_bytes(tensor.dtype, row * columns), stored);
    dequantise_blocks(block_type_of(tensor.dtype).value(), stored.data(),
                      numbers.size() / dtype_info(tensor.dtype).block_elements, numbers.data());
    add_squares(*trainer.context.workers, numbers, columns, by_input, sums.data() + (by_input ? 0 : row));
  }
  std::vector<float> lengths;
  for (const double sum : sums) lengths.push_back(static_cast<float>(std::sqrt(sum)));
  return lengths;
}

// Returns the index in State of the weight to which `ref` refers. If `ref` is a slot of a streamed
// weight, this is the weight that is loaded into the slot.
uint32_t weight_behind(const Program& program, Ref ref) {
  if (ref_region(ref) == Region::kState) return ref_index(ref);
  for (const Row& row : program.rows) {
    const Ref* refs = program.arguments.data + row.first_argument;
    if (row.op == Op::kLoad && refs[LoadStart::kW] == ref) return ref_index(refs[LoadStart::kFrom]);
  }
  throw std::logic_error("a slot that no row loads");
}

}  // namespace

void start_magnitudes(const Trainer& trainer, const InputFile* streamed) {
  const Plan& plan = *trainer.plan;
  const Program& program = plan.program(ProgramId::kMicroFirst);
  for (const Row& row : program.rows) {
    if (row.op != Op::kDora || row.pass != Pass::kStatistics) continue;
    const uint32_t weight = weight_behind(program, program.arguments[row.first_argument + DoraNorms::kW]);
    const std::string name = plan.state[weight].name, layer = name.substr(0, name.rfind('.'));
    const bool by_input = plan.attributes.of<LinearAttribute>()[row.attribute].input_major != 0;
    const std::vector<float> lengths = lengths_of_rows(trainer, streamed, weight, by_input);
    require_reached(trainer.write(trainer.state_tensor(state_index(plan, layer + kMagnitude)), lengths.data(),
                                  lengths.size() * sizeof(float)));
  }
}

}  // namespace reprise
