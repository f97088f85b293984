// See mpi_peers.h. Transfers become MPI requests in one table, in pieces of at most kPieceBytes. A
// wait tests all requests of the table.
#define MPICH_SKIP_MPICXX 1  // omit MPI's C++ classes, which throw
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "lib/assert.h"
#include "lib/plan.h"
#include "ports/mpi/mpi_peers.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

namespace reprise {
namespace {

constexpr int kMaxUnderWay = 1024;  // a start waits while the table is full
// Pieces must be smaller than MPI's counts, which are int. At 16 MiB a piece takes a fraction of a
// second on a network of 1 Gbit/s, so that no timeout expires during it.
constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
constexpr int kHere = 1;  // tag of the empty message by which a rank reports that it waits
constexpr double kAnswerSeconds = 1.0;
constexpr double kAbortSeconds = 1.0;
// Time for mpirun to forward output. mpirun drops output that it has not forwarded yet when it is
// told to end all ranks.
constexpr double kForwardSeconds = 0.2;

struct MpiPeers {
  MPI_Comm ranks = MPI_COMM_NULL;
  uint32_t rank = 0, count = 0;
  double timeout_seconds = 0;
  pid_t process = 0;  // the process that must close the peers and end MPI; 0: none
  Status fault = {};  // the first fault; all later calls return it
  // The transfers in progress are requests[0] to requests[under_way - 1]. data[i] is the
  // destination of the transfer to which request i belongs, by which a wait finds the request; null
  // for a barrier.
  int under_way = 0;
  MPI_Request requests[kMaxUnderWay] = {};
  const void* data[kMaxUnderWay] = {};
  bool has_told = false;
  bool are_closed = false;
  int status = 0;  // exit status of the process
  bool heard[kMaxRanks] = {};
};
MpiPeers mpi;

Status give_up(const char* message, uint64_t rank) {
  mpi.fault = {Code::kPeer, message, rank};
  return mpi.fault;
}

// Returns the Status of an MPI call. A failure is also the result of all later calls.
Status checked(int error) {
  if (error == MPI_SUCCESS) return ok_status();
  static char message[MPI_MAX_ERROR_STRING + 64] = "MPI has failed: ";
  int length = 0;
  (void)MPI_Error_string(error, message + strlen(message), &length);
  for (char* each = message; *each != 0; ++each) {
    if (*each == '\n') *each = ' ';
  }
  return give_up(message, Peers::kNoRank);
}

double clock_seconds() {
  timespec now = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Measures how long a caller has waited without a result, and pauses it. The caller spins first,
// then yields the processor, then sleeps.
class Patience {
 public:
  void pause() {
    if (++pauses_ > kSpins) {
      constexpr timespec kShortly = {0, 100000};
      (void)(seconds_ < kYieldSeconds ? sched_yield() : nanosleep(&kShortly, nullptr));
    }
    const double now = clock_seconds(), passed = now - last_;
    last_ = now;
    seconds_ += passed < kLongestPause ? passed : kLongestPause;
  }
  bool spins() const { return pauses_ <= kSpins; }
  double seconds() const { return seconds_; }

 private:
  static constexpr uint32_t kSpins = 200;
  static constexpr double kYieldSeconds = 0.001;
  static constexpr double kLongestPause = 0.1;  // a longer pause counts as this, because the process was stopped

  uint32_t pauses_ = 0;
  double seconds_ = 0, last_ = clock_seconds();
};

// Tests all transfers in progress, which also advances them, and removes those that have ended from
// the table.
Status test_all(bool* some_ended) {
  static int indices[kMaxUnderWay];
  static MPI_Status statuses[kMaxUnderWay];
  *some_ended = false;
  if (mpi.under_way == 0) return ok_status();
  int ended = 0;
  const int error = MPI_Testsome(mpi.under_way, mpi.requests, &ended, indices, statuses);
  if (error != MPI_ERR_IN_STATUS) REPRISE_RETURN_IF_ERROR(checked(error));
  for (int i = 0; error == MPI_ERR_IN_STATUS && i < ended; ++i) REPRISE_RETURN_IF_ERROR(checked(statuses[i].MPI_ERROR));
  if (ended <= 0) return ok_status();  // MPI_UNDEFINED, which is negative, means that no request is active
  int kept = 0;
  for (int i = 0; i < mpi.under_way; ++i) {
    if (mpi.requests[i] == MPI_REQUEST_NULL) continue;
    mpi.requests[kept] = mpi.requests[i];
    mpi.data[kept++] = mpi.data[i];
  }
  mpi.under_way = kept;
  *some_ended = true;
  return ok_status();
}

// Tells every other rank that this rank waits. Does nothing after the first call.
void tell_all() {
  if (mpi.has_told) return;
  mpi.has_told = true;
  mpi.heard[mpi.rank] = true;
  for (uint32_t to = 0; to < mpi.count; ++to) {
    MPI_Request sent;
    if (to != mpi.rank && MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(to), kHere, mpi.ranks, &sent) == MPI_SUCCESS)
      (void)MPI_Request_free(&sent);
  }
}

// Receives the messages of other ranks that wait. A sender's timeout has expired, so this rank also
// reports itself.
void listen() {
  for (;;) {
    int is_there = 0;
    MPI_Status from;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kHere, mpi.ranks, &is_there, &from) != MPI_SUCCESS || is_there == 0) return;
    if (MPI_Recv(nullptr, 0, MPI_BYTE, from.MPI_SOURCE, kHere, mpi.ranks, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    mpi.heard[from.MPI_SOURCE] = true;
    tell_all();
  }
}

uint64_t lowest_rank(bool was_heard) {
  for (uint32_t rank = 0; rank < mpi.count; ++rank) {
    if (mpi.heard[rank] == was_heard) return rank;
  }
  return Peers::kNoRank;
}

Status miss_a_rank() {
  tell_all();
  for (Patience patience; patience.seconds() < kAnswerSeconds && lowest_rank(false) != Peers::kNoRank; patience.pause())
    listen();
  const uint64_t missing = lowest_rank(false);
  if (missing == Peers::kNoRank)
    return give_up("all ranks wait, and nothing comes: the network has failed, or they do not run the same plan",
                   missing);
  return give_up("a rank has not come within the time that it has: it has ended, hangs, or computes for too long",
                 missing);
}

int under_way_into(const void* data) {
  if (data == nullptr) return mpi.under_way;
  int found = 0;
  for (int i = 0; i < mpi.under_way; ++i) found += mpi.data[i] == data;
  return found;
}

// Returns when at most `maximum` requests into `data` are in progress; if `data` is null, when at
// most `maximum` requests of any kind are.
Status wait_until(const void* data, int maximum) {
  REPRISE_RETURN_IF_ERROR(mpi.fault);
  for (Patience patience; under_way_into(data) > maximum;) {
    bool some_ended = false;
    REPRISE_RETURN_IF_ERROR(test_all(&some_ended));
    if (some_ended) {
      patience = {};
      continue;
    }
    if (patience.seconds() >= mpi.timeout_seconds) return miss_a_rank();
    if (!patience.spins()) listen();
    patience.pause();
  }
  return ok_status();
}

Status wait(void*, const void* data) { return wait_until(data, 0); }

// Advances the transfers, and waits until the table has space for one more request.
Status prepare_start() {
  REPRISE_RETURN_IF_ERROR(wait_until(nullptr, kMaxUnderWay - 1));
  bool some_ended = false;
  return test_all(&some_ended);
}

// Adds to the table the request that an MPI call has written to requests[under_way]. `error` is the
// result of that call. Adds nothing if it is a failure.
Status started(int error, const void* data) {
  REPRISE_ASSERT(mpi.under_way < kMaxUnderWay, "the table has space for a request that is started");
  REPRISE_RETURN_IF_ERROR(checked(error));
  mpi.data[mpi.under_way++] = data;
  return ok_status();
}

// Starts the broadcast of from[bytes] from rank `root`, piece by piece, as a part of the transfer
// into `data`.
Status start_pieces(uint32_t root, unsigned char* from, uint64_t bytes, const void* data) {
  REPRISE_ASSERT(root < mpi.count && (from != nullptr || bytes == 0), "a rank sends, and bytes have an address");
  for (uint64_t done = 0; done < bytes; done += kPieceBytes) {
    const uint64_t rest = bytes - done;
    const int piece = static_cast<int>(rest < kPieceBytes ? rest : kPieceBytes);
    REPRISE_RETURN_IF_ERROR(prepare_start());
    REPRISE_RETURN_IF_ERROR(started(MPI_Ibcast(from + done, piece, MPI_BYTE, static_cast<int>(root), mpi.ranks,
                                               &mpi.requests[mpi.under_way]),
                                    data));
  }
  return ok_status();
}

Status start_broadcast(void*, uint32_t root, void* data, uint64_t bytes) {
  REPRISE_RETURN_IF_ERROR(mpi.fault);
  return start_pieces(root, static_cast<unsigned char*>(data), bytes, data);
}

// Starts an all-gather. If the bytes exceed one piece, starts a broadcast from each rank instead,
// because the pieces of a gather would not be contiguous in `all`.
Status start_gather(void*, const void* own, void* all, uint64_t bytes) {
  REPRISE_RETURN_IF_ERROR(mpi.fault);
  if (bytes == 0) return ok_status();
  unsigned char* const to = static_cast<unsigned char*>(all);
  unsigned char* const own_place = to + mpi.rank * bytes;
  if (bytes > kPieceBytes / mpi.count) {
    if (own != own_place) memcpy(own_place, own, bytes);
    for (uint32_t root = 0; root < mpi.count; ++root)
      REPRISE_RETURN_IF_ERROR(start_pieces(root, to + root * bytes, bytes, all));
    return ok_status();
  }
  REPRISE_RETURN_IF_ERROR(prepare_start());
  const void* const from = own == own_place ? MPI_IN_PLACE : own;
  const int count = static_cast<int>(bytes);
  return started(MPI_Iallgather(from, count, MPI_BYTE, all, count, MPI_BYTE, mpi.ranks, &mpi.requests[mpi.under_way]),
                 all);
}

void advance(void*) {
  bool some_ended = false;
  if (mpi.fault.ok()) (void)test_all(&some_ended);
}

// The functions of a process without other ranks.
Status broadcast_to_nobody(void*, uint32_t, void*, uint64_t) { return ok_status(); }
Status copy_own(void*, const void* own, void* all, uint64_t bytes) {
  if (own != all && bytes != 0) memcpy(all, own, bytes);
  return ok_status();
}
Status wait_for_nothing(void*, const void*) { return ok_status(); }

Status refuse_number(uint32_t processes, uint32_t ranks) {
  if (processes <= 1)
    return {Code::kUnsupported, "the plan is for several processes: start it by mpirun -np N, N its ranks", ranks};
  return {Code::kUnsupported,
          "the plan is for another number of processes than mpirun has started: mpirun -np N, N its ranks", ranks};
}

// Ends the process after `seconds`, because the MPI call that follows may not return. Flushes all
// output first.
void exit_within(double seconds, int status) {
  mpi.status = status;
  (void)fflush(nullptr);
  (void)signal(SIGALRM, [](int) { _exit(mpi.status); });
  (void)alarm(static_cast<unsigned>(seconds) + 1);
}

// Ends all ranks. The lowest waiting rank calls MPI_Abort first, so that mpirun reports the end of
// only one rank. The other ranks call it later, in case the lowest waiting rank does not.
void abort_all() {
  mpi.process = 0;
  (void)fflush(nullptr);
  const bool is_first = lowest_rank(true) >= mpi.rank;
  for (Patience patience; patience.seconds() < kForwardSeconds + (is_first ? 0 : kAnswerSeconds);) patience.pause();
  exit_within(kAbortSeconds, 1);  // MPICH waits for mpirun's answer, which a broken network does not deliver
  (void)MPI_Abort(MPI_COMM_WORLD, 1);
}

// Ends all ranks and reports the reason, because no other code can report it.
void abort_all_because(const char* why) {
  fprintf(stderr, "rank %u: %s\n", mpi.rank, why);
  abort_all();
}

// Leaves MPI at the end of a process. MPICH's mpirun counts an exit with status 0 as success. It
// then ends the other processes with status 0, too.
void end_process(int status, void*) {
  if (mpi.process != getpid()) return;
  if (!mpi.are_closed) return abort_all_because("the process ends without closing its peers: all ranks are ended");
  // UCX over TCP may wait forever for a rank that has left (openucx/ucx#8738).
  exit_within(mpi.timeout_seconds, status);
  (void)MPI_Finalize();
  (void)alarm(0);
}

Status start_mpi(uint32_t ranks, double timeout_seconds) {
  int provided = MPI_THREAD_SINGLE, processes = 0, rank = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    return {Code::kUnsupported, "MPI does not start", ranks};
  // Errors are returned, also for the communicator's duplicate and for MPI_Testsome, which has no
  // communicator.
  (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  (void)MPI_Comm_size(MPI_COMM_WORLD, &processes);
  (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Status status = ok_status();
  if (provided < MPI_THREAD_FUNNELED)
    status = {Code::kUnsupported, "this MPI is for processes of one thread alone", ranks};
  if (static_cast<uint32_t>(processes) != ranks) status = refuse_number(static_cast<uint32_t>(processes), ranks);
  if (status.ok() && MPI_Comm_dup(MPI_COMM_WORLD, &mpi.ranks) != MPI_SUCCESS)
    status = {Code::kUnsupported, "MPI does not start", ranks};
  if (!status.ok()) {
    (void)MPI_Finalize();
    return status;
  }
  mpi.rank = static_cast<uint32_t>(rank);
  mpi.count = ranks;
  mpi.timeout_seconds = timeout_seconds;
  mpi.process = getpid();
  (void)on_exit(end_process, nullptr);
  return ok_status();
}

// Waits until all ranks have called this function and no transfer is in progress.
Status meet_all() {
  REPRISE_RETURN_IF_ERROR(prepare_start());
  REPRISE_RETURN_IF_ERROR(started(MPI_Ibarrier(mpi.ranks, &mpi.requests[mpi.under_way]), nullptr));
  return wait_until(nullptr, 0);
}

}  // namespace

uint32_t mpi_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* text = getenv(name); text != nullptr) return static_cast<uint32_t>(strtoul(text, nullptr, 10));
  }
  return 0;
}

