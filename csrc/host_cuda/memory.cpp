// Checks a kernel's memory accesses: bounds and data races.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "state.h"

namespace host_cuda {

namespace {

constexpr char code_base = 0;  // code lies within 2 GiB of it
constexpr char dynamic_key = 0;

std::map<uintptr_t, Region> buffers;
Region* last_buffer = nullptr;  // the one found last is most likely the next

struct Segment {
  int block, thread;
  uint32_t grid_epoch, block_epoch, clock;
};
std::vector<Segment> segments;

const char* verb(bool write) { return write ? "write" : "read"; }

Region* find_buffer(uintptr_t address) {
  if (last_buffer && address - last_buffer->begin < last_buffer->bytes) return last_buffer;
  auto after = buffers.upper_bound(address);
  if (after == buffers.begin()) return nullptr;
  Region& region = std::prev(after)->second;
  return address - region.begin < region.bytes ? last_buffer = &region : nullptr;
}

// Variables of the program and its libraries.
bool in_program(uintptr_t address) {
  return dl_iterate_phdr([](dl_phdr_info* module, size_t, void* address) {
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const auto& header = module->dlpi_phdr[i];
      const uintptr_t begin = module->dlpi_addr + header.p_vaddr;
      if (header.p_type == PT_LOAD && *static_cast<uintptr_t*>(address) - begin < header.p_memsz) return 1;
    }
    return 0;
  }, &address);
}

struct Nearest {
  const Region* region = nullptr;
  intptr_t distance = INTPTR_MAX;
  void offer(const Region& other, uintptr_t address, size_t bytes) {
    const intptr_t before = intptr_t(other.begin - address),
                   after = intptr_t(address + bytes - other.begin - other.bytes);
    if (std::max(before, after) < distance) region = &other, distance = std::max(before, after);
  }
};

[[noreturn]] void out_of_bounds(bool in_shared, uintptr_t address, size_t bytes, bool write, const void* code) {
  Nearest nearest;
  if (in_shared)
    for (const Region& object : state.current->block->shared) nearest.offer(object, address, bytes);
  else
    for (const auto& buffer : buffers) nearest.offer(buffer.second, address, bytes);
  if (!nearest.region) fail(text(code), "out of bounds: %s of %zu bytes at %#zx", verb(write), bytes, size_t(address));
  fail(text(code), "out of bounds: %s of %zu bytes, %zd bytes %s %s '%s' of %zu bytes", verb(write), bytes,
       nearest.distance, address < nearest.region->begin ? "before the start of" : "past the end of",
       in_shared ? "shared" : "buffer", nearest.region->name.c_str(), nearest.region->bytes);
}

// 0 if `event` comes before what `self` does now, else how far apart the two are: same warp, same block, other block.
int unordered(Event event, const Thread& self) {
  if (event.segment == 0) return 0;
  const Segment& then = segments[event.segment];
  if (then.grid_epoch < state.grid_epoch) return 0;
  if (then.block != self.block->number) return 3;
  if (then.thread == self.number || then.block_epoch < self.block->epoch) return 0;
  if (then.thread / 32 != self.warp()) return 2;
  return then.clock <= self.seen[then.thread % 32] ? 0 : 1;
}

void check_race(Region& region, size_t offset, size_t bytes, bool write, const void* code) {
  Thread& self = *state.current;
  if (region.launch != state.launch) {
    region.launch = state.launch;
    region.cells.assign(region.bytes, Cell());
  }
  if (self.segment == 0) {
    self.segment = uint32_t(segments.size());
    segments.push_back({self.block->number, self.number, state.grid_epoch, self.block->epoch, self.clock});
  }
  const Event now{self.segment, int32_t(intptr_t(code) - intptr_t(&code_base))};
  for (size_t i = offset; i < offset + bytes; ++i) {
    Cell& cell = region.cells[i];
    const int read = unordered(cell.read, self), other = unordered(cell.other_read, self);
    const Event* rival = nullptr;
    if (unordered(cell.write, self)) rival = &cell.write;
    else if (write && (read || other)) rival = read ? &cell.read : &cell.other_read;
    if (rival) {
      const Segment& then = segments[rival->segment];
      fail(text(code), "race: %s of '%s' + %zu, with the %s by block %d, thread %d, %s", verb(write),
           region.name.c_str(), i, verb(rival == &cell.write), then.block, then.thread, text(&code_base + rival->code));
    }
    // Two readers stand for all: of those that the latest does not come after, the farthest from it.  A later write
    // that no block or grid barrier separates from some read is unordered with one of the two.
    if (write) cell = {now, {}, {}};
    else cell = {cell.write, now, !read && !other ? Event() : read >= other ? cell.read : cell.other_read};
  }
}

}  // namespace

void register_global(const void* data, size_t bytes, const char* name, bool read_only) {
  const uintptr_t begin = uintptr_t(data);
  for (auto& [start, region] : buffers)
    if (start < begin + bytes && begin < start + region.bytes)
      throw Error(std::string("buffer '") + name + "' overlaps '" + region.name + "'");
  if (bytes == 0) return;
  Region& region = buffers[begin];
  region.begin = begin;
  region.bytes = bytes;
  region.name = name;
  region.read_only = read_only;
}

void unregister_global(const void* data) {
  buffers.erase(uintptr_t(data));
  last_buffer = nullptr;
}

void new_launch() {
  ++state.launch;
  segments.assign(1, Segment());
}

