// See grown_tables.h.
#include "tools/files/adapters/grown_tables.h"

#include <algorithm>
#include <map>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/weights/tied_head.h"

namespace reprise {
namespace {

class GrownTables : public WeightSource {
 public:
  GrownTables(std::unique_ptr<WeightSource> source, TableRows rows)
      : source_(std::move(source)), rows_(std::move(rows)) {
    for (const std::string& name : {find_embeddings(*source_), std::string(kHead)}) {
      const StoredWeight* weight = source_->find(name);
      if (weight == nullptr || !is_grown(*weight)) continue;
      Table& table = tables_[name];
      table.own = weight->shape[0];
      table.columns = weight->shape[1];
      table.weight = {{rows_.rows, table.columns}, "F32", DType::kF32, rows_.rows * table.columns * sizeof(float)};
    }
  }

  const std::string& path() const override { return source_->path(); }
  std::vector<std::string> shards() const override { return source_->shards(); }
  std::vector<std::string> names() const override { return source_->names(); }
  const StoredWeight* find(const std::string& name) const override {
    const auto table = tables_.find(name);
    return table != tables_.end() ? &table->second.weight : source_->find(name);
  }
  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    source_->read_stored(name, first, count, to);
  }

  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto table = tables_.find(name);
    if (table == tables_.end()) return source_->read_exact(name, first, count, to);
    make_mean(name, table->second);
    for (float* at = static_cast<float*>(to); count > 0;) {  // for each row, or the requested part of a row
      const uint64_t columns = table->second.columns, row = first / columns, column = first % columns,
                     part = std::min(count, columns - column);
      if (is_made(table->second, row)) {
        std::copy_n(table->second.mean.data() + column, part, at);
      } else {
        source_->read(name, first, part, at);
      }
      first += part, count -= part, at += part;
    }
  }

 private:
  struct Table {
    uint64_t own = 0, columns = 0;  // own: rows of the table in the file; columns: numbers in a row
    StoredWeight weight;
    std::vector<float> mean;  // the content of each new row; empty until a row of this table is read
  };

  bool is_grown(const StoredWeight& weight) const {
    const bool is_table = weight.shape.size() == 2 && (weight.exact == DType::kF32 || weight.exact == DType::kBf16);
    return is_table && (weight.shape[0] < rows_.rows || (rows_.makes_spare && weight.shape[0] == rows_.rows));
  }

  bool is_made(const Table& table, uint64_t row) const {
    return row >= table.own || (row >= made_.first && row < made_.first + made_.count);
  }

  void make_mean(const std::string& name, Table& table) const {
    if (!table.mean.empty()) return;
    if (tokenizer_.tokens.empty()) tokenizer_ = rows_.tokenizer(made_);
    std::vector<double> sums(table.columns);
    std::vector<float> row(table.columns);
    uint64_t rows = 0;
    for (uint64_t id = 0; id < std::min<uint64_t>(made_.first, table.own); ++id) {
      if (tokenizer_.tokens[id].kind == TokenKind::kAbsent) continue;
      source_->read(name, id * table.columns, table.columns, row.data());
      for (uint64_t c = 0; c < table.columns; ++c) sums[c] += static_cast<double>(row[c]);
      ++rows;
    }
    if (rows == 0)
      throw UserError(path() + ": tensor " + json_shown(name) + ": has no row of a token of the vocabulary");
    for (const double sum : sums) table.mean.push_back(static_cast<float>(sum / static_cast<double>(rows)));
  }

  const std::unique_ptr<WeightSource> source_;
  const TableRows rows_;
  mutable TokenizerFile tokenizer_;  // empty until a mean is computed
  mutable NewTokens made_;
  mutable std::map<std::string, Table> tables_;
};

}  // namespace

std::unique_ptr<WeightSource> grow_tables(std::unique_ptr<WeightSource> source, TableRows rows) {
  return std::make_unique<GrownTables>(std::move(source), std::move(rows));
}

}  // namespace reprise
