// Implements simulate.h: the memory of PLANNING 4 (Rotor's bounds), and a check of what each
// action may read.
#include "tools/plan/schedule/simulate.h"

#include <algorithm>

namespace reprise {
namespace {

class Walk {
 public:
  Walk(const Chain& chain, const DiskLevel& disk)
      : chain_(chain),
        disk_(disk),
        length_(chain.length()),
        kept_(length_ + 1, false),
        tape_(length_, -1),
        mode_(length_, -1),
        gradient_(length_) {
    kept_[0] = true;
    live_bytes_ = chain.boundary_bytes(0) + chain.boundary_bytes(length_);
    peak_bytes_ = live_bytes_;
  }

  // Simulates one action. Returns its fault, or an empty string if it has none.
  std::string step(const Action& action) {
    const int first = action.first;
    if (first < 0 || first > length_ - (action.kind == ActionKind::kDrop ? 0 : 1))
      return "names a link outside the chain";
    switch (action.kind) {
      case ActionKind::kAdvance: return advance(first, action.last, action.choice);
      case ActionKind::kRecord: return record(first, action.choice);
      case ActionKind::kBackward: return backward(first);
      case ActionKind::kDrop: return drop(first);
      case ActionKind::kWrite: return write(first);
      case ActionKind::kRead: return read(first);
    }
    return "is of no known kind";
  }

  std::string left_live() const {
    if (gradient_ != 0) return "the schedule ends before the backward of link 0";
    if (!on_disk_.empty()) return "boundary " + std::to_string(on_disk_.back()) + " is left on disk at the end";
    for (int i = 0; i < length_; ++i) {
      if (kept_[i + 1]) return "boundary " + std::to_string(i + 1) + " is left live at the end";
      if (tape_[i] >= 0) return "the tape of link " + std::to_string(i) + " is left live at the end";
      if (mode_[i] >= 0) return "the residue of link " + std::to_string(i) + " is left live at the end";
    }
    return "";
  }

