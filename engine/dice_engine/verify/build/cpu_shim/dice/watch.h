// Lost updates: two threads that read, change and write back one element without an atomic or a barrier between them.
// Threads run one after another here, so no order of threads shows this. The compiler calls the functions below at
// every load and store (-fsanitize=thread, whose own library stays out); static shared memory is not watched.
// Loads from the zones around buffers are noticed as well: they change nothing, so only here can they be seen.
#pragma once

#include <stdarg.h>

#define DICE_HOOK extern "C" __attribute__((visibility("hidden"), no_sanitize("thread"), noinline, used))

extern "C" char __ehdr_start __attribute__((visibility("hidden")));
extern "C" char _end __attribute__((visibility("hidden")));

namespace dice {

struct Element {
  uintptr_t address;
  unsigned launch;                    // the launch that this entry is of; others are free
  unsigned long long reader, writer;  // thread + 1 of the last plain load, and of the last load-change-store
  unsigned barriers, passed;          // the writer's place between barriers and warp operations
  unsigned long long before;          // what the element held before the writer's store
};

constexpr size_t kElements = 1 << 20;
static Element* elements;
static size_t used_elements;
static unsigned launch_number;
static bool watching;
static char race_text[256];
static struct {
  uintptr_t address;
  unsigned size;
  unsigned long long before;
  uint3 thread, block;
} suspect;

constexpr unsigned kZones = 512;
static struct {
  uintptr_t low, high;
} zones[kZones];
static unsigned zone_count;
static uintptr_t zones_low, zones_high;  // all zones lie between these
static struct {
  uintptr_t address;
  uint3 thread, block;
} stray;

static char fault_text[256];  // the first address or index that does not fit its type

// How the compiler describes an operand (ABI of -fsanitize=undefined).
struct Place {
  const char* file;
  unsigned line, column;
};
struct Type {
  unsigned short kind, info;
  char name[1];
};
struct Mismatch {
  Place place;
  const Type* type;
  unsigned char log_alignment, kind;
};
struct OutOfBounds {
  Place place;
  const Type *array, *index;
};

__attribute__((no_sanitize("thread", "undefined"), noinline, format(printf, 1, 2))) inline void fault(const char* format, ...) {
  if (fault_text[0]) return;
  va_list rest;
  va_start(rest, format);
  vsnprintf(fault_text, sizeof fault_text, format, rest);
  va_end(rest);
}

__attribute__((no_sanitize("thread"), noinline)) inline void look(uintptr_t address) {
  if (stray.address || quiet || address < zones_low || address >= zones_high) return;
  for (unsigned i = 0; i < zone_count; ++i)
    if (address >= zones[i].low && address < zones[i].high) {
      stray = {address, threadIdx, blockIdx};
      return;
    }
}

__attribute__((no_sanitize("thread"), noinline)) inline unsigned long long held(uintptr_t address, unsigned size) {
  unsigned long long value = 0;
  __builtin_memcpy(&value, reinterpret_cast<const void*>(address), size < 8 ? size : 8);
  return value;
}

// A suspected store has happened by the time of the next access: only a changed value is a lost update.
__attribute__((no_sanitize("thread"), noinline)) inline void settle() {
  if (!suspect.address) return;
  if (held(suspect.address, suspect.size) != suspect.before && !race_text[0]) {
    snprintf(race_text, sizeof race_text,
             "thread (%u,%u,%u) of block (%u,%u,%u) and another thread update the same element without an atomic",
             suspect.thread.x, suspect.thread.y, suspect.thread.z, suspect.block.x, suspect.block.y, suspect.block.z);
    watching = false;
  }
  suspect.address = 0;
}

__attribute__((no_sanitize("thread"), noinline)) inline Element* element(uintptr_t address) {
  if (!watching || quiet) return nullptr;
  auto shared = reinterpret_cast<uintptr_t>(dynamic_shared), stack = reinterpret_cast<uintptr_t>(stack_memory);
  bool in_shared = address >= shared && address < shared + kMaxShared;
  if (!in_shared && address >= reinterpret_cast<uintptr_t>(&__ehdr_start) && address < reinterpret_cast<uintptr_t>(&_end))
    return nullptr;
  if (stack && address >= stack && address < stack + kMaxThreads * kStackBytes) return nullptr;
  auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (!in_fibers && address >= frame && address < frame + (64u << 20)) return nullptr;
  size_t at = (address * 0x9e3779b97f4a7c15ull) >> 44;
  while (elements[at].launch == launch_number && elements[at].address != address) at = (at + 1) % kElements;
  Element& found = elements[at];
  if (found.launch != launch_number) {
    if (++used_elements > kElements / 2) {  // more than fits: what was seen so far has to do
      watching = false;
      return nullptr;
    }
    found = {address, launch_number, 0, 0, 0, 0, 0};
  }
  return &found;
}

__attribute__((no_sanitize("thread"), noinline)) inline unsigned long long thread_number() {
  unsigned long long block = blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
  return block * kMaxThreads + threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z) + 1;
}

__attribute__((no_sanitize("thread"), noinline)) inline void loaded(uintptr_t address, size_t size) {
  look(address);
  look(address + size - 1);
  settle();
  if (Element* found = element(address)) found->reader = thread_number();
}

