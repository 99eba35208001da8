#include "base/bytes.h"

#include <gtest/gtest.h>

namespace llmem {
namespace {

TEST(Bytes, HoldMoreThan32Bits) { EXPECT_EQ((Bytes{1} * (std::int64_t{1} << 40)).count, 1099511627776); }

TEST(Bytes, RoundUpToAGranule) {
  EXPECT_EQ(round_up(Bytes{1}, Bytes{512}), Bytes{512});
  EXPECT_EQ(round_up(Bytes{512}, Bytes{512}), Bytes{512});
  EXPECT_EQ(round_up(Bytes{513}, Bytes{512}), Bytes{1024});
}

}  // namespace
}  // namespace llmem
