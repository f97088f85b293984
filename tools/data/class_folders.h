// Which pictures a folder holds: one sub-folder for each class, as torchvision's ImageFolder has it.
// Here because the list is made once, before a picture is decoded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// The sub-folders of `folder` in the order of their names: class 0, 1, ... Throws UserError where there is none, or more than `classes`.
std::vector<std::string> class_names(const std::string& folder, int classes);

// Whether the path has the ending of a picture that can be decoded.
bool is_picture(const std::string& path);

struct PictureList {
  struct Picture {
    std::string path;
    int32_t label;  // the class: its place in the names
  };
  std::vector<Picture> pictures;  // by class, then by name
  uint64_t left_out = 0;          // entries of class folders that have no picture's ending
  std::string first_left_out;     // its path
};

// Throws UserError where sub-folders are none of the classes, which those of `training_folder` name, or where there is no picture at all.
PictureList list_pictures(const std::string& folder, const std::vector<std::string>& names, const std::string& training_folder);

}  // namespace reprise
