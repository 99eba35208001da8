#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "allocator/caching_allocator.h"
#include "allocator/free_blocks.h"
#include "allocator/replay.h"

namespace llmem {
namespace {

// ---------------------------------------------------------------- recordings of PyTorch

// A line of tests/data/allocator/*.txt (from_snapshot.py says how they read).
struct Recorded {
  enum class Kind { request, failure, free, device } kind;
  std::size_t key = 0;
  Bytes bytes;
  std::uint64_t address = 0;
  std::uint8_t stream = 0;
  DeviceCall call{};
};

struct Recording {
  std::vector<Recorded> lines;
  std::size_t requests = 0;
};

DeviceCall::Kind device_call_named(const std::string& name) {
  if (name == "alloc") return DeviceCall::Kind::allocate;
  if (name == "free") return DeviceCall::Kind::free;
  if (name == "map") return DeviceCall::Kind::map;
  EXPECT_EQ(name, "unmap");
  return DeviceCall::Kind::unmap;
}

Recording recording(const std::string& name) {
  std::ifstream file(std::string(LLMEM_ROOT) + "/tests/data/allocator/" + name + ".txt");
  EXPECT_TRUE(file) << name;
  Recording out;
  for (std::string line; std::getline(file, line);) {
    Recorded r{};
    int stream = 0;
    if (line[0] == '!') {
      std::istringstream(line.substr(1)) >> r.bytes.count >> stream;
      r.kind = Recorded::Kind::failure;
      r.stream = static_cast<std::uint8_t>(stream);
    } else if (line[0] == '+') {
      std::uint64_t address = 0;
      std::istringstream(line.substr(1)) >> r.bytes.count >> address >> stream;
      r.kind = Recorded::Kind::request;
      r.key = out.requests++;
      r.address = address * 512;
      r.stream = static_cast<std::uint8_t>(stream);
    } else if (line[0] == '-') {
      r.kind = Recorded::Kind::free;
      std::istringstream(line.substr(1)) >> r.key;
    } else {
      std::string call;
      std::istringstream(line) >> call >> r.call.bytes.count;
      r.kind = Recorded::Kind::device;
      r.call.kind = device_call_named(call);
    }
    out.lines.push_back(r);
  }
  return out;
}

// The same requests and frees, as a trace.
Trace trace_of(const Recording& recording) {
  Trace trace;
  for (const Recorded& r : recording.lines) {
    if (r.kind == Recorded::Kind::request) {
      Allocation a;
      a.bytes = r.bytes;
      a.stream = r.stream;
      trace.allocations.push_back(a);
      trace.events.push_back(static_cast<std::int32_t>(r.key));
    } else if (r.kind == Recorded::Kind::free) {
      trace.events.push_back(~static_cast<std::int32_t>(r.key));
    }
  }
  return trace;
}

// Where the recorded run left PyTorch's counters at its end, and how far they had been.
struct Expected {
  const char* recording;
  AllocatorSettings settings;
  Bytes allocated, peak_allocated, reserved, peak_reserved;
  int retries;
};

class Recordings : public testing::TestWithParam<Expected> {};

TEST_P(Recordings, EveryBlockAndDeviceCallIsPyTorchs) {
  const Expected& expected = GetParam();
  const Recording recorded = recording(expected.recording);
  CachingAllocator allocator(expected.settings, recorded.requests + 1);
  std::vector<DeviceCall> calls;
  for (const Recorded& r : recorded.lines) {
    switch (r.kind) {
      case Recorded::Kind::device: calls.push_back(r.call); break;
      case Recorded::Kind::free: allocator.release(r.key); break;
      case Recorded::Kind::failure: ASSERT_FALSE(allocator.allocate(recorded.requests, r.bytes, r.stream)); break;
      case Recorded::Kind::request:
        ASSERT_TRUE(allocator.allocate(r.key, r.bytes, r.stream)) << "request " << r.key;
        ASSERT_EQ(allocator.block_address(r.key), r.address) << "request " << r.key;
        ASSERT_EQ(allocator.device_calls(), calls) << "request " << r.key;
        break;
    }
  }
  const Counters& c = allocator.counters();
  EXPECT_EQ(c.allocated, expected.allocated);
  EXPECT_EQ(c.peak_allocated, expected.peak_allocated);
  EXPECT_EQ(c.reserved, expected.reserved);
  EXPECT_EQ(c.peak_reserved, expected.peak_reserved);
  EXPECT_EQ(allocator.retries(), expected.retries);
}

AllocatorSettings settings(bool expandable, std::optional<std::int64_t> max_split_size_mb, std::optional<Bytes> memory) {
  AllocatorSettings s;
  s.expandable_segments = expandable;
  s.max_split_size_mb = max_split_size_mb;
  s.memory = memory;
  return s;
}

AllocatorSettings power2_divisions(std::int64_t divisions, Bytes memory) {
  AllocatorSettings s = settings(false, {}, memory);
  s.roundup_power2_divisions = divisions;
  return s;
}

// Counters: the oracle's points for the runs that were recorded. 8 TiB is the memory of its device unless a spec says otherwise;
// it decides where an expandable segment's address space ends.
INSTANTIATE_TEST_SUITE_P(
    PyTorch, Recordings,
    testing::Values(
        Expected{"default", settings(false, {}, {}), {124848640}, {372320256}, {434110464}, {434110464}, 0},
        Expected{
            "expandable_segments", settings(true, {}, Bytes{std::int64_t{8} << 40}), {124062208}, {369149952}, {469762048}, {469762048}, 0},
        Expected{"max_split_size", settings(false, 21, Bytes{1380000000}), {125669888}, {1271422464}, {1155530752}, {1293942784}, 2},
        Expected{"streams", settings(false, {}, {}), {43973120}, {326450688}, {524288000}, {524288000}, 0},
        // exercise.py: little memory, so that the cache goes back to the device many times and some requests fail.
        Expected{"pressure", settings(false, {}, Bytes{220000000}), {68710400}, {180279296}, {169869312}, {218103808}, 18},
        Expected{
            "pressure_expandable_segments", settings(true, {}, Bytes{150000000}), {111149568}, {144736256}, {132120576}, {148897792}, 67},
        Expected{"pressure_max_split_size", settings(false, 21, Bytes{150000000}), {1348608}, {87035392}, {94371840}, {142606336}, 11},
        Expected{"roundup_power2_divisions", power2_divisions(8, Bytes{240000000}), {42083840}, {201524224}, {150994944}, {228589568}, 3}),
    [](const auto& instance) { return std::string(instance.param.recording); });

// ---------------------------------------------------------------- out of memory

// What PyTorch's message says of the same run on a device with so much memory: MiB with two decimals.
struct Failure {
  const char* recording;
  bool expandable;
  Bytes memory;
  const char *tried, *allocated, *unallocated;
  int retries;
};

std::string MiB(Bytes bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes.count) / (1 << 20));
  return text;
}