void access(uintptr_t address, size_t bytes, bool write, Memory memory, const void* code) {
  Thread* const self = state.current;
  if (!self || self->fiber.owns(address)) return;
  if (write) state.idle = 0;
  Region* region = nullptr;
  const Block& block = *self->block;
  if (address - uintptr_t(block.arena.get()) < Block::kArena) {
    for (const Region& object : block.shared)
      if (address - object.begin < object.bytes) region = const_cast<Region*>(&object);
    if (!region || address + bytes > region->begin + region->bytes) out_of_bounds(true, address, bytes, write, code);
  } else if ((region = find_buffer(address))) {
    if (address + bytes > region->begin + region->bytes) out_of_bounds(false, address, bytes, write, code);
    record(*region, address, bytes, write, code);
    if (write && region->read_only) fail(text(code), "write to the read-only buffer '%s'", region->name.c_str());
  } else {
    if (!write && (address - uintptr_t(state.work.arguments) < state.work.bytes || in_program(address))) return;
    for (auto& other : state.blocks) {
      if (address - uintptr_t(other->arena.get()) < Block::kArena)
        fail(text(code), "out of bounds: %s of the shared memory of block %d", verb(write), other->number);
      for (Thread* thread : other->threads)
        if (thread->fiber.owns(address))
          fail(text(code), "out of bounds: %s of the stack of block %d, thread %d", verb(write), other->number,
               thread->number);
    }
    if (!buffers.empty() || address < 4096) out_of_bounds(false, address, bytes, write, code);
    return;
  }
  if (memory == Memory::plain) check_race(*region, address - region->begin, bytes, write, code);
}

// The address of the caller lies in the kernel: all wrappers around these two are inlined.
void load(void* to, const void* from, unsigned bytes, Memory memory) {
  const void* code = __builtin_return_address(0);
  if (uintptr_t(from) % bytes) fail(text(code), "misaligned: read of %u bytes at %p", bytes, from);
  access(uintptr_t(from), bytes, false, memory, code);
  std::memcpy(to, from, bytes);
}

void store(void* to, const void* from, unsigned bytes, Memory memory) {
  const void* code = __builtin_return_address(0);
  const uint64_t idle = state.idle;
  if (uintptr_t(to) % bytes) fail(text(code), "misaligned: write of %u bytes at %p", bytes, to);
  access(uintptr_t(to), bytes, true, memory, code);
  if (std::memcmp(to, from, bytes) == 0) state.idle = idle;  // an atomic that changes nothing is only a read
  std::memcpy(to, from, bytes);
}

void* shared(const void* key, size_t bytes, size_t alignment, const char* name) {
  Block& block = *state.current->block;
  size_t fixed = key == &dynamic_key ? 0 : bytes, end = Block::kRedZone;
  for (Region& object : block.shared) {
    if (object.key == key) return reinterpret_cast<void*>(object.begin);
    if (object.key != &dynamic_key) fixed += object.bytes;
    end = object.begin + object.bytes + Block::kRedZone - uintptr_t(block.arena.get());
  }
  alignment = std::max<size_t>(alignment, 16);
  const uintptr_t begin = (uintptr_t(block.arena.get()) + end + alignment - 1) / alignment * alignment;
  if (fixed > Block::kShared || begin + bytes + Block::kRedZone > uintptr_t(block.arena.get()) + Block::kArena)
    fail(name, "more than %zu bytes of shared memory", Block::kShared);
  if (fixed + state.dynamic_shared > device().shared_per_block)
    fail(name, "%zu bytes of shared memory, %zu fit", fixed + state.dynamic_shared, device().shared_per_block);
  block.shared.emplace_back();
  Region& object = block.shared.back();
  object.begin = begin;
  object.bytes = bytes;
  object.name = name;
  object.key = key;
  return reinterpret_cast<void*>(begin);
}

void* dynamic_shared(const char* name) { return shared(&dynamic_key, state.dynamic_shared, 16, name); }

// File and line of an instruction, by binutils.  Inlined functions come innermost first; the wrappers are not meant.
const char* text(const void* code) {
  struct Known {
    const void* code;
    char place[512];
  };
  static std::deque<Known> all;
  for (const Known& known : all)
    if (known.code == code) return known.place;
  Known& known = all.emplace_back();
  known.code = code;
  std::snprintf(known.place, sizeof(known.place), "code at %p", code);
  Dl_info info;
  if (!dladdr(code, &info)) return known.place;
  const bool relocated = static_cast<const ElfW(Ehdr)*>(info.dli_fbase)->e_type == ET_DYN;
  const uintptr_t address =
      uintptr_t(code) - 1 - (relocated ? uintptr_t(info.dli_fbase) : 0);  // the call before `code`
  char line[1024];
  std::snprintf(line, sizeof(line), "addr2line -i -e '%s' %#zx 2>/dev/null", info.dli_fname, size_t(address));
  FILE* const pipe = popen(line, "r");
  if (!pipe) return known.place;
  for (bool found = false; std::fgets(line, sizeof(line), pipe);)
    if (!found && line[0] != '?' && !std::strstr(line, "cuda_runtime.h:")) {
      std::snprintf(known.place, sizeof(known.place), "%.*s", int(std::strcspn(line, " \n")), line);
      found = true;
    }
  pclose(pipe);
  return known.place;
}

}  // namespace host_cuda
