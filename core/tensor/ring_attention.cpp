#include "tensor/ring_attention.h"

#include <utility>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

constexpr int sequence = 2;  // the dimension of tokens

Tensor fresh(const Tensor& of, const Dims& sizes, Dtype dtype) { return of.device().empty(sizes, dtype); }

// What an elementwise kernel makes of it.
Tensor like(const Tensor& tensor, Dtype dtype) { return unary_no_grad(tensor, "merge", dtype); }

Tensor second_half(const Tensor& tensor) {
  const std::int64_t half = tensor.size(sequence) / 2;
  return narrow(tensor, sequence, half, half);
}
Tensor first_half(const Tensor& tensor) { return narrow(tensor, sequence, 0, tensor.size(sequence) / 2); }

// torch.cat([a.flatten(), b.flatten()])
Tensor flat_pair(const Tensor& a, const Tensor& b) {
  const Tensor flat_a = contiguous(a), flat_b = contiguous(b);
  return fresh(a, {a.numel() + b.numel()}, a.dtype());
}

// buffer[…].reshape(sizes)
Tensor part_of(const Tensor& buffer, const Dims& sizes) {
  const Tensor part = detach(buffer);
  part->layout = {sizes, contiguous_strides(sizes)};
  return part;
}

// _AllGatherRotater and _AllToAllRotater
class Rotater {
 public:
  Rotater(const Ring& ring, bool all_to_all) : ranks_(ring.ranks), all_to_all_(all_to_all) {}

  // Begun here, waited for when it is asked for: meanwhile attention runs over the block before.
  void exchange(const Tensor& buffer) {
    Meter& meter = buffer.device().meter;
    if (all_to_all_) {
      received_ = fresh(buffer, buffer.sizes(), buffer.dtype());
      meter.communicate(Collective::send, Among::context, ranks_, buffer.bytes_read(), ring_stream);
    } else if (!received_) {
      received_ = fresh(buffer, {buffer.numel() * ranks_}, buffer.dtype());
      meter.communicate(Collective::all_gather, Among::context, ranks_, received_.bytes_read(), ring_stream);
    }
  }
  const Tensor& next() const {
    received_.device().meter.wait(ring_stream);
    return received_;
  }

 private:
  static constexpr std::uint8_t ring_stream = 6;

  std::int64_t ranks_;
  bool all_to_all_;
  Tensor received_;
};

enum class Causal : std::uint8_t { causal, all, skip };
Causal behaviour(const Ring& ring, std::int64_t i) {
  if (i == 0) return Causal::causal;
  const std::int64_t source = (ring.rank - i + ring.ranks) % ring.ranks;
  return source < ring.rank || ring.load_balance ? Causal::all : Causal::skip;
}

// _SDPAMerger, in fp32
class Merger {
 public:
  void step(const Tensor& block, const Tensor& block_sums, bool partial) {
    const Tensor block_out = to(block, Dtype::float32);
    if (!out_) {
      out_ = block_out;
      sums_ = block_sums;
      return;
    }
    Tensor sums = partial ? second_half(sums_) : sums_, out = partial ? second_half(out_) : out_;
    Tensor sigmoid;
    {
      const Tensor difference = like(sums, Dtype::float32);
      sigmoid = like(difference, Dtype::float32);
    }
    Tensor product;
    {
      const Tensor difference = like(out, Dtype::float32);
      product = like(difference, Dtype::float32);
    }
    sigmoid.reset();
    out = like(out, Dtype::float32);
    product.reset();
    Tensor logarithm;
    {
      const Tensor difference = like(sums, Dtype::float32);
      logarithm = like(difference, Dtype::float32);
    }
    sums = like(sums, Dtype::float32);
    logarithm.reset();
    // _partial_update: torch.cat
    sums_ = partial ? fresh(sums_, sums_.sizes(), Dtype::float32) : sums;
    out_ = partial ? fresh(out_, out_.sizes(), Dtype::float32) : out;
  }

  const Tensor& out() const { return out_; }
  const Tensor& sums() const { return sums_; }

 private:
  Tensor out_, sums_;
};

