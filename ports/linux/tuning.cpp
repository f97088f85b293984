// Keeps in a file what was measured of this machine (lib/cpu/tuning.h), and takes it from there.
// Here because the processor's name, files and a clock are the operating system's. Nothing here ends a program: where something goes wrong, the
// numbers that were derived stand.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

#include "lib/cpu/tuning.h"
#include "ports/linux/linux_functions.h"
#include "ports/linux/linux_port.h"

namespace reprise {
namespace {

// Text that is cut off where its room ends.
struct Text {
  char bytes[1536] = {};
  size_t length = 0;

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(bytes + length, sizeof bytes - length, format, arguments);
    va_end(arguments);
    if (wanted > 0) length = strnlen(bytes, sizeof bytes - 1);
  }
};

// The rest of each line of /proc/cpuinfo's first processor that names its kind: "model name" of x86, implementer and part of AArch64.
void add_processor(Text& text) {
  FILE* file = fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return;
  char line[512];
  while (fgets(line, sizeof line, file) != nullptr && line[0] != '\n') {
    for (const char* name : {"model name", "CPU implementer", "CPU part", "CPU variant"}) {
      const char* colon = strchr(line, ':');
      if (strncmp(line, name, strlen(name)) == 0 && colon != nullptr) text.add(" %.*s", static_cast<int>(strcspn(colon + 2, "\n")), colon + 2);
    }
  }
  (void)fclose(file);
}

// What the numbers were measured for: they serve where every line is the same.
Text identity_of(const CpuMachine& machine, uint32_t workers) {
  Text text;
  text.add("reprise tuning %u\nprocessor", kTuningVersion);
  add_processor(text);
  text.add("\ncaches %llu %llu\nkernels %s\nworkers %u\n", static_cast<unsigned long long>(machine.caches.second),
           static_cast<unsigned long long>(machine.caches.third), machine.kernel_set, workers);
  return text;
}

uint64_t hash_of(const Text& text) {  // FNV-1a
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < text.length; ++i) hash = (hash ^ static_cast<unsigned char>(text.bytes[i])) * 1099511628211u;
  return hash;
}

// Empty where the environment names neither folder, or one too long.
void find_file(const Text& identity, Tuning& tuning) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  const bool has_cache = cache != nullptr && cache[0] == '/', has_home = home != nullptr && home[0] == '/';
  if (!has_cache && !has_home) return;
  const int length = snprintf(tuning.file, sizeof tuning.file, "%s%s/reprise/tuning-%016llx.txt", has_cache ? cache : home, has_cache ? "" : "/.cache",
                              static_cast<unsigned long long>(hash_of(identity)));
  if (length < 0 || static_cast<size_t>(length) >= sizeof tuning.file) tuning.file[0] = 0;
}

void say(Tuning& tuning, const char* what, int error = 0) {
  (void)snprintf(tuning.problem, sizeof tuning.problem, "%s%s%s", what, error != 0 ? ": " : "", error != 0 ? strerror(error) : "");
}

// ---- the file ----

// One line "NAME NUMBER" for each field, in the table's order, and nothing behind them; each within what kernels take.
bool read_fields(const char* text, CpuBlocking& blocking) {
  for (const BlockingField& field : kBlockingFields) {
    const size_t length = strlen(field.name);
    if (strncmp(text, field.name, length) != 0 || text[length] != ' ') return false;
    text += length + 1;
    if (*text < '0' || *text > '9') return false;
    char* end = nullptr;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\n' || number < field.least || number > field.most) return false;
    blocking.*field.value = static_cast<uint32_t>(number);
    text = end + 1;
  }
  return *text == 0;
}

bool read_file(const Text& identity, Tuning& tuning, CpuBlocking& blocking) {
  const int descriptor = open(tuning.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never wait for a pipe's writer
  if (descriptor < 0) {
    if (errno != ENOENT) say(tuning, "cannot be read", errno);
    return false;
  }
  struct stat status;
  FILE* file = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) ? fdopen(descriptor, "r") : nullptr;
  if (file == nullptr) {
    (void)close(descriptor);
    return say(tuning, "is no regular file"), false;
  }
  Text text;
  text.length = fread(text.bytes, 1, sizeof text.bytes - 1, file);
  (void)fclose(file);
  CpuBlocking read = blocking;
  const bool is_ours = strncmp(text.bytes, identity.bytes, identity.length) == 0;
  if (!is_ours) return say(tuning, "is of another machine or another version"), false;
  if (!read_fields(text.bytes + identity.length, read)) return say(tuning, "is not what `reprise tune` writes"), false;
  blocking = read;
  return true;
}

// Every folder on the way; one that cannot be made is found by the open that follows.
void make_folders(const char* file) {
  char path[sizeof Tuning::file];
  (void)snprintf(path, sizeof path, "%s", file);
  for (char* slash = strchr(path + 1, '/'); slash != nullptr; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    (void)mkdir(path, 0777);
    *slash = '/';
  }
}

void write_file(const Text& identity, Tuning& tuning, const CpuBlocking& blocking) {
  Text text = identity;
  for (const BlockingField& field : kBlockingFields) text.add("%s %u\n", field.name, blocking.*field.value);
  make_folders(tuning.file);
  char beside[sizeof tuning.file + 32];
  (void)snprintf(beside, sizeof beside, "%s.new-%ld", tuning.file, static_cast<long>(getpid()));
  FILE* file = fopen(beside, "w");
  if (file == nullptr) return say(tuning, "cannot be written", errno);
  const bool written = fwrite(text.bytes, 1, text.length, file) == text.length;
  const bool closed = fclose(file) == 0;
  if (written && closed && rename(beside, tuning.file) == 0) return;
  say(tuning, "cannot be written", errno);
  (void)unlink(beside);
}

bool measure(CpuMachine& machine, const Workers& workers, Tuning& tuning) {
  void* memory = mmap(nullptr, kTuningBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return say(tuning, "no memory to measure in", errno), false;
  machine.blocking = measure_blocking(machine, workers, {linux_port().seconds}, memory);
  (void)munmap(memory, kTuningBytes);
  return true;
}

}  // namespace

Tuning linux_tune_backend(const Workers& workers, TuningMode mode) {
  CpuMachine& machine = linux_cpu_machine();
  Tuning tuning;
  if (machine.tile.run == nullptr) return tuning;  // no backend has been opened
  const Text identity = identity_of(machine, workers.count);
  find_file(identity, tuning);
  const bool has_place = tuning.file[0] != 0;
  if (mode != TuningMode::kMeasure && has_place) tuning.taken = read_file(identity, tuning, machine.blocking);
  if (!tuning.taken && mode != TuningMode::kLook) {
    tuning.taken = measure(machine, workers, tuning);
    if (tuning.taken && has_place) write_file(identity, tuning, machine.blocking);
  }
  static_assert(sizeof kBlockingFields / sizeof *kBlockingFields <= sizeof tuning.numbers / sizeof *tuning.numbers);
  for (const BlockingField& field : kBlockingFields) tuning.numbers[tuning.count++] = {field.name, machine.blocking.*field.value};
  return tuning;
}

}  // namespace reprise
