// One function for each kind of data: opens it, checks it in full, gives its micro-batches.
// Here, inside tools/data, so that each kind is one file and one line of this one.
// It must not be included outside tools/data.
#pragma once

#include <memory>

#include "tools/data/dataset.h"

namespace reprise {

// Each may return null for Split::kEvaluation, and throws UserError as open_dataset does. `look` may be null.
std::unique_ptr<Dataset> open_idx(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_image_folder(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_tensors(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_tokens(const Recipe& recipe, Split split, DataLook* look);  // kText's bytes too
std::unique_ptr<Dataset> open_text(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_chat(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_preferences(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_synthetic(const Recipe& recipe, Split split, DataLook* look);

std::unique_ptr<Dataset> open_table(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_mask_folder(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_texts(const Recipe& recipe, Split split, DataLook* look);  // and kCsv's of a net of texts

struct DataOpener {
  DataSource::Kind kind;
  std::unique_ptr<Dataset> (*open)(const Recipe& recipe, Split split, DataLook* look);
};
constexpr DataOpener kDataOpeners[] = {
    {DataSource::Kind::kIdx, open_idx},
    {DataSource::Kind::kImageFolder, open_image_folder},
    {DataSource::Kind::kTensors, open_tensors},
    {DataSource::Kind::kTokens, open_tokens},
    {DataSource::Kind::kText, open_text},
    {DataSource::Kind::kChat, open_chat},
    {DataSource::Kind::kPreferences, open_preferences},
    {DataSource::Kind::kSynthetic, open_synthetic},
    {DataSource::Kind::kCsv, open_table},
    {DataSource::Kind::kMaskFolder, open_mask_folder},
    {DataSource::Kind::kTexts, open_texts},
};

}  // namespace reprise
