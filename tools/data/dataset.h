// Micro-batches: which samples a step sees, and their values, handed on sample by sample (lib/batch.h).
// A position in the training gives its batch again, nothing is remembered: a resumed run sees what the first would have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/batch.h"
#include "lib/plan.h"  // kIgnoredLabel
#include "tools/data/fingerprint.h"
#include "tools/recipes/recipe.h"

namespace reprise {

enum class Split { kTraining, kEvaluation };

// Rows of pairs whose answers are judged beside what another model, the reference, says of them. What it says must be set before a row is
// filled for a step or an evaluation.
class ReferencedRows {
 public:
  virtual ~ReferencedRows() = default;
  // Those that steps [first, end) read, or of an evaluation set its micro-batches; each once, rising.
  virtual std::vector<uint64_t> rows_read(uint64_t first, uint64_t end) const = 0;
  // A micro-batch of these rows, `batch` at most, whatever their reference; the rest has no pair.
  virtual void fill_rows(const std::vector<uint64_t>& rows, BatchSink& sink) = 0;
  // Of one row: the log-probabilities of the answers of its pairs, in their order.
  virtual void set_reference(uint64_t row, const double (*answers)[2]) = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Samples in the set: images, or windows of "sequence" tokens.
  uint64_t size() const { return size_; }

  // Micro-batches that cover the set once; the last of the evaluation set may be partly empty.
  uint64_t micro_batches() const { return (size_ + batch_ - 1) / batch_; }

  // Gives micro-batch `micro` of step `step`, both from 0, and returns how many of its samples are real.
  //   images: input [batch, H, W, C], stored as the recipe's "dtype" says, labels i32 [batch], or as the net's loss wants them (label_form)
  //   tokens: input i32 [batch, sequence], labels i32 [batch, sequence] (the next token)
  // Training: sample order and augmentation of tools/FORMATS.md; always `batch` real samples.
  // Evaluation: samples step*batch .. in file order, never augmented (micro is 0); past the end the input is 0 and the
  // label kIgnoredLabel.
  // Each sample is made in a buffer of its own size. No heap allocation on the calling thread. Throws UserError (an image that cannot be decoded).
  virtual uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) = 0;

  // Labels of a step of the training, over all its micro-batches, that are not kIgnoredLabel: what its loss is divided by. Here all of them;
  // a set that knows samples without a label counts.
  virtual uint64_t labelled_in_step(uint64_t /*step*/) { return labels_in_step_; }

  // What these labels count by the weights of their classes; without such as many as they are. Where pairs of answers are judged, labelled_in_step
  // counts these, and this the labels of whole preferred conversations.
  virtual double weight_in_step(uint64_t step) { return static_cast<double>(labelled_in_step(step)); }
  // Null where no answer has a reference.
  virtual ReferencedRows* referenced() { return nullptr; }

  // What the set is known by again, and the names of its classes; none where they have no names.
  const DataFingerprint& fingerprint() const { return fingerprint_; }
  const std::vector<std::string>& class_names() const { return class_names_; }

  // What is hardly meant and no error, a line each. Whoever trains on the set, or checks it, says them; whoever only opens it does not.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Files that opening only lists: pictures. check_file reads one of them and throws UserError where it is broken; from any thread.
  virtual uint64_t unread_files() const { return 0; }
  virtual void check_file(uint64_t) const {}

 protected:
  // `labels`: of one sample.
  void set_size(const Recipe& recipe, uint64_t size, uint64_t labels) {
    size_ = size;
    batch_ = static_cast<uint64_t>(recipe.batch);
    labels_in_step_ = static_cast<uint64_t>(recipe.micro_batches()) * batch_ * labels;
  }

  uint64_t size_ = 0;
  uint64_t batch_ = 1;
  uint64_t labels_in_step_ = 0;
  DataFingerprint fingerprint_;
  std::vector<std::string> class_names_;
  std::vector<std::string> warnings_;
};

// For whoever opens data in order to look at them, before anybody trains on them.
struct DataLook {
  uint64_t most_bytes = UINT64_MAX;  // of a file of tokens, text or conversations: what lies behind is not looked at
  static constexpr size_t kMostNamed = 100;
  uint64_t faults = 0;
  std::vector<std::string> named;  // the first of them, a line each: conversations, and stretches of text, that end a training

  void add(std::string fault) {
    if (++faults <= kMostNamed) named.push_back(std::move(fault));
  }
};

// Opens and checks the recipe's data: files, lengths, shapes, labels, all but the contents of pictures. Throws UserError.
// Evaluation: "eval_path"; else what is held out of the training set, and for idx the t10k files beside it; null where there is none.
// Synthetic data have both.
// With a look, what it can name is left out of the set and named there, and only what is wrong with the set as a whole is thrown.
std::unique_ptr<Dataset> open_dataset(const Recipe& recipe, Split split, DataLook* look = nullptr);

}  // namespace reprise
