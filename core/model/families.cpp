#include "model/families.h"

#include <algorithm>

#include "base/json.h"

namespace llmem {

namespace {

// Every table of families.
template <class Visit>
void for_each_family(const Visit& visit) {
  for (const auto& table : {decoder_families(), recent_families(), classic_families(), encoder_families(), more_encoder_families(),
                            state_space_families(), hybrid_families(), uneven_families(), multimodal_families(), megatron_families()})
    for (const Family& family : table) visit(family);
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  const Family* found = nullptr;
  for_each_family([&](const Family& family) {
    if (family.model_type == model_type) found = &family;
  });
  return found;
}

std::vector<std::string_view> family_names(Coverage least) {
  std::vector<std::string_view> names;
  for_each_family([&](const Family& family) {
    if (family.coverage >= least) names.push_back(family.model_type);
  });
  return names;
}

std::string_view covered(const Family& family) {
  if (family.coverage == Coverage::played) return "training step";
  return family.alone ? "parameters; training step of its decoder, on text" : "parameters";
}

void partial_rotary(ConfigReader& config, Architecture& a, std::string_view key, double otherwise) {
  double factor = config.number(key).value_or(otherwise);
  if (const nlohmann::json* rope = config.file().find("rope_parameters"); rope && rope->is_object()) {
    const auto found = rope->find("partial_rotary_factor");
    if (found != rope->end() && found->is_number()) factor = found->get<double>();
  }
  a.rotary_dim = static_cast<std::int64_t>(static_cast<double>(a.head_dim) * factor);
}

std::vector<Parameter> parameters_of(const Architecture& architecture) {
  std::vector<Parameter> parameters;
  for (const Parameter& each : architecture.tensors)
    if (each.kind != Parameter::Kind::buffer) parameters.push_back(each);
  return parameters;
}

std::int64_t active_parameters(const Architecture& architecture) {
  std::int64_t total = 0, routed = 0;
  for (const Parameter& each : parameters_of(architecture)) {
    total += each.count();
    if (each.name.find(".experts.") != std::string::npos && each.shape.size() >= 2 && each.shape[0] == architecture.experts.count)
      routed += each.count();
  }
  if (architecture.experts.count == 0) return total;
  return total - routed + routed / architecture.experts.count * std::min(architecture.experts.per_token, architecture.experts.count);
}

}  // namespace llmem
