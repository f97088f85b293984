// Stores the tuning of this machine (lib/cpu/tuning.h) in a file, and reads it. The processor's
// name, files and a clock come from the operating system. No error here ends a program: after an
// error the derived numbers are used.
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

// A text that is cut off at the end of its buffer.
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

// Appends the values of the lines of /proc/cpuinfo that identify the first processor: "model name"
// on x86; implementer, part and variant on AArch64.
void add_processor(Text& text) {
  FILE* file = fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return;
  char line[512];
  while (fgets(line, sizeof line, file) != nullptr && line[0] != '\n') {
    for (const char* name : {"model name", "CPU implementer", "CPU part", "CPU variant"}) {
      const char* colon = strchr(line, ':');
      if (strncmp(line, name, strlen(name)) == 0 && colon != nullptr)
        text.add(" %.*s", static_cast<int>(strcspn(colon + 2, "\n")), colon + 2);
    }
  }
  (void)fclose(file);
}

// Returns the first lines of a tuning file, which state for which processor, caches, kernels and
// workers the numbers were measured. The numbers are valid only if the file's lines equal the lines
// of this process.
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

// Sets tuning.file; leaves it empty if neither XDG_CACHE_HOME nor HOME is an absolute path, or if
// the path of the file is too long.
void find_file(const Text& identity, Tuning& tuning) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  const bool has_cache = cache != nullptr && cache[0] == '/', has_home = home != nullptr && home[0] == '/';
  if (!has_cache && !has_home) return;
  const int length =
      snprintf(tuning.file, sizeof tuning.file, "%s%s/reprise/tuning-%016llx.txt", has_cache ? cache : home,
               has_cache ? "" : "/.cache", static_cast<unsigned long long>(hash_of(identity)));
  if (length < 0 || static_cast<size_t>(length) >= sizeof tuning.file) tuning.file[0] = 0;
}

void say(Tuning& tuning, const char* what, int error = 0) {
  (void)snprintf(tuning.problem, sizeof tuning.problem, "%s%s%s", what, error != 0 ? ": " : "",
                 error != 0 ? strerror(error) : "");
}

// ---- the file ----

// Reads one line "NAME NUMBER" for each field, in the order of kBlockingFields, with nothing after
// them. Returns false if a line is wrong or a number is outside its field's range.
bool read_fields(const char* text, CpuBlocking& blocking) {
  for (const BlockingField& field : kBlockingFields) {
    const size_t length = strlen(field.name);
    if (strncmp(text, field.name, length) != 0 || text[length] != ' ') return false;
    text += length + 1;
    if (*text < '0' || *text > '9') return false;
    char* end = nullptr;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\n' || number < field.minimum || number > field.maximum) return false;
    blocking.*field.value = static_cast<uint32_t>(number);
    text = end + 1;
  }
  return *text == 0;
}

bool read_file(const Text& identity, Tuning& tuning, CpuBlocking& blocking) {
  const int descriptor = open(tuning.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never waits for a pipe's writer
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

// Creates the folders of the path `file`. Errors are ignored, because the fopen() that follows
// reports them.
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
  if (machine.tile.run == nullptr) return tuning;  // no backend is open
  const Text identity = identity_of(machine, workers.count);
  find_file(identity, tuning);
  const bool has_place = tuning.file[0] != 0;
  if (mode != TuningMode::kMeasure && has_place) tuning.taken = read_file(identity, tuning, machine.blocking);
  if (!tuning.taken && mode != TuningMode::kLook) {
    tuning.taken = measure(machine, workers, tuning);
    if (tuning.taken && has_place) write_file(identity, tuning, machine.blocking);
  }
  static_assert(sizeof kBlockingFields / sizeof *kBlockingFields <= sizeof tuning.numbers / sizeof *tuning.numbers);
  for (const BlockingField& field : kBlockingFields)
    tuning.numbers[tuning.count++] = {field.name, machine.blocking.*field.value};
  return tuning;
}

}  // namespace reprise
