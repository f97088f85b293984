// hosts_switch HOSTS SEED: simulates an Ethernet switch between the hosts of with_hosts.sh. Its
// cables have a rate and a delay, lose packets, and can be cut. It creates eth0 in the namespaces
// host1, host2, ..., and delivers frames for the hardware address 02:00:00:00:00:0N to host N. It
// reads commands from stdin, one per line, and exits at the end of input. "loss 0.01" sets the
// fraction of packets that are lost; "cut 3" and "mend 3" cut and repair the cable of host 3.
//
// The kernel's own emulation (netem) is not used, because not every kernel has it and its losses
// cannot be seeded.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kBitsPerSecond = 1000000000;
constexpr int64_t kDelay = kSecond / 1000;              // ns from a host to the switch
constexpr int64_t kLongestSend = kSecond / 500;         // ns of backlog at which a host's card accepts no more frames
constexpr int64_t kLongestQueue = kSecond / 50;         // ns of backlog to a host above which the switch drops frames
constexpr size_t kFrameBytes = 2048, kOverhead = 24;    // kOverhead: preamble, checksum and gap of a frame

struct Port {
  int tap = -1;
  bool is_cut = false;
  int64_t sends_until = 0, receives_until = 0;  // times at which the two directions of the cable become free
};
// A frame in transit, to the switch or from the switch to the host `to`. Its key in under_way is
// the time at which it arrives at the switch or the host.
struct Frame {
  std::vector<unsigned char> bytes;
  size_t from = 0, to = 0;
  bool is_past_switch = false;
};
std::vector<Port> ports;
std::multimap<int64_t, Frame> under_way;
std::mt19937_64 draws;
double loss = 0;

[[noreturn]] void fail(const std::string& what) {
  perror(("hosts_switch: " + what).c_str());
  exit(1);
}

int64_t now() {
  timespec time = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

int64_t seconds_on_cable(const Frame& frame) {
  return static_cast<int64_t>(8 * (frame.bytes.size() + kOverhead)) * kSecond / kBitsPerSecond;
}

int open_tap(const std::string& host) {
  const std::string path = "/run/netns/" + host;
  const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) fail(path);
  (void)close(space);
  const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request = {};
  strcpy(request.ifr_name, "eth0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (tap < 0 || ioctl(tap, TUNSETIFF, &request) != 0) fail("/dev/net/tun");
  return tap;
}

// Reads the frames that a host sends, and puts them on the cable to the switch. Some are lost.
void take_frames(size_t from, int64_t time) {
  Port& port = ports[from];
  while (port.sends_until < time + kLongestSend) {
    Frame frame = {std::vector<unsigned char>(kFrameBytes), from};
    const ssize_t bytes = read(port.tap, frame.bytes.data(), kFrameBytes);
    if (bytes <= 0) return;
    frame.bytes.resize(static_cast<size_t>(bytes));
    port.sends_until = std::max(port.sends_until, time) + seconds_on_cable(frame);
    if (port.is_cut || std::uniform_real_distribution<double>()(draws) < loss) continue;
    under_way.emplace(port.sends_until + kDelay, std::move(frame));
  }
}

void send_to(size_t to, const Frame& frame, int64_t time) {
  Port& port = ports[to];
  if (port.is_cut || port.receives_until > time + kLongestQueue) return;
  port.receives_until = std::max(port.receives_until, time) + seconds_on_cable(frame);
  under_way.emplace(port.receives_until, Frame{frame.bytes, frame.from, to, true});
}

void deliver(const Frame& frame, int64_t time) {
  if (frame.is_past_switch) {
    if (!ports[frame.to].is_cut) (void)!write(ports[frame.to].tap, frame.bytes.data(), frame.bytes.size());
    return;
  }
  const bool is_for_all = (frame.bytes[0] & 1) != 0;
  for (size_t to = 0; to < ports.size(); ++to) {
    if (to != frame.from && (is_for_all || frame.bytes[5] == to + 1)) send_to(to, frame, time);
  }
}

void obey(const std::string& line) {
  char word[8] = {};
  double value = 0;
  if (sscanf(line.c_str(), "%7s %lf", word, &value) != 2) return;
  if (strcmp(word, "loss") == 0) {
    loss = value;
  } else if (value >= 1 && value <= static_cast<double>(ports.size())) {
    ports[static_cast<size_t>(value) - 1].is_cut = strcmp(word, "cut") == 0;
  }
}

// Executes the commands that have arrived. Returns false at the end of input.
bool read_commands() {
  static std::string text;
  char more[256];
  const ssize_t bytes = read(STDIN_FILENO, more, sizeof more);
  if (bytes <= 0) return false;
  text.append(more, static_cast<size_t>(bytes));
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) obey(text.substr(0, end));
  return true;
}

// Waits until a host sends a frame, a command arrives, or a frame in transit arrives.
void wait_for_work(std::vector<pollfd>& polled, int64_t time) {
  int64_t next = time + kSecond;
  if (!under_way.empty()) next = std::min(next, under_way.begin()->first);
  for (size_t i = 0; i < ports.size(); ++i) {
    const int64_t free = ports[i].sends_until - kLongestSend;
    polled[i].fd = free < time ? ports[i].tap : -1;
    if (free >= time) next = std::min(next, free + 1);
  }
  const int64_t pause = std::max<int64_t>(next - time, 0);
  const timespec maximum = {pause / kSecond, pause % kSecond};
  if (ppoll(polled.data(), polled.size(), &maximum, nullptr) < 0) fail("ppoll");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  for (int n = 1; n <= atoi(argv[1]); ++n) ports.push_back({.tap = open_tap("host" + std::to_string(n))});
  draws.seed(strtoull(argv[2], nullptr, 10));
  (void)prctl(PR_SET_TIMERSLACK, 1000UL);
  std::vector<pollfd> polled(ports.size() + 1, {-1, POLLIN, 0});
  polled.back().fd = STDIN_FILENO;
  for (;;) {
    wait_for_work(polled, now());
    if (polled.back().revents != 0 && !read_commands()) return 0;
    const int64_t time = now();
    for (size_t i = 0; i < ports.size(); ++i) take_frames(i, time);
    while (!under_way.empty() && under_way.begin()->first <= time) {
      const auto first = under_way.extract(under_way.begin());
      deliver(first.mapped(), first.key());
    }
  }
}