// _templated_ring_attention
FlashForward ring_forward(const Tensor& query, Tensor key, Tensor value, double dropout, const Ring& ring) {
  const Dims sizes = key.sizes();
  key = contiguous(key);
  value = contiguous(value);
  Merger merger;
  Rotater rotater(ring, ring.all_to_all);
  Tensor next, q, k, v;
  FlashForward now, first;
  for (std::int64_t i = 0; i < ring.ranks; ++i) {
    if (i > 0) {
      next = rotater.next();
      key = part_of(next, sizes);
      value = part_of(next, sizes);
    }
    if (i < ring.ranks - 1) {
      next = flat_pair(key, value);
      rotater.exchange(next);
      next.reset();
    }
    if (behaviour(ring, i) == Causal::skip) continue;
    bool partial = false;
    q = query;
    k = key;
    v = value;
    if (i > 0 && ring.load_balance) {
      partial = i > ring.rank;
      if (partial) {
        q = second_half(query);
      } else {
        k = first_half(key);
        v = first_half(value);
      }
    }
    now = flash_forward(q, k, dropout, i == 0);
    if (!first.rng_state) first = {{}, {}, now.rng_state, now.unused};
    merger.step(now.output, now.logsumexp, partial);
  }
  first.output = to(merger.out(), query.dtype());
  first.logsumexp = merger.sums();
  return first;
}

// _partial_update(…, add=True)
Tensor added_to_half(const Tensor& whole) { return fresh(whole, whole.sizes(), whole.dtype()); }

// _templated_ring_attention_backward
Tensors ring_backward(const Tensor& gradient, const Tensor& output, const Tensor& sums, const Tensor& query, Tensor key, Tensor value,
                      const Ring& ring) {
  const Dims sizes = key.sizes();
  const Dtype dtype = query.dtype();
  Tensor grad_query = like(query, Dtype::float32), grad_key = like(key, Dtype::float32), grad_value = like(value, Dtype::float32);
  key = contiguous(key);
  value = contiguous(value);
  Rotater pairs(ring, ring.all_to_all), gradients(ring, true);
  Tensor next_pair, next_gradients, q, k, v, out, upstream, q_sums;
  Tensors made;
  for (std::int64_t i = 0; i < ring.ranks; ++i) {
    if (i > 0) {
      key = part_of(pairs.next(), sizes);
      value = part_of(pairs.next(), sizes);
    }
    if (i < ring.ranks - 1) {
      next_pair = flat_pair(key, value);
      pairs.exchange(next_pair);
    }
    const bool skipped = behaviour(ring, i) == Causal::skip, balanced = i > 0 && ring.load_balance, partial = balanced && i > ring.rank;
    if (skipped) {
      // torch.zeros_like: each takes the place of its like from the step before.
      made[0] = like(query, Dtype::float32);
      made[1] = like(key, Dtype::float32);
      made[2] = like(value, Dtype::float32);
    } else {
      q = partial ? second_half(query) : query;
      k = balanced && !partial ? first_half(key) : key;
      v = balanced && !partial ? first_half(value) : value;
      out = partial ? second_half(output) : output;
      upstream = partial ? second_half(gradient) : gradient;
      q_sums = partial ? contiguous(second_half(sums)) : sums;
      made = flash_backward(upstream, out, q, k, v, i == 0);
    }
    if (i > 0) {
      next_gradients = gradients.next();
      grad_key = part_of(next_gradients, sizes);
      grad_value = part_of(next_gradients, sizes);
      if (balanced && !partial) {
        grad_key = added_to_half(grad_key);
        grad_value = added_to_half(grad_value);
      }
    }
    next_gradients = flat_pair(grad_key, grad_value);
    gradients.exchange(next_gradients);
    if (partial) grad_query = added_to_half(grad_query);
  }
  grad_query = to(grad_query, dtype);
  next_gradients = to(gradients.next(), dtype);
  return {grad_query, part_of(next_gradients, sizes), part_of(next_gradients, sizes)};
}

}  // namespace

Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, const Ring& ring) {
  Recorder grad("ring_attention", {&query, &key, &value});
  Saved key_ = grad.save_if(grad.recording(), key);
  Saved query_ = grad.save_if(grad.recording(), query);
  Saved value_ = grad.save_if(grad.recording(), value);
  FlashForward made;
  {
    const With no_grad(query.device().grad_enabled, false);
    made = ring_forward(query, key, value, dropout, ring);
  }
  Saved sums_ = grad.save_if(grad.recording(), made.logsumexp);
  Saved output_ = grad.save_if(grad.recording(), made.output);
  Saved rng_ = grad.save_if(grad.recording(), made.rng_state);
  Saved unused_ = grad.save_if(grad.recording(), made.unused);
  grad.attach(made.output);
  grad.backward([ring, key_ = std::move(key_), query_ = std::move(query_), value_ = std::move(value_), sums_ = std::move(sums_),
                 output_ = std::move(output_), rng_ = std::move(rng_), unused_ = std::move(unused_)](Tensors& gradients) {
    const Tensor saved_key = key_.unpack(), saved_query = query_.unpack(), saved_value = value_.unpack();
    const Tensor sums = sums_.unpack(), output = output_.unpack(), rng = rng_.unpack(), unused = unused_.unpack();
    return ring_backward(gradients[0], output, sums, saved_query, saved_key, saved_value, ring);
  });
  return made.output;
}

}  // namespace llmem