class Failures : public testing::TestWithParam<Failure> {};

TEST_P(Failures, AreThoseOfPyTorch) {
  const Failure& expected = GetParam();
  const Trace trace = trace_of(recording(expected.recording));
  const Replay r = replay(trace, settings(expected.expandable, {}, expected.memory));
  ASSERT_TRUE(r.out_of_memory);
  EXPECT_EQ(MiB(r.out_of_memory->tried), expected.tried);
  EXPECT_EQ(MiB(r.out_of_memory->allocated), expected.allocated);
  EXPECT_EQ(MiB(r.out_of_memory->reserved - r.out_of_memory->allocated), expected.unallocated);
  EXPECT_EQ(r.retries, expected.retries);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Failures,
                         testing::Values(Failure{"default", false, {150000000}, "74.00", "93.53", "16.47", 1},
                                         Failure{"default", false, {260000000}, "74.00", "167.54", "16.46", 1},
                                         Failure{"default", false, {345000000}, "74.00", "243.70", "56.30", 2},
                                         Failure{"default", false, {360000000}, "74.00", "243.70", "94.30", 1},
                                         Failure{"default", false, {420000000}, "74.00", "243.70", "94.30", 1},
                                         Failure{"expandable_segments", true, {150000000}, "74.00", "92.78", "7.22", 1},
                                         Failure{"expandable_segments", true, {260000000}, "74.00", "166.03", "13.97", 1},
                                         Failure{"expandable_segments", true, {345000000}, "74.00", "242.19", "43.81", 1},
                                         Failure{"expandable_segments", true, {440000000}, "74.00", "278.81", "67.19", 1}));

TEST(CachingAllocator, ARequestThatNoDeviceHoldsFails) {
  CachingAllocator allocator({}, 2);
  EXPECT_FALSE(allocator.allocate(0, Bytes{INT64_MAX}));
  EXPECT_FALSE(allocator.allocate(0, no_memory_limit + Bytes{1}));
  EXPECT_TRUE(allocator.allocate(1, 1_MiB));
  EXPECT_EQ(allocator.counters().reserved, 2_MiB);
  CachingAllocator expandable(settings(true, {}, Bytes{0}), 1);
  EXPECT_FALSE(expandable.allocate(0, Bytes{1}));
}

