#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/linear.h"
#include "model/norms.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"
#include "tensor/shape.h"

// Ops one by one. Where no derivation is given, the bytes are what PyTorch 2.14.1 asked its allocator for, on a GPU that computes nothing.
namespace llmem {
namespace {

constexpr GpuKind a100{80, 108}, h100{90, 132};

class OpTest : public testing::Test {
 protected:
  void SetUp() override { device.begin_phase("test"); }

  Tensor leaf(const Dims& sizes, Dtype dtype = Dtype::bfloat16) {
    Tensor made = device.empty(sizes, dtype);
    device.set_category(made->storage->allocation, Category::weights);
    require_grad(made);
    return made;
  }

  // What attention gets in a model: [rows, tokens, heads, d] with heads and tokens exchanged.
  Tensor heads_of(const Dims& sizes, Dtype dtype) { return transpose(leaf({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype), 1, 2); }

  // Requests since the last call.
  std::vector<std::int64_t> requests() {
    std::vector<std::int64_t> sizes;
    for (; seen < trace.events.size(); ++seen)
      if (!is_free(trace.events[seen])) sizes.push_back(trace.allocations[allocation_of(trace.events[seen])].bytes.count);
    return sizes;
  }

  // The most that was alive at once since the last call, above what was alive before.
  std::int64_t most_above() {
    std::int64_t now = 0, most = 0;
    for (; seen < trace.events.size(); ++seen) {
      const std::int64_t bytes = trace.allocations[allocation_of(trace.events[seen])].bytes.count;
      now += is_free(trace.events[seen]) ? -bytes : bytes;
      most = std::max(most, now);
    }
    return most;
  }

  Trace trace;
  Device device{a100, trace};
  std::size_t seen = 0;
};

using Sizes = std::vector<std::int64_t>;

// ---------------------------------------------------------------- shapes

TEST(Shape, ViewNeedsDimensionsThatContinueEachOther) {
  const Dims sizes{2, 3, 4};
  const Layout packed{sizes, contiguous_strides(sizes)};
  EXPECT_EQ(view_strides(packed, {6, 4}), (Dims{4, 1}));
  const Layout swapped{{3, 2, 4}, {4, 12, 1}};  // transpose(0, 1): 3 and 2 no longer follow each other in memory
  EXPECT_EQ(view_strides(swapped, {6, 4}), std::nullopt);
  EXPECT_EQ(view_strides(swapped, {3, 2, 2, 2}), (Dims{4, 12, 2, 1}));
  const Layout one_row{{1, 2, 4}, {8, 4, 1}};  // a dimension of 1 is no obstacle
  EXPECT_EQ(view_strides(one_row, {2, 4}), (Dims{4, 1}));
}

TEST(Shape, ElementwiseResultsKeepTheOrderOfTheirOperandsDimensions) {
  // [B, H, S, d] made by transposing [B, S, H, d]: the product lies in memory as the operand does.
  const Dims sizes{2, 8, 16, 4}, permuted{512, 4, 32, 1};
  EXPECT_EQ(elementwise_strides(sizes, {permuted, {0, 0, 4, 1}}), permuted);
  // The first operand decides.
  EXPECT_EQ(elementwise_strides(sizes, {contiguous_strides(sizes), permuted}), contiguous_strides(sizes));
}

TEST(Shape, DenseMeansNoHolesInAnyOrder) {
  EXPECT_TRUE(is_non_overlapping_and_dense({{2, 8, 16, 4}, {512, 4, 32, 1}}));
  EXPECT_FALSE(is_non_overlapping_and_dense({{2, 4}, {8, 1}}));
  EXPECT_FALSE(is_non_overlapping_and_dense({{2, 4}, {0, 1}}));
}

// ---------------------------------------------------------------- scratch of kernels

TEST(Scratch, ColumnSums) {
  // Bias and norm-weight gradients of [2048, 1024] and of 16,384 rows of 128 on an A100.
  EXPECT_EQ(column_sum_scratch(a100, 2048, 1024), (ReductionScratch{Bytes{16777216}, Bytes{32}}));
  EXPECT_EQ(column_sum_scratch(a100, 16384, 128), (ReductionScratch{Bytes{16777216}, Bytes{4}}));
  EXPECT_EQ(column_sum_scratch(a100, 2048, 256), (ReductionScratch{Bytes{4194304}, Bytes{8}}));
  // [4096, 1024] on an H100.
  EXPECT_EQ(column_sum_scratch(h100, 4096, 1024), (ReductionScratch{Bytes{33554432}, Bytes{32}}));
  // Few rows: one block a column is enough.
  EXPECT_EQ(column_sum_scratch(a100, 512, 1024), (ReductionScratch{Bytes{0}, Bytes{0}}));
}

TEST(Scratch, ScanOfOneRow) {
  EXPECT_EQ(scan_scratch(2048), Bytes{1279});
  EXPECT_EQ(scan_scratch(32768), Bytes{1791});
  EXPECT_EQ(scan_scratch(100000), Bytes{2815});
}

// ---------------------------------------------------------------- ops

TEST_F(OpTest, EmbeddingBackwardOfFewIdsIsTheWeightGradientAlone) {
  const Tensor weight = leaf({32000, 64}), ids = device.empty({1, 3072}, Dtype::int64);
  const Tensor out = embedding(weight, ids);
  requests();
  backward(out);
  EXPECT_EQ(requests(), (Sizes{3072 * 64 * 2, 32000 * 64 * 2}));  // the root's gradient, dW
}

TEST_F(OpTest, EmbeddingBackwardOfManyIdsSorts) {
  const Tensor weight = leaf({32000, 64}), ids = device.empty({1, 20000}, Dtype::int64);
  const Tensor out = embedding(weight, ids);
  requests();
  backward(out);
  EXPECT_EQ(requests(), (Sizes{20000 * 64 * 2, 160000, 160000, 160000, 330751, 4096000, 160000, 8, 160000, 1279, 160000, 160000, 1535, 8,
                               176000, 5632000}));
}

TEST_F(OpTest, RmsNormForwardAndBackward) {
  // Forward: fp32 copy 4, fp32 product 4 that the local name still holds, cast 2, output 2, and two columns of fp32: variance and its root.
  const std::int64_t n = 512, h = 256;
  RmsNorm norm{leaf({h})};
  const Tensor x = leaf({1, n, h});
  most_above();
  const Tensor y = norm.forward(x);
  EXPECT_EQ(most_above(), 12 * n * h + 8 * n);
  // Kept for backward: fp32 copy, 1/rms, normalised copy; and the output is in hand.
  std::int64_t kept = 0;
  for (const Allocation& a : trace.allocations) kept += a.category == Category::other_activations ? a.bytes.count : 0;
  EXPECT_EQ(kept, 4 * n * h + 4 * n + 2 * n * h);
}

TEST_F(OpTest, LinearWithoutBiasMakesTheWeightGradientFirst) {
  Linear linear{leaf({96, 64}), {}};
  const Tensor x = leaf({2, 10, 64});
  const Tensor y = linear.forward(x);
  EXPECT_EQ(requests(), (Sizes{96 * 64 * 2, 20 * 64 * 2, 20 * 96 * 2, 8519680}));  // the leaves, the output, cuBLAS's workspace
  backward(y);
  EXPECT_EQ(requests(), (Sizes{20 * 96 * 2, 96 * 64 * 2, 8519680, 20 * 64 * 2}));  // the root's gradient, dW, autograd's own workspace, dX
}

TEST_F(OpTest, LinearWithBiasMakesTheInputGradientFirstAndSumsTheBiasOverRows) {
  Linear linear{leaf({256, 64}), leaf({256})};
  const Tensor x = leaf({2, 1024, 64});
  const Tensor y = linear.forward(x);
  requests();
  backward(y);
  EXPECT_EQ(requests(), (Sizes{2048 * 256 * 2, 2048 * 64 * 2, 8519680, 256 * 64 * 2, 256 * 2, 4194304, 8}));
}

// Backward of flash attention: dQ, dK, dV; softmax_d; the fp32 accumulator of dQ; dK and dV of every query
// head; all at once.
TEST_F(OpTest, FlashAttentionBackward) {
  const std::int64_t b = 2, h = 32, k = 8, s = 1000, d = 64;
  const Tensor q = heads_of({b, h, s, d}, Dtype::bfloat16), key = heads_of({b, k, s, d}, Dtype::bfloat16),
               v = heads_of({b, k, s, d}, Dtype::bfloat16);
  requests();
  const Tensor out = scaled_dot_product_attention(q, key, v);
  EXPECT_EQ(requests(), (Sizes{b * h * s * d * 2, b * h * s * 4, 16, 8}));
  backward(out);
  // The gradient, made heads first, is copied tokens first (grad_out.contiguous() of the transposed one). S is rounded up to 128: 1024.
  EXPECT_EQ(requests(), (Sizes{b * h * s * d * 2, b * h * s * d * 2, b * h * s * d * 2, b * k * s * d * 2, b * k * s * d * 2,
                               b * h * 1024 * 4, b * 1024 * h * d * 4, b * s * h * d * 2, b * s * h * d * 2}));
}

// Rows with padding (flash-attn 2.8's flash_api.cpp, mha_varlen_fwd and mha_varlen_bwd; Transformers' _get_unpad_data and bert_padding.py): the
// rows' lengths over a copy in int32; nonzero(): a count, two scratches and the indices; the longest; the sums, their scan and the rows'
// beginnings; k, v and q without padding; the output, its log-sum-exp, the generator's state; the output padded again.
TEST_F(OpTest, FlashAttentionOverPaddedRows) {
  const std::int64_t b = 2, h = 32, k = 8, s = 1000, d = 64, tokens = b * s, states = tokens * d * 2;
  const Tensor q = heads_of({b, h, s, d}, Dtype::bfloat16), key = heads_of({b, k, s, d}, Dtype::bfloat16),
               v = heads_of({b, k, s, d}, Dtype::bfloat16), mask = device.empty({b, s}, Dtype::boolean);
  requests();
  const Tensor out = flash_attention_2(q, key, v, Dtype::bfloat16, mask);
  EXPECT_EQ(requests(), (Sizes{b * 4, tokens * 4, 4, 1, 1023, tokens * 8, 4, b * 4, 1023, (b + 1) * 4, k * states, k * states, h * states,
                               h * states, h * tokens * 4, 16, h * states}));
  backward(out);
  // The root's gradient, its copy tokens first, what of it belongs to tokens; dQ, dK, dV; what is added up for a row may lie up to 128 tokens
  // beyond its end, in softmax_d and in the fp32 accumulator; dK and dV of every query head.
  const std::int64_t places = tokens + 128 * b;
  const Sizes made = requests();
  ASSERT_GE(made.size(), 10U);
  EXPECT_EQ(Sizes(made.begin(), made.begin() + 10), (Sizes{h * states, h * states, h * states, h * states, k * states, k * states,
                                                           h * places * 4, places * h * d * 4, h * states, h * states}));
}

struct EfficientCase {
  std::int64_t d, kv_heads;
  Sizes backward;
};

class EfficientAttentionTest : public OpTest, public testing::WithParamInterface<EfficientCase> {};

// fp32, 2 rows of 1000, 8 heads: out and the log-sum-exp rounded up to 32 tokens; then the sequence of the backward.
TEST_P(EfficientAttentionTest, ForwardAndBackward) {
  const std::int64_t d = GetParam().d, all = 2 * 8 * 1000 * d * 4;
  const Dims of_keys{2, GetParam().kv_heads, 1000, d};
  const Tensor q = heads_of({2, 8, 1000, d}, Dtype::float32);
  const Tensor k = heads_of(of_keys, Dtype::float32), v = heads_of(of_keys, Dtype::float32);
  requests();
  const Tensor out = scaled_dot_product_attention(q, k, v);
  EXPECT_EQ(requests(), (Sizes{8, 8, all, 65536}));
  backward(out);
  Sizes expected = GetParam().backward;
  // The root's gradient, made heads first, and its copy tokens first (_efficient_attention_backward, as for flash attention above).
  expected.insert(expected.begin(), {all, all});
  EXPECT_EQ(requests(), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Measured, EfficientAttentionTest,
    testing::Values(EfficientCase{32, 8, {2048000, 2048000, 2048000, 2048000, 64000, 64000, 4198400}},
                    EfficientCase{64, 2, {4096000, 1024000, 1024000, 4096000, 4096000, 4096000, 64000, 64000, 4198400}},
                    EfficientCase{80, 8, {5120000, 5120000, 5120000, 5120000, 64000, 64000, 8392704}},
                    EfficientCase{128, 2, {8192000, 2048000, 2048000, 8192000, 8192000, 8192000, 64000, 64000, 8392704}},
                    EfficientCase{192, 8, {12288000, 12288000, 12288000, 12288000, 64000, 64000, 12589056}},
                    EfficientCase{256, 2, {16384000, 4096000, 4096000, 16384000, 16384000, 16384000, 64000, 64000, 16785408}}),
    [](const auto& test) { return "d" + std::to_string(test.param.d) + "_kv" + std::to_string(test.param.kv_heads); });

// ---------------------------------------------------------------- autograd

TEST_F(OpTest, GradientsAddUpInPlaceOnlyWhereNothingElseSeesThem) {
  const Tensor x = leaf({8, 8}, Dtype::float32);
  const Tensor twice = add(mul_scalar(x), mul_scalar(x));
  requests();
  backward(twice);
  // The root's gradient, two products; their sum goes into the first.
  EXPECT_EQ(requests(), (Sizes{256, 256, 256}));

  const Tensor y = leaf({8, 8}, Dtype::float32);
  const Tensor flipped = add(transpose(mul_scalar(y), 0, 1), transpose(mul_scalar(y), 0, 1));
  const Tensor views = add(transpose(y, 0, 1), transpose(y, 0, 1));
  requests();
  backward(views);
  // Views keep their base: the sum is a new tensor, and being of another layout than y it is copied once more into .grad.
  EXPECT_EQ(requests().front(), 256);
}

TEST_F(OpTest, TheFirstGradientIsTakenLaterOnesAreAdded) {
  const Tensor x = leaf({8, 8}, Dtype::float32);
  for (int i = 0; i < 2; ++i) {
    const Tensor y = mul_scalar(x);
    requests();
    backward(y);
    EXPECT_EQ(requests(), (Sizes{256, 256}));
  }
  EXPECT_EQ(trace.allocations[static_cast<std::size_t>(x->grad->storage->allocation)].category, Category::gradients);
}

TEST_F(OpTest, CheckpointKeepsNothingAndStopsAtTheLastTensorItNeeds) {
  Linear linear{leaf({64, 64}), {}};
  const Tensor x = leaf({1, 16, 64});
  const auto body = [&] {
    const Tensor activated = silu(x);
    const Tensor product = linear.forward(activated);
    return add(x, product);
  };
  const Tensor y = checkpoint(device, body);
  requests();
  backward(y);
  const std::int64_t all = 16 * 64 * 2, w = 64 * 64 * 2;
  // The root's gradient; silu again, but neither the product nor the sum; dW, workspace, dX; silu's gradient; and its sum with the one that
  // the addition passed on to x, which the caller of backward still holds.
  EXPECT_EQ(requests(), (Sizes{all, all, w, 8519680, all, all, all}));
}

TEST_F(OpTest, AutocastCachesTheCastOfAWeightUntilTheRegionEnds) {
  Linear linear{leaf({64, 64}, Dtype::float32), {}};
  const Tensor x = leaf({1, 16, 64}, Dtype::float32);
  requests();
  {
    const AutocastRegion region(device, Dtype::bfloat16);
    linear.forward(x);
    EXPECT_EQ(requests(), (Sizes{64 * 64 * 2, 16 * 64 * 2, 16 * 64 * 2, 8519680}));
  }
  const AutocastRegion region(device, Dtype::bfloat16);
  linear.forward(x);
  linear.forward(x);  // x is a leaf that wants a gradient: PyTorch caches its cast just so
  EXPECT_EQ(requests(), (Sizes{64 * 64 * 2, 16 * 64 * 2, 16 * 64 * 2, 16 * 64 * 2}));
}

}  // namespace
}  // namespace llmem
