// Tests cells that a spreadsheet would execute: csv_cell of tools/files/formats/csv_file.h, and
// both writers of CSV.
#include <gtest/gtest.h>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/csv_file.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/layout/pack_command.h"
#include "tools/run/inference/predictions.h"

namespace reprise {
namespace {

TEST(CsvCell, GetsAnApostropheWhereItWouldRun) {
  for (const char* text : {"=1+1", "+SUM(A1)", "-2+3", "@x", "-", "--5", "+-5", "-inf", "1e5x", "\xef\xbc\x9d" "1"}) {
    const bool runs = text[0] != '1';
    EXPECT_EQ(csv_cell(text), (runs ? "'" : "") + std::string(text));
  }
  EXPECT_EQ(csv_cell("\t=1"), "'\t=1");
  EXPECT_EQ(csv_cell("\r=1"), "\"'\r=1\"");
  EXPECT_EQ(csv_cell("=HYPERLINK(\"x\",1)"), "\"'=HYPERLINK(\"\"x\"\",1)\"");
}

TEST(CsvCell, LeavesNumbersPathsAndTextAsTheyAre) {
  for (const char* text :
       {"", "-1", "+1.5", "-1.5e-3", "-.5", "-1e999", "photos/=x.png", "./-x.png", "it's", "'quoted'", "a@b"})
    EXPECT_EQ(csv_cell(text), text);
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
}

TEST(CsvCell, CanBeUndone) {
  for (const std::string text : {"=1", "'=1", "''=1", "'a", "-"}) {
    std::string cell = csv_cell(text);
    const size_t at = cell.find_first_not_of('\'');
    if (at != std::string::npos && at > 0 && std::string("=+-@\t\r\n").find(cell[at]) != std::string::npos)
      cell.erase(0, 1);
    EXPECT_EQ(cell, text);
  }
}

TEST(CsvCell, IsWhatBothWritersWrite) {
  const TemporaryFolder folder;
  write_numbers(Output(folder.file("p.csv"), kPredictions, {}), {"image"}, {{"=a.png"}, {"b.png"}}, {"@cat"},
                {-1.0f, 2.0f});
  EXPECT_EQ(read_file(folder.file("p.csv")), "image,'@cat\n'=a.png,-1\nb.png,2\n");
  const PackProblem problem = parse_pack_problem("id,lower,upper,size\n=cmd(),0,1,4\n-7,0,1,4\n\"=x\",1,2,4\n", "p", 0);
  EXPECT_EQ(packed_csv(problem, {0, 4, 0}),
            "id,lower,upper,size,offset\n'=cmd(),0,1,4,0\n-7,0,1,4,4\n\"\"\"=x\"\"\",1,2,4,0\n");
}

}  // namespace
}  // namespace reprise