// ---------------------------------------------------------------- rules, from the source

Bytes block_for(Bytes request, const AllocatorSettings& s = {}) {
  CachingAllocator allocator(s, 1);
  EXPECT_TRUE(allocator.allocate(0, request));
  return allocator.block_size(0);
}

TEST(CachingAllocator, RoundsTo512Bytes) {
  EXPECT_EQ(block_for(Bytes{0}), Bytes{0});  // no storage, no block
  EXPECT_EQ(block_for(Bytes{1}), Bytes{512});
  EXPECT_EQ(block_for(Bytes{512}), Bytes{512});
  EXPECT_EQ(block_for(Bytes{513}), Bytes{1024});
}

TEST(CachingAllocator, RoundsUpToDivisionsOfPowersOfTwo) {
  AllocatorSettings s;
  s.roundup_power2_divisions = 4;  // the note on roundup_power2_next_division: 1024, 1280, 1536, 1792, 2048
  EXPECT_EQ(block_for(Bytes{1200 * 1024}, s), Bytes{1280 * 1024});
  EXPECT_EQ(block_for(Bytes{1280 * 1024 + 1}, s), Bytes{1536 * 1024});
  EXPECT_EQ(block_for(Bytes{1900 * 1024}, s), Bytes{2048 * 1024});
  EXPECT_EQ(block_for(Bytes{2048 * 1024}, s), Bytes{2048 * 1024});
  EXPECT_EQ(block_for(Bytes{1200}, s), Bytes{1536});  // below 4 * 512: as ever
}

Bytes segment_for(Bytes request) {
  CachingAllocator allocator({}, 1);
  EXPECT_TRUE(allocator.allocate(0, request));
  return allocator.counters().reserved;
}

TEST(CachingAllocator, SegmentSizes) {
  EXPECT_EQ(segment_for(Bytes{1}), 2_MiB);
  EXPECT_EQ(segment_for(1_MiB), 2_MiB);
  EXPECT_EQ(segment_for(1_MiB + Bytes{1}), 20_MiB);
  EXPECT_EQ(segment_for(10_MiB - Bytes{512}), 20_MiB);
  EXPECT_EQ(segment_for(10_MiB), 10_MiB);
  EXPECT_EQ(segment_for(10_MiB + Bytes{1}), 12_MiB);
}

TEST(CachingAllocator, LeavesUpToOneMiBAtALargeBlocksEnd) {
  EXPECT_EQ(block_for(11_MiB), 12_MiB);
  EXPECT_EQ(block_for(11_MiB - Bytes{512}), 11_MiB - Bytes{512});
  EXPECT_EQ(block_for(11_MiB, settings(true, {}, {})), 11_MiB);  // expandable segments split whatever is left
}

TEST(CachingAllocator, StreamsShareNothing) {
  CachingAllocator allocator({}, 2);
  ASSERT_TRUE(allocator.allocate(0, Bytes{512}, 0));
  allocator.release(0);
  ASSERT_TRUE(allocator.allocate(1, Bytes{512}, 3));
  EXPECT_EQ(allocator.counters().reserved, 4_MiB);
}

TEST(CachingAllocator, EmptyCacheGivesBackWholeSegmentsOnly) {
  CachingAllocator allocator({}, 3);
  ASSERT_TRUE(allocator.allocate(0, 10_MiB));
  ASSERT_TRUE(allocator.allocate(1, 2_MiB));
  ASSERT_TRUE(allocator.allocate(2, 2_MiB));  // from the same 20 MiB segment
  allocator.release(0);
  allocator.release(1);
  allocator.empty_cache();
  EXPECT_EQ(allocator.counters().reserved, 20_MiB);
  allocator.release(2);
  allocator.release(2);  // a second time is nothing
  allocator.empty_cache();
  EXPECT_EQ(allocator.counters().reserved, Bytes{0});
  EXPECT_EQ(allocator.counters().allocated, Bytes{0});
}

