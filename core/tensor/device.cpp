#include "tensor/device.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tensor/autograd.h"

namespace llmem {

Device::Device(GpuKind gpu, Trace& trace) : meter(trace), streams(trace), nodes(std::make_unique<Pool<Node>>()), gpu_(gpu), trace_(trace) {
  modules_.push_back({0, "", Category::other_activations, {}});
  trace_.ops.push_back("");
  trace_.shapes.emplace_back();
}

Device::~Device() = default;

Tensor Device::empty(const Dims& sizes, Dtype dtype) { return empty_strided({sizes, contiguous_strides(sizes)}, dtype); }

Tensor Device::empty_strided(const Layout& layout, Dtype dtype) {
  Tensor tensor = unallocated(layout.sizes, dtype);
  tensor->layout.strides = layout.strides;
  tensor->storage->allocate();
  return tensor;
}

Tensor Device::unallocated(const Dims& sizes, Dtype dtype) {
  Ref<TensorImpl> impl(tensors.make());
  impl->storage = Ref<Storage>(storages.make(*this, size_of(dtype) * count_of(sizes)));
  impl->layout = {sizes, contiguous_strides(sizes)};
  impl->dtype = dtype;
  if (trace_.keep_shapes) impl->storage->shape = numbered(sizes, dtype);
  return Tensor(std::move(impl));
}

void Device::scratch(Bytes bytes) { record_free(record_allocation(bytes)); }

std::uint32_t Device::numbered(const Dims& sizes, Dtype dtype) {
  std::vector<std::int64_t> list;
  for (int i = 0; i < sizes.size(); ++i) list.push_back(sizes[i]);
  const auto [found, added] = shapes_.try_emplace({dtype, list}, static_cast<std::uint32_t>(trace_.shapes.size()));
  if (added) trace_.shapes.push_back({std::move(list), dtype});
  return found->second;
}

std::int32_t Device::record_allocation(Bytes bytes, std::uint32_t shape) {
  // An empty tensor asks the allocator for nothing.
  if (stopped || bytes.count == 0) return -1;
  const auto id = static_cast<std::int32_t>(trace_.allocations.size());
  const auto phase = static_cast<std::uint32_t>(trace_.phases.size() - 1);
  trace_.allocations.push_back({bytes, Category::temporaries, stream, op_, module_, phase});
  trace_.events.push_back(id);
  if (stream == 0) meter.wrote(bytes.count);
  if (trace_.keep_shapes) trace_.shape_of.push_back(shape);
  return id;
}

void Device::record_free(std::int32_t allocation) {
  if (allocation >= 0) trace_.events.push_back(~allocation);
}

void Device::set_category(std::int32_t allocation, Category category) {
  if (allocation >= 0) trace_.allocations[static_cast<std::size_t>(allocation)].category = category;
}

void Device::mark_saved(std::int32_t allocation) {
  if (allocation < 0) return;
  Allocation& made = trace_.allocations[static_cast<std::size_t>(allocation)];
  if (made.category == Category::temporaries) made.category = modules_[made.module].activations;
}

void Device::use_cublas() {
  const auto index = static_cast<std::size_t>(thread);
  if (stopped || (index < cublas_workspaces_.size() && cublas_workspaces_[index])) return;
  if (cublas_workspaces_.size() <= index) cublas_workspaces_.resize(index + 1);
  // ":4096:2:16:8" in KiB; Hopper and Blackwell 32 MiB.
  const bool large = always_large_cublas_workspace || gpu_.compute_capability / 10 == 9 || gpu_.compute_capability / 10 == 10 ||
                     gpu_.compute_capability / 10 == 12;
  const Bytes size = large ? 32_MiB : 4096_KiB * 2 + 16_KiB * 8;
  const Meter::Muted no_kernel(meter);
  cublas_workspaces_[index] = empty({size.count}, Dtype::uint8);
  set_category(cublas_workspaces_[index]->storage->allocation, Category::workspaces);
}

void Device::point(std::string at) { trace_.points.push_back({std::move(at), trace_.events.size()}); }
void Device::begin_step() { trace_.peak_resets.push_back(trace_.events.size()); }
void Device::empty_cache() { trace_.cache_flushes.push_back(trace_.events.size()); }
void Device::begin_phase(std::string name) { trace_.phases.push_back(std::move(name)); }

std::uint32_t Device::enter_module(std::string_view name, std::optional<Category> activations) {
  Module& outer = modules_[module_];
  if (outer.next_child == outer.children.size()) outer.next_child = 0;
  if (!outer.children.empty() && modules_[outer.children[outer.next_child].module].name == name)
    return outer.children[outer.next_child++].module;
  const std::size_t hash = std::hash<std::string_view>()(name);
  for (std::size_t at = 0; at < outer.children.size(); ++at) {
    const auto& child = outer.children[at];
    if (child.hash != hash || modules_[child.module].name != name) continue;
    outer.next_child = at + 1;
    return child.module;
  }
  const auto id = static_cast<std::uint32_t>(modules_.size());
  outer.children.push_back({hash, id});
  const Category inherited = outer.activations;
  modules_.push_back({module_, std::string(name), activations.value_or(inherited), {}});
  return id;
}

std::uint16_t Device::op_named(const char* literal) {
  const auto before = [](const std::pair<const char*, std::uint16_t>& known, const char* wanted) {
    return std::less<>()(known.first, wanted);  // < says nothing of pointers into different objects
  };
  auto found = std::lower_bound(ops_.begin(), ops_.end(), literal, before);
  if (found == ops_.end() || found->first != literal) {
    found = ops_.insert(found, {literal, static_cast<std::uint16_t>(trace_.ops.size())});
    trace_.ops.emplace_back(literal);
  }
  return found->second;
}

std::string Device::path_of(std::uint32_t module) const {
  if (module == 0) return "";
  const Module& m = modules_[module];
  const std::string parent = path_of(m.parent);
  return parent.empty() ? m.name : parent + "." + m.name;
}

void Device::finish() {
  for (std::uint32_t i = 0; i < modules_.size(); ++i) trace_.modules.push_back(path_of(i));
}

}  // namespace llmem
