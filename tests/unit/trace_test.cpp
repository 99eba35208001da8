#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "model/config.h"
#include "spec/read_spec.h"
#include "step/play.h"
#include "tests/unit/files.h"

// The whole step against PyTorch's own allocation history, event by event (tests/data/traces).
namespace llmem {
namespace {

struct Request {
  std::int64_t bytes;
  int stream;
  bool operator==(const Request&) const = default;
};

// Requests and frees in order. What dies between two requests dies in any order: Python drops a frame's names as it likes.
struct History {
  std::string spec;
  std::vector<Request> requests;
  std::vector<std::vector<std::size_t>> freed_before;  // of each request, and after the last: which requests had ended since the one before
};

void close(History& history) {
  std::sort(history.freed_before.back().begin(), history.freed_before.back().end());
  history.freed_before.emplace_back();
}

History recorded(const std::string& name) {
  std::istringstream lines(file_text("tests/data/traces/" + name + ".txt"));
  History history;
  std::getline(lines, history.spec);
  history.freed_before.emplace_back();
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    char what = 0;
    std::int64_t number = 0;
    int stream = 0;
    words >> what >> number;
    if (what == 'a') {
      words >> stream;
      close(history);
      history.requests.push_back({number, stream});
    } else {
      history.freed_before.back().push_back(static_cast<std::size_t>(number));
    }
  }
  close(history);
  return history;
}

History played(const std::string& spec) {
  const Reading<Spec> reading = read_spec(spec, {});
  const Reading<Architecture> architecture = read_architecture(*reading.value.model.config);
  EXPECT_TRUE(reading.problems.empty() && architecture.problems.empty()) << shown(reading.problems) << shown(architecture.problems);
  const Trace trace = play(reading.value, architecture.value);
  History history;
  history.freed_before.emplace_back();
  for (const std::int32_t event : trace.events) {
    const Allocation& allocation = trace.allocations[allocation_of(event)];
    if (is_free(event)) {
      history.freed_before.back().push_back(allocation_of(event));
    } else {
      close(history);
      history.requests.push_back({allocation.bytes.count, allocation.stream});
    }
  }
  close(history);
  return history;
}

class TraceTest : public testing::TestWithParam<const char*> {};

TEST_P(TraceTest, EveryRequestAndFreeIsPyTorchs) {
  const History expected = recorded(GetParam());
  const History ours = played(expected.spec);
  const std::size_t shorter = std::min(expected.requests.size(), ours.requests.size());
  for (std::size_t i = 0; i < shorter; ++i) {
    ASSERT_EQ(ours.freed_before[i], expected.freed_before[i]) << "what ended before request " << i;
    ASSERT_EQ(ours.requests[i].bytes, expected.requests[i].bytes) << "request " << i;
    ASSERT_EQ(ours.requests[i].stream, expected.requests[i].stream) << "request " << i;
  }
  EXPECT_EQ(ours.requests.size(), expected.requests.size());
  EXPECT_EQ(ours.freed_before.back(), expected.freed_before.back());
}

INSTANTIATE_TEST_SUITE_P(Recorded, TraceTest,
                         testing::Values("plain", "eager", "checkpointed", "fp32", "autocast", "autocast_checkpointed", "biases_tied",
                                         "qk_norm_many_ids", "ddp", "fsdp2", "fsdp2_checkpointed", "ddp_bucket_view_accumulated",
                                         "ddp_static_graph", "ddp_find_unused", "zero_redundancy", "hsdp", "fsdp2_offload", "zero1",
                                         "zero2", "zero2_offload", "pipeline_first_stage", "pipeline_last_stage", "pipeline_gpipe",
                                         "pipeline_interleaved_first", "pipeline_interleaved_last", "tensor", "tensor_sequence_loss",
                                         "tensor_fsdp2", "fsdp1", "fsdp1_grad_op_checkpointed"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace llmem