TEST(CachingAllocator, EmptyCacheUnmapsWholePagesOfExpandableSegments) {
  CachingAllocator allocator(settings(true, {}, {}), 4);
  ASSERT_TRUE(allocator.allocate(0, 15_MiB));  // pages of 20 MiB: 0
  ASSERT_TRUE(allocator.allocate(1, 40_MiB));  // 0 to 2
  ASSERT_TRUE(allocator.allocate(2, 4_MiB));   // 2
  EXPECT_EQ(allocator.counters().reserved, 60_MiB);
  allocator.release(1);
  allocator.empty_cache();  // page 1 is free from end to end
  EXPECT_EQ(allocator.counters().reserved, 40_MiB);
  ASSERT_TRUE(allocator.allocate(3, 40_MiB));  // fills the gap again: 5 MiB left in page 0, page 1, 15 MiB of page 2
  EXPECT_EQ(allocator.counters().reserved, 60_MiB);
  EXPECT_EQ(allocator.block_address(3) - allocator.block_address(0), std::uint64_t{15} << 20);
  EXPECT_EQ(allocator.device_calls().back(), (DeviceCall{DeviceCall::Kind::map, 20_MiB}));
}

// Two free blocks of 1 MiB: one in a segment that was given back and asked for again (perhaps at its old, lower address), one in an
// older segment. BlockComparatorSizeCounterAddress (PyTorch 2.14): the older segment's.
TEST(CachingAllocator, AmongEqualBlocksTheOldestSegmentIsUsed) {
  CachingAllocator allocator({}, 7);
  for (const std::size_t key : {0, 1, 2, 3}) ASSERT_TRUE(allocator.allocate(key, 1_MiB));  // two segments of 2 MiB
  allocator.release(0);
  allocator.release(1);
  allocator.empty_cache();
  ASSERT_TRUE(allocator.allocate(4, 1_MiB));
  ASSERT_TRUE(allocator.allocate(5, 1_MiB));
  const std::uint64_t older = allocator.block_address(2);
  allocator.release(4);
  allocator.release(2);
  ASSERT_TRUE(allocator.allocate(6, 1_MiB));
  EXPECT_EQ(allocator.block_address(6), older);
}

// ---------------------------------------------------------------- the ordered set

TEST(FreeBlocks, OrdersBySizeThenAddress) {
  FreeBlocks free;
  const std::int64_t sizes[] = {512, 1 << 20, 3 << 20, (3 << 20) + 512, 7 << 20, std::int64_t{1} << 40};
  std::int32_t block = 0;
  for (const std::int64_t size : sizes)
    for (const std::uint64_t address : {30, 10, 20}) free.insert(size, address, block++);
  std::vector<std::pair<std::int64_t, std::uint64_t>> seen, expected;
  for (FreeBlocks::Position at = free.first(); !free.is_end(at); at = free.next(at)) seen.push_back({free[at].size, free[at].address});
  for (const std::int64_t size : sizes)
    for (const std::uint64_t address : {10, 20, 30}) expected.push_back({size, address});
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(free[free.lower_bound(513)].size, 1 << 20);
  EXPECT_EQ(free[free.lower_bound((3 << 20) + 1)].size, (3 << 20) + 512);
  EXPECT_EQ(free[free.lower_bound((3 << 20) + 1)].address, 10u);
  EXPECT_TRUE(free.is_end(free.lower_bound((std::int64_t{1} << 40) + 1)));
  EXPECT_EQ(free[free.last()].address, 30u);
  for (const std::uint64_t address : {10, 20, 30}) free.erase(std::int64_t{1} << 40, address);
  EXPECT_EQ(free[free.last()].size, 7 << 20);
  EXPECT_EQ(free[free.previous(free.last())].address, 20u);
}

// ---------------------------------------------------------------- replay

Trace small_trace() {
  Trace trace;
  for (const Bytes bytes : {4_MiB, 8_MiB, 4_MiB, 30_MiB}) {
    Allocation a;
    a.bytes = bytes;
    trace.allocations.push_back(a);
  }
  trace.events = {0, 1, ~1, 2, ~2, 3, ~3, ~0};
  trace.points = {{"loaded", 1}, {"step0.forward0", 3}, {"step0.zero_grad", 5}, {"step1.forward0", 8}};
  trace.peak_resets = {1, 5};
  return trace;
}

