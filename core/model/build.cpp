#include "model/build.h"

#include <algorithm>

namespace llmem {

namespace {

std::string member(const std::string& of, std::string_view names, char role) { return of + "." + std::string(name_of(names, role)); }

}  // namespace

AttentionBlock build_attention(const ModelTensors& tensors, const std::string& name, const Architecture& a, int layer) {
  const auto linear = [&](char role) { return tensors.linear(member(name, a.names.attention, role)); };
  // The norm over a head is of the family's kind of RMSNorm, LayerNorm or whatever it has.
  const bool apart = a.qk_norm_kind == QkNorm::each_head_apart;
  const auto norm = [&](char role) { return a.qk_norm && !apart ? tensors.norm(member(name, a.names.attention, role), a.norm) : Norm(); };
  const auto norms = [&](char role, std::int64_t heads) {
    std::vector<Norm> made;
    for (std::int64_t i = 0; apart && i < heads; ++i)
      made.push_back(tensors.norm(member(name, a.names.attention, role) + ".norms." + std::to_string(i), a.norm));
    return made;
  };
  return {&a,
          layer,
          linear('q'),
          linear('k'),
          linear('v'),
          linear('f'),
          linear('o'),
          norm('Q'),
          norm('K'),
          false,
          tensors.find(name + ".sinks"),
          name_of(a.names.attention, 'n').empty() ? Norm() : tensors.norm(member(name, a.names.attention, 'n'), a.norm),
          norms('Q', a.heads),
          norms('K', a.kv_heads)};
}

Mlp build_mlp(const ModelTensors& tensors, const std::string& name, const Architecture& a) {
  const auto linear = [&](char role) { return tensors.linear(member(name, a.names.mlp, role)); };
  Mlp made{&a, linear('g'), linear('u'), linear('f'), linear('d')};
  if (!name_of(a.names.mlp, 'x').empty()) {
    const std::string xielu = member(name, a.names.mlp, 'x') + ".";
    made.xielu = {tensors.find(xielu + "alpha_p"), tensors.find(xielu + "alpha_n"), tensors.find(xielu + "beta"),
                  tensors.find(xielu + "eps")};
  }
  if (!name_of(a.names.mlp, 'n').empty()) made.norm = tensors.norm(member(name, a.names.mlp, 'n'), a.norm);
  return made;
}

Mixture build_mixture(const ModelTensors& tensors, const std::string& name, const Architecture& a) {
  Mixture made;
  made.architecture = &a;
  // In the order of the modules: what may be adapted are the Linears among them.
  for (std::string_view names = a.names.mixture; !names.empty();) {
    const std::string_view word = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), word.size() + 1));
    const std::string_view own = word.substr(2);
    const std::string of = name + "." + std::string(own);
    switch (word[0]) {
      case 'R': {
        made.router = tensors.find(of + ".weight");
        made.router_bias = tensors.find(of + ".bias");
        if (a.experts.router == RouterKind::hunyuan || a.experts.router == RouterKind::phimoe) made.router_linear = tensors.linear(of);
        made.correction = tensors.find(of + ".e_score_correction_bias");
        if (!made.correction) made.correction = tensors.find(of + ".moe_statics.e_score_correction_bias");
        if (!made.correction) made.correction = tensors.find(name + ".e_score_correction_bias");
        break;
      }
      case 'E':
        made.gate_up = tensors.find(of + (a.experts.gated ? ".gate_up_proj" : ".up_proj"));
        made.gate_up_bias = tensors.find(of + ".gate_up_proj_bias");
        made.down = tensors.find(of + ".down_proj");
        made.down_bias = tensors.find(of + ".down_proj_bias");
        break;
      case 'S':
        made.shared = build_mlp(tensors, of, a);
        made.shared.name = own;
        break;
      case 'G': made.shared_gate = tensors.linear(of); break;
      default: break;
    }
  }
  return made;
}

}  // namespace llmem