__attribute__((no_sanitize("thread"), noinline)) inline void stored(uintptr_t address, unsigned size) {
  settle();
  Element* found = element(address);
  if (!found) return;
  unsigned long long self = thread_number(), other = found->writer, now = held(address, size);
  unsigned passed = warps[(self - 1) % kMaxThreads / 32].passed;
  if (found->reader != self) {
    found->writer = 0;
    return;
  }
  if (other && other != self && now != found->before) {
    bool same_block = (other - 1) / kMaxThreads == (self - 1) / kMaxThreads;
    bool same_warp = same_block && (other - 1) / 32 == (self - 1) / 32;
    bool ordered = (same_block && found->barriers != barriers_passed) || (same_warp && found->passed != passed);
    if (!ordered) suspect = {address, size, now, threadIdx, blockIdx};
  }
  found->writer = self, found->barriers = barriers_passed, found->passed = passed, found->before = now;
}

}  // namespace dice

#define DICE_SIZES(each) each(1) each(2) each(4) each(8) each(16)
#define DICE_HOOKS(size)                                                                               \
  DICE_HOOK void __tsan_read##size(void* at) { dice::loaded(reinterpret_cast<uintptr_t>(at), size); }     \
  DICE_HOOK void __tsan_write##size(void* at) { dice::stored(reinterpret_cast<uintptr_t>(at), size); }    \
  DICE_HOOK void __tsan_unaligned_read##size(void* at) { dice::loaded(reinterpret_cast<uintptr_t>(at), size); } \
  DICE_HOOK void __tsan_unaligned_write##size(void* at) { dice::stored(reinterpret_cast<uintptr_t>(at), size); }
DICE_SIZES(DICE_HOOKS)
DICE_HOOK void __tsan_read_range(void* at, size_t size) {
  if (size) dice::loaded(reinterpret_cast<uintptr_t>(at), size);
}
DICE_HOOK void __tsan_write_range(void* at, size_t size) { dice::stored(reinterpret_cast<uintptr_t>(at), unsigned(size)); }
DICE_HOOK void __tsan_func_entry(void*) {}
DICE_HOOK void __tsan_func_exit() {}
DICE_HOOK void __tsan_init() {}
DICE_HOOK void __tsan_vptr_read(void*) {}
DICE_HOOK void __tsan_vptr_update(void*, void*) {}

#define DICE_CHECK extern "C" __attribute__((visibility("hidden"), no_sanitize("thread", "undefined"), noinline, used))

DICE_CHECK void __ubsan_handle_type_mismatch_v1(const dice::Mismatch* what, uintptr_t address) {
  dice::fault("line %u uses address %#llx as %s, whose addresses are multiples of %u", what->place.line,
              (unsigned long long)address, what->type->name, 1u << what->log_alignment);
}
DICE_CHECK void __ubsan_handle_out_of_bounds(const dice::OutOfBounds* what, uintptr_t index) {
  dice::fault("index %lld in line %u is outside %s", (long long)index, what->place.line, what->array->name);
}

// Zones that the next launch may not read: `count` pairs of addresses.
DICE_EXPORT __attribute__((no_sanitize("thread"))) void dice_watch_zones(const unsigned long long* pairs, unsigned count) {
  dice::zone_count = count < dice::kZones ? count : dice::kZones;
  dice::zones_low = ~uintptr_t(0), dice::zones_high = 0, dice::stray.address = 0;
  for (unsigned i = 0; i < dice::zone_count; ++i) {
    dice::zones[i] = {uintptr_t(pairs[2 * i]), uintptr_t(pairs[2 * i + 1])};
    if (dice::zones[i].low < dice::zones_low) dice::zones_low = dice::zones[i].low;
    if (dice::zones[i].high > dice::zones_high) dice::zones_high = dice::zones[i].high;
  }
}
// The first address in a zone that was read, 0 for none; `who` gets the thread's and the block's indices.
DICE_EXPORT __attribute__((no_sanitize("thread"))) unsigned long long dice_watch_stray(unsigned* who) {
  const uint3 found[2] = {dice::stray.thread, dice::stray.block};
  for (int i = 0; i < 2; ++i) who[3 * i] = found[i].x, who[3 * i + 1] = found[i].y, who[3 * i + 2] = found[i].z;
  return dice::stray.address;
}

// The first use of an address or index that does not fit its type, "" for none.
DICE_EXPORT const char* dice_watch_fault() { return dice::fault_text; }

// Watch the next launch.
DICE_EXPORT __attribute__((no_sanitize("thread"))) void dice_watch_begin() {
  if (!dice::elements) {
    void* memory = mmap(nullptr, dice::kElements * sizeof(dice::Element), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dice::elements = memory == MAP_FAILED ? nullptr : static_cast<dice::Element*>(memory);
  }
  ++dice::launch_number;
  dice::used_elements = 0;
  dice::suspect.address = 0;
  dice::race_text[0] = dice::fault_text[0] = 0;
  dice::watching = dice::elements != nullptr;
}
// What the launch showed, "" for nothing.
DICE_EXPORT __attribute__((no_sanitize("thread"))) const char* dice_watch_end() {
  dice::settle();
  dice::watching = false;
  return dice::race_text;
}
