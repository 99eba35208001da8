#include "model/families.h"

namespace llmem {

namespace {

// Every table of families.
template <class Visit>
void for_each_family(const Visit& visit) {
  for (const auto& table : {decoder_families(), classic_families(), encoder_families(), state_space_families()})
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

std::vector<Parameter> parameters_of(const Architecture& architecture) {
  std::vector<Parameter> parameters;
  for (const Parameter& each : architecture.tensors)
    if (each.kind != Parameter::Kind::buffer) parameters.push_back(each);
  return parameters;
}

}  // namespace llmem
