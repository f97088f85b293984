// One function for each kind of data: it opens the data, checks them completely and gives their
// micro-batches. Each kind is one file and one line of this header. Only the sources of these kinds
// (tools/run/data, pictures and texts) and dataset.cpp include it.
#pragma once

#include <memory>

#include "tools/run/data/dataset.h"

namespace reprise {

// Opens data of one kind, as all functions below do. May return null for Split::kEvaluation. Throws
// UserError like open_dataset. `look` may be null.
std::unique_ptr<Dataset> open_idx(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_image_folder(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_tensors(const Recipe& recipe, Split split, DataLook* look);
// Opens kText, too, if bytes are the tokens.
std::unique_ptr<Dataset> open_tokens(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_text(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_chat(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_preferences(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_synthetic(const Recipe& recipe, Split split, DataLook* look);

std::unique_ptr<Dataset> open_table(const Recipe& recipe, Split split, DataLook* look);
std::unique_ptr<Dataset> open_mask_folder(const Recipe& recipe, Split split, DataLook* look);
// Opens kCsv, too, if the net reads texts.
std::unique_ptr<Dataset> open_texts(const Recipe& recipe, Split split, DataLook* look);

// The function that opens a kind of data.
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
