#include "tensor/tensor.h"

#include "tensor/autograd.h"
#include "tensor/device.h"

namespace llmem {

void Storage::allocate() { allocation = device.record_allocation(bytes, shape); }

void Storage::release() {
  device.record_free(allocation);
  allocation = -1;
}

void destroy(Storage* storage) {
  if (storage->allocated()) storage->release();
  storage->device.storages.give_back(storage);
}

void destroy(TensorImpl* impl) {
  // The storage goes with the tensor, but names the pool that the tensor returns to.
  impl->storage->device.tensors.give_back(impl);
}

}  // namespace llmem