  double makespan() const { return makespan_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  uint64_t disk_bytes() const { return disk_peak_bytes_; }

 private:
  bool readable(int boundary) const { return kept_[boundary] || (boundary > 0 && tape_[boundary - 1] >= 0); }
  void touch(uint64_t bytes_beside) { peak_bytes_ = std::max(peak_bytes_, live_bytes_ + bytes_beside); }
  double forward_cost(int i) const {
    return mode_[i] < 0 ? chain_.links[i].forward_cost : chain_.links[i].residues[mode_[i]].forward_cost;
  }

  std::string advance(int first, int last, int mode) {
    if (last <= first || last >= length_) return "advances to a boundary that is none";
    if (!readable(first)) return "reads boundary " + std::to_string(first) + ", which is not live";
    if (readable(last)) return "keeps boundary " + std::to_string(last) + " twice";
    std::vector<int> fresh;
    for (int t = first; t < last; ++t) {
      if (tape_[t] >= 0) return "runs forward over the live tape of link " + std::to_string(t);
      makespan_ += forward_cost(t);
      if (mode_[t] >= 0 && mode_[t] != mode) return "changes the residue of link " + std::to_string(t);
      if (mode >= static_cast<int>(chain_.links[t].residues.size())) return "asks for a residue mode that is none";
      if (mode >= 0 && mode_[t] < 0) fresh.push_back(t);
    }
    for (int t : fresh) {
      mode_[t] = mode;
      live_bytes_ += chain_.links[t].residues[mode].bytes;
    }
    for (int t = first; t < last; ++t) {
      const uint64_t input_bytes = t > first ? chain_.boundary_bytes(t) : 0;  // boundary `first` is already live
      touch(input_bytes + chain_.boundary_bytes(t + 1) + chain_.links[t].forward_scratch_bytes);
    }
    kept_[last] = true;
    live_bytes_ += chain_.boundary_bytes(last);
    return "";
  }

  std::string record(int i, int choice) {
    const Link& link = chain_.links[i];
    if (choice < 0 || choice >= static_cast<int>(link.tapes.size())) return "records a tape that is none";
    if (!readable(i)) return "reads boundary " + std::to_string(i) + ", which is not live";
    if (tape_[i] >= 0 || kept_[i + 1]) return "records link " + std::to_string(i) + " twice";
    makespan_ += mode_[i] < 0 ? link.forward_cost : link.residues[mode_[i]].record_cost(choice);
    const uint64_t residue_bytes = mode_[i] < 0 ? 0 : link.residues[mode_[i]].bytes;
    tape_[i] = choice;
    live_bytes_ += link.tape_bytes(choice, mode_[i]) - residue_bytes;
    touch(link.tapes[choice].forward_scratch_bytes);
    return "";
  }

  std::string backward(int i) {
    const Link& link = chain_.links[i];
    if (gradient_ != i + 1)
      return "is out of order: the live gradient is that of boundary " + std::to_string(gradient_);
    if (tape_[i] < 0) return "reads the tape of link " + std::to_string(i) + ", which is not live";
    if (!readable(i)) return "reads boundary " + std::to_string(i) + ", which is not live";
    makespan_ += link.tapes[tape_[i]].backward_cost;
    live_bytes_ += chain_.boundary_bytes(i);
    touch(link.tapes[tape_[i]].scratch_bytes);
    live_bytes_ -= link.tape_bytes(tape_[i], mode_[i]) + chain_.boundary_bytes(i + 1);
    tape_[i] = -1;
    mode_[i] = -1;
    gradient_ = i;
    if (!on_disk_.empty() && on_disk_.back() == i) {
      disk_bytes_ -= chain_.boundary_bytes(i);
      on_disk_.pop_back();
    }
    return "";
  }

  std::string drop(int boundary) {
    if (boundary == 0 || !kept_[boundary])
      return "drops boundary " + std::to_string(boundary) + ", which no advance keeps";
    kept_[boundary] = false;
    live_bytes_ -= chain_.boundary_bytes(boundary);
    return "";
  }

  std::string write(int boundary) {
    if (boundary == 0 || !kept_[boundary])
      return "writes boundary " + std::to_string(boundary) + ", which no advance keeps";
    if (!on_disk_.empty() && on_disk_.back() >= boundary)
      return "writes boundary " + std::to_string(boundary) + " out of its nesting";
    makespan_ += disk_.write_cost * static_cast<double>(chain_.boundary_bytes(boundary));
    on_disk_.push_back(boundary);
    disk_bytes_ += chain_.boundary_bytes(boundary);
    disk_peak_bytes_ = std::max(disk_peak_bytes_, disk_bytes_);
    return "";
  }

  std::string read(int boundary) {
    if (std::find(on_disk_.begin(), on_disk_.end(), boundary) == on_disk_.end()) {
      return "reads boundary " + std::to_string(boundary) + ", which is not on disk";
    }
    if (readable(boundary)) return "keeps boundary " + std::to_string(boundary) + " twice";
    makespan_ += disk_.read_cost * static_cast<double>(chain_.boundary_bytes(boundary));
    kept_[boundary] = true;
    live_bytes_ += chain_.boundary_bytes(boundary);
    touch(0);
    return "";
  }

  const Chain& chain_;
  const DiskLevel disk_;
  int length_;
  std::vector<bool> kept_;  // boundaries that an advance kept or a read returned
  std::vector<int> tape_;   // live tape of each link; -1: none
  std::vector<int> mode_;   // live residue of each link; -1: none
  int gradient_;            // boundary whose gradient is live
  std::vector<int> on_disk_;  // boundaries on disk, the latest written last
  uint64_t disk_bytes_ = 0, disk_peak_bytes_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  double makespan_ = 0;
};

}  // namespace

Simulation simulate(const Chain& chain, std::span<const Action> actions, const DiskLevel& disk) {
  Walk walk(chain, disk);
  Simulation result;
  for (size_t n = 0; n < actions.size() && result.fault.empty(); ++n) {
    result.fault = walk.step(actions[n]);
    result.fault_action = n;
  }
  if (result.fault.empty()) result.fault_action = actions.size();
  if (result.fault.empty()) result.fault = walk.left_live();
  result.valid = result.fault.empty();
  result.makespan = walk.makespan();
  result.peak_bytes = walk.peak_bytes();
  result.disk_bytes = walk.disk_bytes();
  return result;
}

double store_all_cost(const Chain& chain) {
  double cost = 0;
  for (const Link& link : chain.links) cost += link.forward_cost + link.tapes[0].backward_cost;
  return cost;
}

}  // namespace reprise
