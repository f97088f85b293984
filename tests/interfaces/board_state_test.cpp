// Tests that the board's state is read from files in the formats of Linux and of NVIDIA's nvpmodel,
// and that a change is reported once. The test writes the files itself, because test machines are
// no Jetsons.
#include "tools/run/session/board_state.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

class Board : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::string file = folder_.file(path);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    write_file(file, text);
  }
  void be_an_orin() {
    write("proc/meminfo", "MemTotal:        7802880 kB\nSwapTotal:       3901440 kB\nSwapFree:        3800000 kB\n");
    write("proc/swaps", "Filename\t\tType\t\tSize\tUsed\tPriority\n/dev/zram0\tpartition\t650240\t0\t5\n");
    write("proc/self/oom_score_adj", "200\n");
    write("var/lib/nvpmodel/status", "pmode:0001\n");
    write("etc/nvpmodel.conf",
          "< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=1 NAME=7W >\nCPU_ONLINE CORE_0 1\n");
    write("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "960000\n");
    write("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "1510400\n");
    write("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "800000\n");
    write("sys/class/devfreq/17000000.gpu/max_freq", "408000000\n");
    write("sys/class/devfreq/15340000.vic/max_freq", "999000000\n");
    write("sys/class/thermal/thermal_zone0/temp", "51250\n");
    write("sys/class/thermal/thermal_zone1/temp", "48000\n");
    write("sys/class/thermal/thermal_zone2/temp", "-256000\n");  // a sensor that is switched off
    write("sys/class/thermal/cooling_device0/type", "pwm-fan\n");
    write("sys/class/thermal/cooling_device0/cur_state", "2\n");
    write("sys/class/thermal/cooling_device1/type", "cpu-throttle-alert\n");
    write("sys/class/thermal/cooling_device1/cur_state", "0\n");
  }
  BoardState read() const { return read_board_state(folder_.file("")); }
  TemporaryFolder folder_;
};

TEST_F(Board, OfAnOrinAllIsRead) {
  be_an_orin();
  const nlohmann::json want = {{"swap_bytes", 3901440ull * 1024},
                               {"swap_free_bytes", 3800000ull * 1024},
                               {"swaps_to_memory", true},
                               {"oom_score_adj", 200},
                               {"power_mode", "1 (7W)"},
                               {"processor_hz", 960000000ull},
                               {"processor_most_hz", 1510400000ull},
                               {"card_hz", 408000000ull},
                               {"hottest_celsius", 51.25},
                               {"throttled_by", nlohmann::json::array()}};
  EXPECT_EQ(read().memory_bytes, 7802880ull * 1024);
  EXPECT_EQ(json_of(read()), want);
  EXPECT_EQ(text_of(read()),
            "swap 3.72 GiB, free 3.62 GiB (zram, which takes memory itself); oom_score_adj 200; power mode 1 (7W); "
            "processor up to 0.96 GHz of 1.51 GHz; card up to 0.41 GHz; hottest 51 C");
}

TEST_F(Board, WhatIsNotThereIsNoError) {
  const BoardState state = read();
  EXPECT_EQ(text_of(state), "no swap; oom_score_adj 0");
  EXPECT_TRUE(json_of(state)["card_hz"].is_null());
  EXPECT_TRUE(json_of(state)["power_mode"].is_null());
  write("var/lib/nvpmodel/status", "pmode:0007\n");
  EXPECT_EQ(read().power_mode, "7") << "a mode without a name";
  write("var/lib/nvpmodel/status", "nonsense\n");
  write("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "fast\n");
  EXPECT_EQ(read().power_mode, "");
  EXPECT_FALSE(read().processor_hz);
}

TEST_F(Board, AChangeIsSaidOnceAndWithItsReason) {
  be_an_orin();
  const BoardState before = read();
  EXPECT_EQ(change_of(before, before), "");
  write("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "940000\n");
  write("sys/class/thermal/thermal_zone0/temp", "60000\n");
  EXPECT_EQ(change_of(before, read()), "") << "two per cent of a clock, and heat that does nothing";
  write("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "729600\n");
  write("sys/devices/system/cpu/cpufreq/policy4/scaling_max_freq", "729600\n");
  write("sys/class/devfreq/17000000.gpu/max_freq", "306000000\n");
  write("sys/class/thermal/thermal_zone0/temp", "97000\n");
  write("sys/class/thermal/cooling_device1/cur_state", "1\n");
  const BoardState hot = read();
  EXPECT_EQ(change_of(before, hot),
            "processor up to 0.73 GHz, was 0.96 GHz; card up to 0.31 GHz, was 0.41 GHz; throttled by "
            "cpu-throttle-alert; hottest 97 C");
  EXPECT_EQ(change_of(hot, hot), "");
  be_an_orin();
  write("var/lib/nvpmodel/status", "pmode:0000\n");
  const std::string over = change_of(hot, read());
  for (const char* words :
       {"power mode 0 (15W), was 1 (7W)", "throttled no more", "processor up to 0.96 GHz, was 0.73 GHz"})
    EXPECT_NE(over.find(words), std::string::npos) << over;
}

}  // namespace
}  // namespace reprise
