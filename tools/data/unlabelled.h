// What a person names without labels, as micro-batches for a net that says what it is: pictures in files and folders, or texts in files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/data/dataset.h"

namespace reprise {

struct UnlabelledSample {
  std::string place;  // "a.png", or "a.csv, line 7"
  std::string file;
  uint64_t line = 0;       // of a text: where it begins
  std::string text = {};   // of a text: itself
  std::optional<std::string> text_pair = {};  // and the second one of its row
  std::string fault = {};  // why it could not be read; of a picture, when its turn has come
};

// Places behind the last are padding, and so is a sample that cannot be read.
class UnlabelledSet : public Dataset {
 public:
  const std::vector<UnlabelledSample>& samples() const { return samples_; }

 protected:
  // Samples as the net reads them: of pairs each two, and a last one without another is beside padding.
  static uint64_t read_at_once(const Recipe& recipe, uint64_t samples) {
    const auto inputs = static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample());
    return (samples + inputs - 1) / inputs;
  }
  std::vector<UnlabelledSample> samples_;
};

// Of pictures the files, and all pictures of the folders and what lies in them, in the order of their names; resized and normalised as the
// recipe says. Of texts those of each file: of CSV and JSON (.csv, .json, .jsonl) a record's, which
// may be two of one row, else a line's that is not blank.
// Throws UserError where one is not there, or holds none.
std::unique_ptr<UnlabelledSet> open_unlabelled(const Recipe& recipe, const std::vector<std::string>& paths);

// Each of one kind.
std::unique_ptr<UnlabelledSet> open_given_pictures(const Recipe& recipe, const std::vector<std::string>& paths);
std::unique_ptr<UnlabelledSet> open_given_texts(const Recipe& recipe, const std::vector<std::string>& paths);

}  // namespace reprise
