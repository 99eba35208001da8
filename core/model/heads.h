#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "model/families.h"
#include "spec/spec.h"
#include "tensor/tensor.h"

// Classes of a family that end in a classifier in place of a head over words.
namespace llmem {

// `architectures`, where it names another class than the family's own: one of its classifiers; anything else is a problem.
void read_head(ObjectReader& config, const Family& family, Architecture& out);

// The classifier in place of the head over words, where there is one.
void declare_head(Architecture& a, std::vector<Parameter>& declared);

// What of a spec goes with a classifier.
std::optional<Problem> check_head(const Spec& spec, const Architecture& a);

// Words of the bias that tie_weights pads, in a copy, where a head with one is tied (modeling_utils.py, _adjust_bias); 0: there is none.
std::int64_t tied_head_bias(const Architecture& a);

// What the loss compares with: of `rows` rows.
Tensor make_labels(Device& device, const Architecture& a, const Training& training, std::int64_t rows);

// PEFT trains these beside the adapters whatever modules_to_save says (PeftModelForSequenceClassification, …ForTokenClassification).
std::vector<std::string> trained_whole(const Architecture& a, const AdapterOptions& options);

}  // namespace llmem
