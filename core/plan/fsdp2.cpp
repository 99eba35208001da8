#include "plan/rank.h"

namespace llmem {

Rank fully_sharded(Device& device, const Spec& spec, const Architecture& architecture) {
  return whole_model(device, spec, architecture);
}

}  // namespace llmem
