// Texts and their labels from a file of records, CSV or JSON. The tokens stay in memory.
#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/data/held_out.h"
#include "tools/run/data/label_columns.h"
#include "tools/run/data/sources.h"
#include "tools/run/texts/text_reader.h"
#include "tools/run/texts/text_set.h"

namespace reprise {
namespace {

std::unique_ptr<Dataset> open_part_of_texts(const Recipe& recipe, Split split, const DataPart& part) {
  const auto records = open_records(part.path());
  const LabelColumns columns(recipe, *records, "a text", kTextColumns);
  const TextReader reader(recipe);
  const uint64_t bytes = label_form(recipe).bytes(), inputs = columns.inputs_of_sample();
  part.size(records->size());  // throws if no sample is in this part
  LongWork work("tokens of " + part.path());
  LabelledTexts set = {.class_names = columns.names(), .files = {part.path(), recipe.data.tokenizer}};
  uint64_t cut = 0;
  for (uint64_t n = 0; n < records->size(); ++n) {
    if (!part.has(n)) continue;
    const std::string *texts = &columns.inputs()[n * inputs], place = records->place(n);
    for (uint64_t i = 0; i < (columns.are_one_row() ? 1 : inputs); ++i) {
      bool is_cut = false;
      set.add(columns.are_one_row() ? reader.read_pair(texts[0], texts[1], place, &is_cut)
                                    : reader.read(texts[i], place, &is_cut));
      cut += is_cut;
    }
    const auto* labels = static_cast<const unsigned char*>(columns.labels_of(n));
    set.labels.insert(set.labels.end(), labels, labels + bytes);
    work.done(static_cast<double>(n + 1) / static_cast<double>(records->size()));
  }
  if (cut > 0) {
    set.warnings.push_back(part.path() + ": " + std::to_string(cut) + " of " + std::to_string(set.ends.size()) +
                           " texts are longer than the net's " + std::to_string(reader.maximum()) +
                           " tokens, and are cut at their end" +
                           (columns.are_one_row() ? ", of a pair the longer text first" : ""));
  }
  return make_text_set(recipe, split, std::move(set));
}

}  // namespace

std::unique_ptr<Dataset> open_texts(const Recipe& recipe, Split split, DataLook* /*look*/) {
  const DataPart part(recipe, split);
  return part.path().empty() ? nullptr : open_part_of_texts(recipe, split, part);
}

}  // namespace reprise