TEST(Replay, ReadsCountersAtPointsAndPeaksSinceTheStepBegan) {
  const Replay r = replay(small_trace(), {});
  ASSERT_EQ(r.points.size(), 4u);
  EXPECT_EQ(r.points[0].allocated, 4_MiB);
  EXPECT_EQ(r.points[0].reserved, 20_MiB);
  EXPECT_EQ(r.points[1].allocated, 4_MiB);
  EXPECT_EQ(r.points[1].peak_allocated, 12_MiB);
  EXPECT_EQ(r.points[2].peak_allocated, 12_MiB);  // read before the reset after the same event
  EXPECT_EQ(r.points[3].allocated, Bytes{0});
  EXPECT_EQ(r.points[3].peak_allocated, 34_MiB);
  EXPECT_EQ(r.points[3].peak_reserved, 50_MiB);
  EXPECT_EQ(r.peak_allocated, 34_MiB);
  EXPECT_EQ(r.peak_event, 5u);
  EXPECT_EQ(r.reserved_at_peak, 50_MiB);
  EXPECT_EQ(r.block_sizes, (std::vector<Bytes>{4_MiB, 8_MiB, 4_MiB, 30_MiB}));
  EXPECT_FALSE(r.out_of_memory);
}

TEST(Replay, StopsWhereMemoryEnds) {
  const Replay r = replay(small_trace(), settings(false, {}, 40_MiB));
  ASSERT_TRUE(r.out_of_memory);
  EXPECT_EQ(r.points.size(), 3u);
  EXPECT_EQ(r.out_of_memory->last_point, 2u);
  EXPECT_EQ(r.out_of_memory->allocation, 3u);
  EXPECT_EQ(r.out_of_memory->tried, 30_MiB);
  EXPECT_EQ(r.out_of_memory->allocated, 4_MiB);
  EXPECT_EQ(r.out_of_memory->reserved, 20_MiB);
  EXPECT_EQ(r.retries, 1);
}

// One tensor after the other on stream 1, each used by stream 0 and then freed.
Trace passed_on(const std::vector<Wait>& waits) {
  Trace trace;
  for (std::int32_t i = 0; i < 3; ++i) {
    Allocation a;
    a.bytes = 20_MiB;
    a.stream = 1;
    a.used_by = 1;
    trace.allocations.push_back(a);
    trace.events.insert(trace.events.end(), {i, ~i});
  }
  trace.waits = waits;
  return trace;
}

Bytes late_reserved(const std::vector<Wait>& waits) { return replay(passed_on(waits), {}, Return::as_late_as_can_be).peak_reserved; }

TEST(Replay, WhatAnotherStreamHasUsedComesBackWhenTheHostHasWaitedForIt) {
  using Kind = Wait::Kind;
  EXPECT_EQ(replay(passed_on({}), {}).peak_reserved, 20_MiB);
  EXPECT_EQ(late_reserved({}), 60_MiB);
  EXPECT_EQ(late_reserved({{Kind::host, 0, 0, 2}}), 40_MiB);                         // the first block, for the second and not the third
  EXPECT_EQ(late_reserved({{Kind::host, 0, 0, 2}, {Kind::host, 0, 0, 4}}), 20_MiB);  // each before the next is asked for
  EXPECT_EQ(late_reserved({{Kind::host, 0, 1, 2}}), 60_MiB);                         // the other stream, which does not wait for this one
  EXPECT_EQ(late_reserved({{Kind::stream, 1, 0, 2}, {Kind::host, 0, 1, 2}}), 40_MiB);
  EXPECT_EQ(late_reserved({{Kind::mark, 0, 0, 2}, {Kind::host_oldest, 0, 0, 4}}), 40_MiB);
  EXPECT_EQ(late_reserved({{Kind::mark, 0, 0, 1}, {Kind::host_oldest, 0, 0, 4}}), 60_MiB);  // an event from before the block was freed
  EXPECT_EQ(late_reserved({{Kind::mark, 0, 0, 2}, {Kind::host_at_most, 0, 1, 2}}), 60_MiB);
  EXPECT_EQ(late_reserved({{Kind::mark, 0, 0, 2}, {Kind::host_at_most, 0, 0, 2}}), 40_MiB);
}

TEST(Replay, TheHostWaitsForEventsBeforeTheCacheGoesBack) {
  AllocatorSettings settings;
  settings.memory = 50_MiB;
  const Replay late = replay(passed_on({}), settings, Return::as_late_as_can_be);
  EXPECT_FALSE(late.out_of_memory);
  EXPECT_EQ(late.retries, 1);
}

TEST(Replay, AnEmptyTraceIsNothing) {
  const Replay r = replay({}, {});
  EXPECT_TRUE(r.points.empty());
  EXPECT_EQ(r.peak_allocated, Bytes{0});
  EXPECT_FALSE(r.out_of_memory);
}

}  // namespace
}  // namespace llmem
