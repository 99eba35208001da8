#include "tensor/tensor.h"

#include "tensor/autograd.h"
#include "tensor/device.h"

namespace llmem {

void Storage::allocate() { allocation = device.record_allocation(bytes); }

void Storage::release() {
  device.record_free(allocation);
  allocation = -1;
}

void destroy(Storage* storage) {
  if (storage->allocated()) storage->release();
  delete storage;
}

void destroy(TensorImpl* impl) { delete impl; }

}  // namespace llmem
