// Gives the micro-batches of a training or an evaluation. Decides which samples a step reads, and
// copies their values sample by sample (lib/batch.h). A micro-batch depends only on its position in
// the training. A resumed run thus reads the same samples as an uninterrupted one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/batch.h"
#include "lib/plan.h"  // kIgnoredLabel
#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/fingerprint.h"

namespace reprise {

enum class Split { kTraining, kEvaluation };

// Access to a set whose loss compares log-probabilities with those of a second model, the
// reference. The reference's log-probabilities of a row must be set before fill() copies the row
// into a micro-batch.
class ReferencedRows {
 public:
  virtual ~ReferencedRows() = default;
  // Returns the rows that steps [first, end) read, each once, in ascending order. For an evaluation
  // set, first and end are micro-batches. May return more rows than needed.
  virtual std::vector<uint64_t> rows_read(uint64_t first, uint64_t end) const = 0;
  // Gives a micro-batch with these rows, at most `batch`, whether or not their references are set.
  // All other rows of the micro-batch have no pairs.
  virtual void fill_rows(const std::vector<uint64_t>& rows, BatchSink& sink) = 0;
  // Sets the log-probabilities of the answers in one row: two for each pair, in the order of the
  // pairs.
  virtual void set_reference(uint64_t row, const double (*answers)[2]) = 0;
};

// A set of samples; each kind of data implements it.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // Returns the number of samples. A sample is an image, a text, a row of several texts, or a
  // window of "sequence" tokens.
  uint64_t size() const { return size_; }

  // Returns the size of the set for messages: "60 conversations in 7 rows" if a row contains
  // several items, otherwise "60 samples".
  std::string contents() const {
    return contents_.empty() ? std::to_string(size_) + (size_ == 1 ? " sample" : " samples") : contents_;
  }

  // Returns the number of micro-batches that cover the set once. In an evaluation set the last
  // micro-batch may be partly empty.
  uint64_t micro_batches() const { return (size_ + batch_ - 1) / batch_; }

  // Gives micro-batch `micro` of step `step`, both from 0, to the sink. Returns how many of its
  // samples are real, not padding.
  //   images: input [batch, H, W, C] in the recipe's "dtype"; labels i32 [batch], or the form
  //           that the net's loss reads (label_form)
  //   tokens: input i32 [batch, sequence], labels i32 [batch, sequence] (the next token)
  // Training: sample order and augmentation are described in tools/FILES.md; all `batch` samples
  // are real. Evaluation: samples from step * batch on, in file order, not augmented; `micro` is 0.
  // After the last sample the input is 0 and the label kIgnoredLabel.
  // Uses a buffer of one sample; the calling thread does not allocate from the heap. Throws
  // UserError, for example if an image cannot be decoded.
  virtual uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) = 0;

  // Returns the number of labels in a training step, over all its micro-batches, that are not
  // kIgnoredLabel. The step's loss is divided by it. The default counts all labels; a set in which
  // samples may lack a label overrides it.
  virtual uint64_t labelled_in_step(uint64_t /*step*/) { return labels_in_step_; }

  // Returns the sum of the class weights of the labels that labelled_in_step() counts. Without
  // class weights this is the number of these labels. Judged pairs differ: labelled_in_step()
  // counts the pairs, and weight_in_step() counts the labels of all preferred conversations.
  virtual double weight_in_step(uint64_t step) { return static_cast<double>(labelled_in_step(step)); }
  // Returns the interface that sets the log-probabilities of the reference; null if the loss needs
  // none.
  virtual ReferencedRows* referenced() { return nullptr; }

  // Returns the fingerprint, which identifies the set. class_names() returns {} if classes have no
  // names.
  const DataFingerprint& fingerprint() const { return fingerprint_; }
  const std::vector<std::string>& class_names() const { return class_names_; }

  // Returns warnings, a line each: data that are probably not as intended, but no error. A training
  // and --check-data print them; a caller that only opens the set does not.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Returns facts about the set, a line each, for a user who checks it: counts of labels, the order
  // of classes.
  const std::vector<std::string>& notes() const { return notes_; }

  // Returns the number of files that were listed but not read when the set was opened, for example
  // pictures. check_file(n) reads file n and throws UserError if it is broken. check_file() may be
  // called on any thread.
  virtual uint64_t unread_files() const { return 0; }
  virtual void check_file(uint64_t) const {}

 protected:
  // Sets the size of the set; `labels` is the number of labels in one sample.
  void set_size(const Recipe& recipe, uint64_t size, uint64_t labels) {
    size_ = size;
    batch_ = static_cast<uint64_t>(recipe.batch);
    labels_in_step_ = static_cast<uint64_t>(recipe.micro_batches()) * batch_ * labels;
  }

  // Sets contents() for a set in which a row contains several items. `count` is the number of
  // items, and `what` their name in the plural ("conversations").
  void set_packed(uint64_t count, const char* what) {
    contents_ = std::to_string(count) + " " + what + " in " + std::to_string(size_) + (size_ == 1 ? " row" : " rows");
  }

  uint64_t size_ = 0;
  uint64_t batch_ = 1;
  uint64_t labels_in_step_ = 0;
  DataFingerprint fingerprint_;
  std::string contents_;  // "" if contents() is the number of samples
  std::vector<std::string> class_names_;
  std::vector<std::string> warnings_, notes_;
};

// Returns a line with the classes in their order and their weights: 0 is "cat", 1 is "dog". Returns
// "" if the labels are not named classes, or if each name is its number and there are no weights.
std::string class_order(const Recipe& recipe, const Dataset& data);

// Options and results of opening a set only to check it: faults of samples are collected here, not
// thrown.
struct DataLook {
  uint64_t max_bytes = UINT64_MAX;  // number of bytes that are checked of a file of tokens, text or records
  static constexpr size_t kMaxNamed = 100;
  uint64_t faults = 0;
  // The first kMaxNamed faults, a line each: samples, or pieces of a text, that would end a
  // training.
  std::vector<std::string> named;

  void add(std::string fault) {
    if (++faults <= kMaxNamed) named.push_back(std::move(fault));
  }
};

// Opens and checks the recipe's data: files, lengths, shapes and labels; pictures are only listed.
// The kEvaluation set is "eval_path", or the part that is held out of the training set, or the t10k
// files of an idx folder; null if there is none. Synthetic data have both sets. If `look` is given,
// faults of single samples are added to it, and these samples are left out of the set. Only a fault
// of the whole set is then thrown. Throws UserError.
std::unique_ptr<Dataset> open_dataset(const Recipe& recipe, Split split, DataLook* look = nullptr);

}  // namespace reprise
