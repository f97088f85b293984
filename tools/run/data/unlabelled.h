// Inputs without labels that a user names, as micro-batches for prediction: pictures in files and
// folders, or texts in files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/data/dataset.h"

namespace reprise {

// One input: a picture, or a text (or two texts of one row).
struct UnlabelledSample {
  std::string place;  // its location for messages: "a.png", or "a.csv, line 7"
  std::string file;
  uint64_t line = 0;                          // line at which a text begins; 0 for a picture
  std::string text = {};                      // the text; "" for a picture
  std::optional<std::string> text_pair = {};  // the second text of the same row
  std::string fault = {};                     // why it could not be read; for a picture it is known only after fill()
};

// A set for prediction. Positions after the last sample are padding; so are samples that cannot be
// read.
class UnlabelledSet : public Dataset {
 public:
  const std::vector<UnlabelledSample>& samples() const { return samples_; }

 protected:
  // Returns the number of the net's samples for `samples` inputs. For pairs two inputs are one
  // sample; a last input without a partner is paired with padding.
  static uint64_t read_at_once(const Recipe& recipe, uint64_t samples) {
    const auto inputs = static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample());
    return (samples + inputs - 1) / inputs;
  }
  std::vector<UnlabelledSample> samples_;
};

// Opens the inputs at `paths`. Pictures: the files, and all pictures in folders and their
// sub-folders, sorted by name, resized and normalised as in the recipe. Texts: each record of a CSV
// or JSON file (.csv, .json, .jsonl) has one text, or two texts of one row. In other files each
// line that is not blank is a text. Throws UserError if a path does not exist, or contains no
// picture or text.
std::unique_ptr<UnlabelledSet> open_unlabelled(const Recipe& recipe, const std::vector<std::string>& paths);

// Opens pictures, or texts: the two cases of open_unlabelled().
std::unique_ptr<UnlabelledSet> open_given_pictures(const Recipe& recipe, const std::vector<std::string>& paths);
std::unique_ptr<UnlabelledSet> open_given_texts(const Recipe& recipe, const std::vector<std::string>& paths);

}  // namespace reprise
