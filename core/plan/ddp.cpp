#include "plan/rank.h"

namespace llmem {

Rank distributed_data_parallel(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank = whole_model(device, spec, architecture);
  return rank;
}

}  // namespace llmem
