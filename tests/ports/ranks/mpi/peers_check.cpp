// One rank of a test of ports/mpi: peers_check SCENARIO RANKS SECONDS WHO FOLDER. mpi_test.sh
// compiles it for each installed MPI, starts it with mpirun, and checks which processes and files
// remain afterwards. Rank WHO does the action that SCENARIO names, while the other ranks wait for
// it. Errors are written to the file PID.said of FOLDER; status 0 means that there were none.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ports/mpi/mpi_port.h"

namespace reprise {
namespace {

constexpr uint64_t kSmall = 1, kOdd = 1001, kMedium = 3000000;  // bytes
constexpr uint64_t kLarge = 20000000, kLargeGather = 9000000;   // so large that a message is sent in several pieces

const Port& port = mpi_port();
Peers peers;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  fprintf(stderr, "rank %u: wrong: %s\n", peers.rank, what.c_str());
  exit(1);
}

// Does nothing if the status is ok. Otherwise prints the status, checks that later calls return the
// same fault, and calls close_peers(), which must end all ranks.
void require(const Status& status) {
  if (status.ok()) return;
  const std::string rank = status.detail == Peers::kNoRank ? "unknown" : std::to_string(status.detail);
  fprintf(stderr, "rank %u: code %d: %s (rank %s)\n", peers.rank, static_cast<int>(status.code), status.message,
          rank.c_str());
  unsigned char byte = 0;
  for (const Status& again : {peers.wait(peers.state, nullptr), peers.start_broadcast(peers.state, 0, &byte, 1)}) {
    expect(again.code == Code::kPeer && again.detail == status.detail, "a fault is forgotten");
  }
  port.close_peers(&peers);
  expect(false, "a process goes on after a fault");
}

struct Message {
  bool is_gather;
  uint32_t root, key;  // root of a broadcast; seed of the content
  uint64_t bytes;      // bytes that each rank sends
  std::vector<unsigned char> own = {}, data = {};
};

unsigned char byte_of(uint32_t rank, uint32_t key, uint64_t i) {
  return static_cast<unsigned char>((i * 31 + (i >> 8) * 7 + rank * 101 + key * 13) ^ (i >> 16));
}
void fill(unsigned char* to, uint32_t rank, uint32_t key, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) to[i] = byte_of(rank, key, i);
}
bool holds(const unsigned char* at, uint32_t rank, uint32_t key, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (at[i] != byte_of(rank, key, i)) return false;
  }
  return true;
}

// Starts the message `of`. In a gather with an odd key, the rank's own bytes are already at their
// place in the result.
void start(Message& of) {
  of.data.assign(of.bytes * (of.is_gather ? peers.count : 1), 0xee);
  if (of.is_gather) {
    of.own.resize(of.bytes);
    unsigned char* const own = of.key % 2 == 1 ? of.data.data() + peers.rank * of.bytes : of.own.data();
    fill(own, peers.rank, of.key, of.bytes);
    require(peers.start_gather(peers.state, own, of.data.data(), of.bytes));
  } else {
    if (peers.rank == of.root) fill(of.data.data(), of.root, of.key, of.bytes);
    require(peers.start_broadcast(peers.state, of.root, of.data.data(), of.bytes));
  }
}

void require_content(const Message& of) {
  for (uint32_t rank = 0; of.is_gather && rank < peers.count; ++rank) {
    expect(holds(of.data.data() + rank * of.bytes, rank, of.key, of.bytes),
           "a gather of " + std::to_string(of.bytes) + " bytes");
  }
  if (!of.is_gather)
    expect(holds(of.data.data(), of.root, of.key, of.bytes), "a broadcast of " + std::to_string(of.bytes) + " bytes");
}

// Starts many messages at once and waits for them in another order, which differs from rank to
// rank. Then waits for each message a second time, which must succeed at once.
void exchange_messages() {
  std::vector<Message> messages;
  uint32_t key = 0;
  const auto add = [&](bool is_gather, uint32_t root, uint64_t bytes) {
    messages.push_back({is_gather, root, key++, bytes});
  };
  for (const uint64_t bytes : {kMedium, kSmall, kOdd}) {
    for (uint32_t root = 0; root < peers.count; ++root) add(false, root, bytes);
    add(true, 0, bytes);
    add(true, 0, bytes);
  }
  add(false, peers.count - 1, kLarge);
  add(true, 0, kLargeGather);
  add(true, 0, kLargeGather);
  for (Message& each : messages) start(each);
  std::rotate(messages.begin(), messages.begin() + 3 + peers.rank, messages.end());
  std::reverse(messages.begin(), messages.end());
  for (const Message& each : messages) {
    require(peers.wait(peers.state, each.data.data()));
    require_content(each);
  }
  for (const Message& each : messages) require(peers.wait(peers.state, each.data.data()));
  require(peers.wait(peers.state, nullptr));
}

