#pragma once

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"
#include "base/dtype.h"
#include "tensor/few.h"
#include "tensor/ref.h"
#include "tensor/shape.h"
#include "trace/trace.h"

namespace llmem {

class Device;
struct Node;

// Memory on the device, shared by a tensor and its views; freed with the last of them.
struct Storage {
  Storage(Device& owner, Bytes size) : device(owner), bytes(size) {}

  // FSDP gives the memory of a parameter back and takes it again while tensors go on pointing at it (untyped_storage().resize_).
  void allocate();
  void release();
  bool allocated() const { return allocation >= 0; }

  int references = 0;
  Device& device;
  Bytes bytes;
  std::int32_t allocation = -1;  // index into Trace::allocations; -1: no memory
  std::uint32_t shape = 0;       // index into Trace::shapes
};
void destroy(Storage* storage);

struct TensorImpl {
  int references = 0;
  Ref<Storage> storage;
  Layout layout;
  Dtype dtype = Dtype::float32;
  bool requires_grad = false;  // of a leaf
  Ref<TensorImpl> base;        // what this is a view of: a view keeps it (DifferentiableViewMeta::base_)
  Ref<Node> grad_fn;           // null: a leaf
  int output_index = 0;        // which output of grad_fn
  Ref<TensorImpl> grad;
  Node* weak_accumulator = nullptr;  // … or, of an activation that is a leaf, kept by the graph alone
  Ref<Node> accumulator;             // of a leaf that requires grad: its AccumulateGrad node
};
void destroy(TensorImpl* impl);

// A handle to a tensor: copying it is Python's second name for the same object.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  explicit operator bool() const { return static_cast<bool>(impl_); }
  TensorImpl* operator->() const { return impl_.get(); }
  TensorImpl* get() const { return impl_.get(); }
  const Ref<TensorImpl>& impl() const { return impl_; }
  void reset() { impl_.reset(); }

  Device& device() const { return impl_->storage->device; }
  const Dims& sizes() const { return impl_->layout.sizes; }
  const Dims& strides() const { return impl_->layout.strides; }
  const Layout& layout() const { return impl_->layout; }
  std::int64_t size(int d) const { return impl_->layout.sizes[d < 0 ? d + dim() : d]; }
  int dim() const { return impl_->layout.sizes.size(); }
  std::int64_t numel() const { return count_of(impl_->layout.sizes); }
  Dtype dtype() const { return impl_->dtype; }
  // What a kernel that takes this reads: an expanded view no more than what lies under it.
  std::int64_t bytes_read() const { return std::min(numel() * itemsize(), impl_->storage->bytes.count); }
  bool contiguous() const { return is_contiguous(impl_->layout); }
  bool requires_grad() const { return impl_ && (impl_->requires_grad || impl_->grad_fn); }
  std::int64_t itemsize() const { return size_of(impl_->dtype).count; }

 private:
  Ref<TensorImpl> impl_;
};

using Tensors = Few<Tensor, 4>;

}  // namespace llmem
