#include "dist/net/shared_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice::dist {
namespace {

constexpr size_t kControlBytes = 4096;
constexpr size_t kBytes =
    kControlBytes + SharedRing::kSlots * SharedRing::kSlotBytes;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

using Count = std::atomic<uint32_t>;
static_assert(Count::is_always_lock_free && sizeof(Count) == 4);

Status NoMemory(std::string_view call, int error) {
  return ResourceExhausted(
      fmt::format("no shared memory: {}: {}", call, std::strerror(error)));
}

// A limit of file sizes is one of this memory too, and to pass it ends the
// process.
Status CheckLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur >= kBytes) {
    return {};
  }
  return ResourceExhausted(
      fmt::format("no shared memory: {} bytes, of which the limit of file "
                  "sizes allows {}",
                  kBytes, limit.rlim_cur));
}

// Not to be executed where the system knows that (Linux 6.3), since some allow
// no other.
int NewMemory() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, of newer headers
  const int memory = memfd_create("sluice-ring", kFlags | kNoExecution);
  if (memory >= 0 || errno != EINVAL) return memory;
  return memfd_create("sluice-ring", kFlags);
}

Result<void*> MapAll(int descriptor) {
  void* const at =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) return NoMemory("mmap", errno);
  return at;
}

}  // namespace

// Each count on a cache line of its own: they are written by different cores.
struct SharedRing::Control {
  std::array<char, kTextBytes> text;
  alignas(64) Count filled;
  alignas(64) Count freed;
  alignas(64) Count taker_sleeps;
  alignas(64) Count filler_sleeps;
  alignas(64) std::array<uint32_t, kSlots> bytes;
};

SharedRing::SharedRing(Descriptor memory, void* at, bool fills)
    : memory_(std::move(memory)),
      control_(static_cast<Control*>(at)),
      fills_(fills) {
  static_assert(sizeof(Control) <= kControlBytes);
}

SharedRing::~SharedRing() {
  munmap(control_, kBytes);
}

Result<std::unique_ptr<SharedRing>> SharedRing::Create(std::string_view text) {
  SLUICE_RETURN_IF_ERROR(CheckLimit());
  Descriptor memory(NewMemory());
  if (memory.get() < 0) return NoMemory("memfd_create", errno);
  // Taken now: where there is none, a later write would end the process.
  const int error =
      posix_fallocate(memory.get(), 0, static_cast<off_t>(kBytes));
  if (error != 0) return NoMemory("fallocate", error);
  if (fcntl(memory.get(), F_ADD_SEALS, kSeals) < 0) {
    return NoMemory("seals", errno);
  }
  SLUICE_ASSIGN_OR_RETURN(void* const at, MapAll(memory.get()));
  std::unique_ptr<SharedRing> ring(
      new SharedRing(std::move(memory), new (at) Control(), /*fills=*/true));
  std::copy_n(text.begin(), std::min(text.size(), kTextBytes),
              ring->control_->text.begin());
  return ring;
}

Result<std::unique_ptr<SharedRing>> SharedRing::Open(Descriptor memory) {
  struct stat about {};
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals ||
      fstat(memory.get(), &about) < 0 ||
      about.st_size != static_cast<off_t>(kBytes)) {
    return DataLoss("what came is no ring of shared memory");
  }
  SLUICE_ASSIGN_OR_RETURN(void* const at, MapAll(memory.get()));
  return std::unique_ptr<SharedRing>(
      new SharedRing(Descriptor(), at, /*fills=*/false));
}

std::string SharedRing::text() const {
  std::string text(control_->text.data(), kTextBytes);
  text.resize(std::min(text.find('\0'), kTextBytes));
  return text;
}

std::byte* SharedRing::Slot(uint32_t i) const {
  return reinterpret_cast<std::byte*>(control_) + kControlBytes +
         i % kSlots * kSlotBytes;
}

MutableBytes SharedRing::Free() const {
  const uint32_t freed = control_->freed.load();
  if (next_ - freed >= kSlots) return {};
  return {Slot(next_), kSlotBytes};
}

// The count is published and the other's sleep looked at, in this order on all
// cores; the other says that it sleeps and looks at the count. So one of the
// two sees the other (Dekker), for which both need the one order of all.
bool SharedRing::Fill(size_t bytes) {
  control_->bytes[next_ % kSlots] = static_cast<uint32_t>(bytes);
  control_->filled.store(++next_);
  return control_->taker_sleeps.load() != 0 &&
         control_->taker_sleeps.exchange(0) != 0;
}

Bytes SharedRing::Front() const {
  // The one order also here, for the look after SetSleeps.
  if (control_->filled.load() == next_) return {};
  // Never beyond the slot, whatever the other end says.
  return {Slot(next_),
          std::min<size_t>(control_->bytes[next_ % kSlots], kSlotBytes)};
}

bool SharedRing::Pop() {
  control_->freed.store(++next_);
  return control_->filler_sleeps.load() != 0 &&
         control_->filler_sleeps.exchange(0) != 0;
}

void SharedRing::SetSleeps(bool sleeps) {
  (fills_ ? control_->filler_sleeps : control_->taker_sleeps)
      .store(sleeps ? 1 : 0);
}

}  // namespace sluice::dist