Status mpi_open_peers(uint32_t ranks, double timeout_seconds, Peers* peers) {
  *peers = {};
  if (ranks <= 1) {
    if (mpi_processes() > 1) return refuse_number(mpi_processes(), ranks);
    peers->start_broadcast = broadcast_to_nobody;
    peers->start_gather = copy_own;
    peers->wait = wait_for_nothing;
    return ok_status();
  }
  if (ranks > kMaxRanks) return {Code::kUnsupported, "there are more ranks than a plan may have, which is 64", ranks};
  int is_started = 0;
  if (MPI_Initialized(&is_started) != MPI_SUCCESS || is_started != 0)
    return {Code::kUnsupported, "a process opens its peers once", ranks};
  REPRISE_RETURN_IF_ERROR(start_mpi(ranks, timeout_seconds));
  *peers = {&mpi, mpi.rank, mpi.count, start_broadcast, start_gather, wait, advance};
  return ok_status();
}

void mpi_close_peers(Peers* peers) {
  const bool is_open = peers->state != nullptr;
  *peers = {};
  if (!is_open) return;
  if (!mpi.fault.ok()) abort_all();
  if (const Status status = meet_all(); !status.ok()) abort_all_because(status.message);
  mpi.are_closed = true;
  (void)MPI_Comm_free(&mpi.ranks);
}

}  // namespace reprise
