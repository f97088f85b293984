// Lists the pictures of a folder that has one sub-folder for each class, the layout of
// torchvision's ImageFolder. The list is made once, before a picture is decoded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// Returns the names of the sub-folders of `folder` in the order of sort_class_names; the index of a
// name is its class. Throws UserError if there is no sub-folder, or if there are more than
// `classes`.
std::vector<std::string> class_names(const std::string& folder, int classes);

// True if the path's last part names an entry that a system or a program keeps for its own use.
// Such a name begins with a dot (.git, .DS_Store, the ._NAME of a Mac's archive), or is __MACOSX,
// Thumbs.db or desktop.ini. Code that lists a folder skips these entries.
bool is_hidden(const std::string& path);

// True if the path has the ending of a picture format that can be decoded, and is not hidden.
bool is_picture(const std::string& path);

// Sorts names of classes: by value if all of them are numbers, otherwise by their bytes.
void sort_class_names(std::vector<std::string>& names);

// The result of listing the class folders.
struct PictureList {
  struct Picture {
    std::string path;
    int32_t label;  // the class: an index into the class names
  };
  std::vector<Picture> pictures;  // sorted by folder, then by name
  uint64_t left_out = 0;       // entries of class folders that are not hidden and do not have the ending of a picture
  std::string first_left_out;  // path of the first such entry; "" if there is none
};

// Returns the pictures in the sub-folders of `folder`. `names` are the classes, taken from
// `training_folder`. Throws UserError if a sub-folder is not in `names`, or if there is no picture.
PictureList list_pictures(const std::string& folder, const std::vector<std::string>& names,
                          const std::string& training_folder);

}  // namespace reprise
