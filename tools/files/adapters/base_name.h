// The name of a published model on the Hugging Face Hub, as its files or the recipe state it. PEFT
// loads an adapter together with the model that the adapter's folder names. The name of a local
// file would load nothing on another machine.
#pragma once

#include <string>

#include "tools/files/weights/model_files.h"

namespace reprise {

struct BaseName {
  std::string name;     // ORG/NAME if the name on the Hub is known; otherwise the name of the model's folder or file
  std::string said_by;  // where the name on the Hub was found; "" if none was found
  std::string doubt;    // a message about a name that was found and not used, with the reason; "" if there is none
};

// Returns the name of the model from the first source that gives one. The first source is
// model.hub_name of the recipe. For a GGUF file, general.source.* follows, then
// general.base_model.0 if its name contains the file's general.finetune. For a folder, its path in
// a cache of the Hub (models--ORG--NAME) follows, then _name_or_path in its config.json. The last
// source is the name of the file or folder itself.
BaseName base_name_of(const ModelPlace& place);

// True if the text has the form ORG/NAME of a model's name on the Hub.
bool is_hub_name(const std::string& name);

// Returns a line for the user: which model the adapter in `folder` names as its base, and how to
// load model and adapter.
std::string base_line(const ModelPlace& place, const std::string& folder);

}  // namespace reprise
