// See records.h.
#include "tools/run/data/records.h"

#include "tools/files/formats/record_file.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"

namespace reprise {

void read_records(const DataSource& data, const DataPart& part, DataLook* look, const AddRecord& add,
                  std::vector<std::string>& warnings) {
  const auto records = open_records(part.path());
  if (records->size() > UINT32_MAX) throw UserError(part.path() + ": more than 2^32 - 1 samples");
  LongWork work("tokens of " + part.path());
  std::string first_bad;
  uint64_t tried = 0, bad = 0, n = 0;
  for (; n < records->size() && (look == nullptr || records->begin(n) < look->max_bytes); ++n) {
    if (!part.has(n)) continue;
    ++tried;
    try {
      add(records->read(n), records->place(n));
    } catch (const LimitError&) {
      throw;
    } catch (const UserError& error) {
      if (look == nullptr && data.bad == DataSource::Bad::kRefuse) throw;
      if (look != nullptr) look->add(error.what());
      if (bad++ == 0) first_bad = error.what();
    }
    work.done(static_cast<double>(n + 1) / static_cast<double>(records->size()));
  }
  if (n < records->size()) return;  // only the first records were checked; it is no error if all of these are bad
  part.require_some(tried, records->size());
  if (bad == tried)
    throw UserError(part.path() + ": not one of its samples can be trained on; the first: " + first_bad);
  if (bad == 0 || look != nullptr) return;  // `look` has each bad record already
  warnings.push_back(part.path() + ": " + std::to_string(bad) + " of " + std::to_string(tried) +
                     " records cannot be trained on and are skipped (data.bad is \"skip\"); the first: " + first_bad);
}

int32_t padding_of(const Tokenizer& tokenizer, uint32_t vocabulary) {
  const int32_t padding = tokenizer.pad().value_or(tokenizer.eos().value_or(0));
  return static_cast<uint32_t>(padding) < vocabulary ? padding : 0;
}

void require_known(const std::vector<int32_t>& ids, uint32_t vocabulary, const std::string& place) {
  for (const int32_t id : ids) {
    if (static_cast<uint32_t>(id) < vocabulary) continue;
    throw UserError(place + ": token " + std::to_string(id) + " of the tokenizer is none of the model's " +
                    std::to_string(vocabulary));
  }
}

}  // namespace reprise
