// One thread prints the progress. It runs as long as the outermost work.
#include "tools/files/progress/long_work.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "tools/files/io/shown_text.h"
#include "tools/files/progress/terminal.h"

namespace reprise {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience(2);

struct Level {
  std::string what;
  double share = -1;  // from 0 to 1; negative: unknown
};

class Display {
 public:
  size_t enter(const std::string& what) {
    const std::lock_guard lock(mutex_);
    levels_.push_back({shown_text(what)});
    if (levels_.size() == 1 && !quiet_) start();
    return levels_.size() - 1;
  }
  void leave() {
    std::thread ended;
    {
      const std::lock_guard lock(mutex_);
      levels_.pop_back();
      if (levels_.empty()) ended = std::move(thread_);
    }
    if (!ended.joinable()) return;
    changed_.notify_all();
    ended.join();
  }
  void done(size_t level, double share) {
    const std::lock_guard lock(mutex_);
    levels_[level].share = share;
  }
  // Writes the names without allocating, because no memory may be left. If enter() ran out of
  // memory, this thread already has the lock. try_lock then fails, as POSIX defines, and nothing is
  // written.
  void write_levels(int descriptor) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    for (size_t n = 0; lock.owns_lock() && n < levels_.size(); ++n) {
      const std::string& what = levels_[n].what;
      // Stops if a write fails.
      if (::write(descriptor, what.data(), what.size()) < 0 || ::write(descriptor, ": ", 2) < 0) return;
    }
  }
  void silence() {
    const std::lock_guard lock(mutex_);
    quiet_ = true;
  }

 private:
  // Starts the thread, with all signals blocked in it. If no thread can be created, the work runs
  // without a progress display.
  void start() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { show(); });
    } catch (const std::system_error&) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void show() {
    const Clock::time_point start = Clock::now();
    const bool terminal = stderr_is_terminal();
    const std::chrono::seconds pause(terminal ? 1 : kLinePauseSeconds);
    bool drawn = false;
    std::unique_lock lock(mutex_);
    for (Clock::time_point next = start + kPatience;
         !changed_.wait_until(lock, next, [this] { return levels_.empty(); }); next += pause) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count();
      std::string line = words() + ", " + std::to_string(seconds) + " s";
      if (terminal) line.resize(std::min(line.size(), static_cast<size_t>(stderr_columns() - 1)));
      line.resize(line.size() - unfinished_bytes(line));
      write_out(terminal ? "\r" + line + "\x1b[K" : line + "\n");
      drawn = true;
    }
    if (drawn && terminal) write_out("\r\x1b[K");
  }

  std::string words() const {
    std::string text;
    for (const Level& level : levels_) {
      text += (text.empty() ? "" : ": ") + level.what;
      if (level.share >= 0)
        text += ", " + std::to_string(static_cast<int>(100 * std::clamp(level.share, 0.0, 1.0))) + "%";
    }
    return text;
  }

  static void write_out(const std::string& text) {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // a write that fails is ignored
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Level> levels_;
  std::thread thread_;
  bool quiet_ = false;
};

Display& display() {
  static Display only;
  return only;
}

}  // namespace

LongWork::LongWork(const std::string& what) : level_(display().enter(what)) {}
LongWork::~LongWork() { display().leave(); }
void LongWork::done(double share) { display().done(level_, share); }

void write_long_work(int descriptor) { display().write_levels(descriptor); }

void silence_long_work() { display().silence(); }

}  // namespace reprise
