// SPDX-License-Identifier: Apache-2.0
#include "transports/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "davit/error.hpp"

namespace davit {
namespace {

constexpr char const* kNamePrefix = "davit-";

std::string reason() { return std::strerror(errno); }

std::uint64_t random_word() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

std::uint64_t process_token() {
  static std::uint64_t const token = random_word();
  return token;
}

std::uint64_t pid_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/// Start time of a process, in clock ticks since boot: with the pid it names one process for ever. 0 if it is gone.
std::uint64_t start_time(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  auto const name_end = line.rfind(')');  // the name may hold anything; 19 fields on is the start time
  if (name_end == std::string::npos) return 0;
  std::size_t at = name_end + 1;
  for (int field = 0; field < 19 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  std::uint64_t ticks = 0;
  if (at != std::string::npos) std::from_chars(line.data() + at + 1, line.data() + line.size(), ticks);
  return ticks;
}

/// Mappings of this process by nonce: threads of one process share one, or a race checker would see nothing.
struct Registry {
  std::mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<std::byte>> mappings;
};

Registry& registry() {
  static auto& instance = *new Registry;  // never destroyed: MPI_Finalize may run at exit, and ends communicators
  return instance;
}

Mapping map_file(int descriptor, std::size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return nullptr;
  return Mapping(static_cast<std::byte*>(data), [bytes](std::byte* p) { munmap(p, bytes); });
}

std::uint64_t free_bytes(std::string const& directory) {
  struct statvfs status {};
  if (statvfs(directory.c_str(), &status) != 0) return UINT64_MAX;
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

[[noreturn]] void throw_full(std::string const& directory, std::size_t bytes, std::uint64_t free) {
  throw SystemError("davit: " + directory + " is too full for shared memory: needed " + std::to_string(bytes) +
                    " bytes, free " + std::to_string(free) +
                    " bytes (enlarge it, or lower DAVIT_SLOT_BYTES or "
                    "DAVIT_SLOTS)");
}

}  // namespace

Segment Segment::create(std::string const& directory, std::size_t bytes) {
  auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  Segment segment;
  segment.directory_ = directory;
  auto& ticket = segment.ticket_;
  ticket.nonce = random_word();
  ticket.bytes = (bytes + page - 1) / page * page;
  ticket.process = process_token();
  ticket.pid_namespace = pid_namespace();
  ticket.pid = getpid();
  ticket.descriptor = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (ticket.descriptor < 0) {
    throw SystemError("davit: no shared memory can be made in " + directory + ": " + reason() + " (see DAVIT_SHM_DIR)");
  }
  if (ftruncate(ticket.descriptor, static_cast<off_t>(ticket.bytes)) == 0) {
    segment.mapping_ = map_file(ticket.descriptor, ticket.bytes);
  }
  int const error = errno;
  if (segment.mapping_ == nullptr) {
    throw SystemError("davit: shared memory in " + directory + " cannot be mapped: needed " +
                      std::to_string(ticket.bytes) + " bytes, free " + std::to_string(free_bytes(directory)) +
                      " bytes: " + std::strerror(error));
  }
  std::lock_guard const lock(registry().mutex);
  registry().mappings[ticket.nonce] = segment.mapping_;
  return segment;
}

Segment::Segment(Segment&& other) noexcept
    : directory_(std::move(other.directory_)),
      ticket_(std::exchange(other.ticket_, SegmentTicket{})),
      mapping_(std::move(other.mapping_)) {}

Segment::~Segment() {
  withdraw_name();
  close_descriptor();
  if (mapping_ == nullptr) return;
  std::lock_guard const lock(registry().mutex);
  registry().mappings.erase(ticket_.nonce);
}

void Segment::reserve(std::size_t offset, std::size_t bytes) {
  // Asked first: where the file system is larger than memory, allocating to its end would wake the out-of-memory
  // killer.
  if (auto const free = free_bytes(directory_); free < bytes) throw_full(directory_, bytes, free);
  int result = 0;
  do {
    result = fallocate(ticket_.descriptor, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  if (errno == ENOSPC) throw_full(directory_, bytes, free_bytes(directory_));
  throw SystemError("davit: " + std::to_string(bytes) + " bytes of shared memory in " + directory_ +
                    " cannot be reserved: " + reason());
}

void Segment::publish_name() {
  auto const path = directory_ + "/" + kNamePrefix + std::to_string(ticket_.pid_namespace) + "-" +
                    std::to_string(ticket_.pid) + "-" + std::to_string(start_time(ticket_.pid)) + "-" +
                    std::to_string(random_word());
  auto const link = "/proc/self/fd/" + std::to_string(ticket_.descriptor);
  if (path.size() >= sizeof ticket_.name ||
      linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    throw SystemError("davit: shared memory in " + directory_ +
                      " can be passed neither by descriptor nor by name: " + reason());
  }
  std::snprintf(ticket_.name, sizeof ticket_.name, "%s", path.c_str());
}

void Segment::withdraw_name() noexcept {
  if (ticket_.name[0] != '\0') unlink(ticket_.name);
  ticket_.name[0] = '\0';
}

void Segment::close_descriptor() noexcept {
  if (ticket_.descriptor >= 0) close(ticket_.descriptor);
  ticket_.descriptor = -1;
}

Mapping Segment::attach(SegmentTicket const& ticket) {
  if (ticket.process == process_token()) {
    std::lock_guard const lock(registry().mutex);
    auto const found = registry().mappings.find(ticket.nonce);
    return found == registry().mappings.end() ? nullptr : found->second.lock();
  }
  std::string path(ticket.name, strnlen(ticket.name, sizeof ticket.name));
  if (path.empty()) {
    if (ticket.pid_namespace != pid_namespace()) return nullptr;
    path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.descriptor);
  }
  int const descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return nullptr;
  // The number may belong to something else on another host: only a file of the right length is mapped and read.
  struct stat status {};
  Mapping mapping;
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
      static_cast<std::uint64_t>(status.st_size) == ticket.bytes && status.st_blocks > 0) {
    mapping = map_file(descriptor, ticket.bytes);
  }
  close(descriptor);
  std::uint64_t nonce = 0;
  if (mapping) std::memcpy(&nonce, mapping.get(), sizeof nonce);
  return nonce == ticket.nonce ? mapping : nullptr;
}

void Segment::sweep(std::string const& directory) noexcept {
  std::error_code ignored;
  auto const space = pid_namespace();
  for (auto const& entry : std::filesystem::directory_iterator(directory, ignored)) {
    unsigned long long owner_space = 0;
    unsigned long long started = 0;
    int pid = 0;
    auto const name = entry.path().filename().string();
    if (std::sscanf(name.c_str(), "davit-%llu-%d-%llu-", &owner_space, &pid, &started) != 3) continue;
    if (owner_space == space && start_time(pid) != started) std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace davit
