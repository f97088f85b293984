// Measures the transfer of gradients between ranks. Transfers are started as the rows of a plan
// start them. Prints one line of JSON for `reprise profile --peers`
// (tools/run/profiling/measure_wire.h). It is a separate program for mpirun, because build/reprise
// does not use MPI. It uses only the port's table of Peers.
//
//   mpirun -np 2 -H a,b build/peers_mpi
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "ports/mpi/mpi_peers.h"

namespace reprise {
namespace {

constexpr uint64_t kSizes[] = {64, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr uint64_t kMaxBytes = uint64_t{512} << 20;  // maximum bytes of a rank's buffer
constexpr double kTimeoutSeconds = 60;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class PeersClock {
 public:
  explicit PeersClock(const Peers& peers)
      : peers_(peers), memory_(std::min(kMaxBytes, peers.count * *std::rbegin(kSizes)), 1) {}

  bool has_space(uint64_t bytes) const { return peers_.count * bytes <= memory_.size(); }

  // Measures the time until all ranks have the bytes of `root`.
  Status time_broadcast(uint32_t root, uint64_t bytes, double* seconds) {
    return time_all([&] { return peers_.start_broadcast(peers_.state, root, memory_.data(), bytes); }, seconds);
  }
  // Measures one broadcast from each rank at the same time, as for shared gradients.
  Status time_share(uint64_t bytes, double* seconds) {
    const auto start = [&]() -> Status {
      for (uint32_t root = 0; root < peers_.count; ++root) {
        REPRISE_RETURN_IF_ERROR(peers_.start_broadcast(peers_.state, root, memory_.data() + root * bytes, bytes));
      }
      return ok_status();
    };
    return time_all(start, seconds);
  }

 private:
  // Sets `seconds` to the time of the slowest rank. Times on different machines' clocks are not
  // compared.
  template <typename Start>
  Status time_all(const Start& start, double* seconds) {
    double own = 0;
    std::vector<double> all(peers_.count);
    REPRISE_RETURN_IF_ERROR(gather(own, all));  // so that all ranks begin together
    const double begin = seconds_now();
    REPRISE_RETURN_IF_ERROR(start());
    REPRISE_RETURN_IF_ERROR(peers_.wait(peers_.state, nullptr));
    own = seconds_now() - begin;
    REPRISE_RETURN_IF_ERROR(gather(own, all));
    *seconds = *std::max_element(all.begin(), all.end());
    return ok_status();
  }
  Status gather(const double& own, std::vector<double>& all) {
    REPRISE_RETURN_IF_ERROR(peers_.start_gather(peers_.state, &own, all.data(), sizeof own));
    return peers_.wait(peers_.state, nullptr);
  }

  const Peers& peers_;
  std::vector<unsigned char> memory_;
};

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void add_point(std::string& list, uint64_t bytes, const std::vector<double>& seconds) {
  char point[96];
  std::snprintf(point, sizeof point, "%s{\"bytes\": %llu, \"seconds\": %.9g}", list.empty() ? "" : ", ",
                static_cast<unsigned long long>(bytes), middle_of(seconds));
  list += point;
}

// Returns the number of repetitions, a multiple of `ranks`, so that each rank is the root equally
// often. Large sizes have fewer repetitions, because they take long.
uint32_t turns_of(uint64_t bytes, uint32_t ranks) {
  const uint32_t minimum = bytes <= (128 << 10) ? 41 : bytes <= (1 << 20) ? 15 : 7;
  return (minimum + ranks - 1) / ranks * ranks;
}

Status measure_peers(const Peers& peers, std::string& line) {
  PeersClock clock(peers);
  std::string broadcasts, shares;
  for (const uint64_t bytes : kSizes) {
    if (!clock.has_space(bytes)) break;
    std::vector<double> single(turns_of(bytes, peers.count)), shared(turns_of(bytes, 1));
    double warm = 0;
    REPRISE_RETURN_IF_ERROR(clock.time_share(bytes, &warm));  // touches the pages and opens the connections
    for (uint32_t turn = 0; turn < single.size(); ++turn)
      REPRISE_RETURN_IF_ERROR(clock.time_broadcast(turn % peers.count, bytes, &single[turn]));
    for (double& seconds : shared) REPRISE_RETURN_IF_ERROR(clock.time_share(bytes, &seconds));
    add_point(broadcasts, bytes, single);
    add_point(shares, bytes, shared);
  }
  line = "{\"ranks\": " + std::to_string(peers.count) + ", \"broadcasts\": [" + broadcasts + "], \"shares\": [" +
         shares + "]}";
  return ok_status();
}

int fail(const Status& status) {
  std::fprintf(stderr, "peers_mpi: %s\n", status.message);
  return 1;
}

int run() {
  const uint32_t ranks = mpi_processes();
  if (ranks < 2)
    return fail({Code::kUnsupported, "there is nobody to send to: start it by mpirun -np N, N at least 2", ranks});
  Peers peers;
  if (const Status status = mpi_open_peers(ranks, kTimeoutSeconds, &peers); !status.ok()) return fail(status);
  std::string line;
  const Status status = measure_peers(peers, line);
  if (!status.ok()) (void)fail(status);
  if (status.ok() && peers.rank == 0) std::printf("%s\n", line.c_str());
  mpi_close_peers(&peers);  // after an error, this ends all ranks
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace reprise

int main() { return reprise::run(); }