// Starts more messages than the port's table can contain at once. Rank `late` starts them later
// than the others. Some messages have 0 bytes.
void exchange_many(uint32_t late) {
  std::vector<Message> messages;
  for (uint32_t key = 0; key < 3000; ++key) messages.push_back({key % 3 == 0, key % peers.count, key, key % 5});
  if (peers.rank == late) usleep(200000);
  for (Message& each : messages) start(each);
  require(peers.wait(peers.state, nullptr));
  for (const Message& each : messages) require_content(each);
}

void exchange_one(Message message) {
  start(message);
  require(peers.wait(peers.state, message.data.data()));
  require_content(message);
}

// Exchanges messages until rank `who` reports that the test's script has stopped and resumed all
// ranks.
void exchange_until_resumed(uint32_t who, const std::string& folder) {
  for (unsigned char waits = 1; waits == 1;) {
    if (peers.rank == who) {
      usleep(50000);
      waits = access((folder + "/resumed").c_str(), F_OK) == 0 ? 0 : 1;
    }
    require(peers.start_broadcast(peers.state, who, &waits, 1));
    require(peers.wait(peers.state, &waits));
    exchange_one({true, 0, 3, kOdd});
  }
}

void leave_file(const std::string& path) {
  FILE* const file = fopen(path.c_str(), "w");
  expect(file != nullptr && fclose(file) == 0, "cannot write " + path);
}

void misbehave(const std::string& scenario, const std::string& folder) {
  leave_file(folder + "/fault");
  if (scenario == "killed") (void)raise(SIGKILL);
  if (scenario == "exits") exit(1);
  if (scenario == "ends") exit(0);
  if (scenario == "stopped") (void)raise(SIGSTOP);
  while (scenario == "hangs") usleep(100000);
  if (scenario == "shorter") exchange_one({false, (peers.rank + 1) % peers.count, 9, kOdd - 1});
  if (scenario == "leaves") port.close_peers(&peers), exit(0);
}

void run(const std::string& scenario, uint32_t who, const std::string& folder) {
  leave_file(folder + "/" + std::to_string(getpid()) + ".pid");
  Peers again;
  expect(peers.count == 1 || port.open_peers(peers.count, 1, &again).code == Code::kUnsupported,
         "peers are opened twice");
  if (scenario == "exchange") {
    exchange_messages();
    exchange_many(who);
    if (peers.rank == who) usleep(300000);  // the others wait in close_peers()
    return;
  }
  if (scenario == "paused") exchange_until_resumed(who, folder);
  exchange_one({true, 0, 7, kOdd});
  if (scenario != "paused" && peers.rank == who) misbehave(scenario, folder);
  if (scenario == "hangs") {  // rank 2 times out before rank 0, and must not report rank 0 as missing
    if (peers.rank == 0) usleep(500000);
    exchange_one({true, 0, 8, kOdd});
  }
  exchange_one({false, (who + 1) % peers.count, 9, kOdd});
  exchange_one({true, 0, 8, kMedium});
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  using namespace reprise;
  if (argc != 6) return 2;
  const int said =
      open((argv[5] + ("/" + std::to_string(getpid())) + ".said").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (said < 0 || dup2(said, STDERR_FILENO) < 0) return 2;
  const Status status = port.open_peers(static_cast<uint32_t>(atoi(argv[2])), atof(argv[3]), &peers);
  if (!status.ok()) {
    fprintf(stderr, "code %d: %s (%llu)\n", static_cast<int>(status.code), status.message,
            static_cast<unsigned long long>(status.detail));
    return 3;
  }
  run(argv[1], static_cast<uint32_t>(atoi(argv[4])), argv[5]);
  port.close_peers(&peers);
  expect(peers.wait == nullptr && peers.count == 1, "closed peers are not empty");
  port.close_peers(&peers);
  return 0;
}
