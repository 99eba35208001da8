#include "search/strategies.h"

#include <algorithm>
#include <cmath>

#include "search/candidate.h"
#include "spec/gpus.h"

namespace llmem {

using Json = nlohmann::json;

namespace {

constexpr std::int64_t kMostGpus = 1 << 16, kMostBatch = 1 << 20;

// Powers of two up to `most`.
std::vector<std::int64_t> powers(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 1; n <= most; n *= 2) all.push_back(n);
  return all;
}

class Enumeration {
 public:
  Enumeration(const SearchQuestion& question, const ModelPresets& presets)
      : question_(question),
        variants_(question.spec, presets),
        spec_(variants_.spec()),
        architecture_(variants_.architecture() ? *variants_.architecture() : Architecture()) {}

  Strategies all() {
    for (const std::int64_t gpus : question_.gpus) of_cluster(gpus);
    return std::move(found_);
  }

 private:
  struct Way {
    std::int64_t gpus, tensor, context, pipeline, data;
    std::string kind, label;
    Json data_section;
    bool offload;
    std::string refused;  // the readers' reason, which is that of all that differ in checkpointing and batch alone
  };

  void of_cluster(std::int64_t gpus) {
    for (const std::int64_t tensor : powers(std::min(gpus, spec_.cluster.gpus_per_node)))
      for (const std::int64_t context : powers(gpus / tensor))
        for (const std::int64_t pipeline : powers(gpus / (tensor * context))) {
          if (gpus % (tensor * context * pipeline) != 0) continue;
          Way way{gpus, tensor, context, pipeline, gpus / (tensor * context * pipeline), "none", "", {{"kind", "none"}}, false, ""};
          if (const std::string why = indivisible(tensor, context, pipeline); !why.empty())
            leave_out(why, label_of(way, "", 0));
          else
            of_degrees(way);
        }
  }

  std::string indivisible(std::int64_t tensor, std::int64_t context, std::int64_t pipeline) const {
    const auto not_by = [&](std::int64_t n, const char* what) {
      return n > 0 && n % tensor != 0 ? std::to_string(n) + " " + what + " are not divisible by tensor " + std::to_string(tensor)
                                      : std::string();
    };
    for (const std::string& why : {not_by(architecture_.heads, "attention heads"), not_by(architecture_.kv_heads, "key-value heads"),
                                   not_by(architecture_.intermediate_size, "features of the MLP")})
      if (!why.empty()) return why;
    if (context > 1 && spec_.training.sequence % (2 * context) != 0)
      return "the sequence of " + std::to_string(spec_.training.sequence) + " tokens is not divisible by two chunks a rank of context " +
             std::to_string(context);
    if (pipeline > architecture_.layers) return "a pipeline has more stages than the model layers";
    return "";
  }

  void of_degrees(Way way) {
    const std::int64_t data = way.data;
    const auto sharded = [&](const char* kind, std::string label, Json options, bool offload) {
      way.kind = kind;
      way.label = std::move(label);
      way.data_section = std::move(options);
      way.data_section["kind"] = kind;
      way.data_section["degree"] = data;
      way.offload = offload;
      way.refused.clear();
      of_way(way);
    };
    if (data == 1) of_way(way);
    // The ranks of a row's parts share the weights.
    if (data == 1 && way.context > 1) return sharded("fsdp2", "FSDP2", {}, false);
    if (data == 1) return;
    sharded("ddp", "DDP", {}, false);
    sharded("zero_redundancy", "DDP with ZeroRedundancyOptimizer", {}, false);
    for (const bool offload : {false, true}) {
      const std::string suffix = offload ? " with offload" : "";
      sharded("zero1", "ZeRO-1" + suffix, {}, offload);
      sharded("zero2", "ZeRO-2" + suffix, {}, offload);
      sharded("zero3", "ZeRO-3" + suffix, {}, offload);
      sharded("fsdp2", "FSDP2" + suffix, {}, offload);
    }
    sharded("fsdp1", "FSDP1", {}, false);
    sharded("fsdp1", "FSDP1 SHARD_GRAD_OP", {{"strategy", "SHARD_GRAD_OP"}}, false);
    sharded("fsdp2", "FSDP2 without resharding", {{"reshard_after_forward", false}}, false);
    for (std::int64_t copies = 2; copies < data; copies *= 2)
      if (data % copies == 0) sharded("fsdp2", "HSDP of " + std::to_string(copies) + " copies", {{"replicate", copies}}, false);
  }

  void of_way(Way& way) {
    const std::int64_t rows = question_.global_batch / way.data;
    if (question_.global_batch % way.data != 0 || rows == 0)
      return leave_out(
          "the global batch of " + std::to_string(question_.global_batch) + " rows is not divisible by the data-parallel ranks",
          label_of(way, "", 0));
    for (const char* checkpointing : {"none", "full"}) {
      for (const std::int64_t micro :
           question_.micro_batches.empty() ? powers(std::min<std::int64_t>(rows, 64)) : question_.micro_batches) {
        if (rows % micro != 0) {
          leave_out("the rows of a rank are not divisible by the micro-batch", label_of(way, checkpointing, micro));
          continue;
        }
        add(way, checkpointing, micro, rows / micro);
      }
    }
  }

  static std::string label_of(const Way& way, std::string_view checkpointing, std::int64_t micro) {
    std::string label = way.label.empty() ? "" : way.label + " x " + std::to_string(way.data);
    const auto join = [&](const std::string& part) { label += (label.empty() ? "" : ", ") + part; };
    if (way.context > 1) join("context x " + std::to_string(way.context));
    if (way.tensor > 1) join("tensor x " + std::to_string(way.tensor));
    if (way.pipeline > 1) join("pipeline x " + std::to_string(way.pipeline));
    if (label.empty()) label = "one GPU";
    if (checkpointing == "full") join("checkpointing");
    if (micro > 0) join("micro-batch " + std::to_string(micro));
    return label;
  }

  void add(Way& way, const char* checkpointing, std::int64_t micro, std::int64_t count) {
    Strategy strategy;
    strategy.gpus = way.gpus;
    strategy.label = label_of(way, checkpointing, micro);
    if (!way.refused.empty()) return leave_out(way.refused, strategy.label);
    if (question_.gpus.size() > 1) strategy.label = std::to_string(way.gpus) + " GPUs: " + strategy.label;
    Json parallel{{"data", way.data_section}};
    if (way.tensor > 1) parallel["tensor"] = {{"degree", way.tensor}, {"sequence", true}, {"loss", true}};
    if (way.context > 1) parallel["context"] = {{"degree", way.context}};
    if (way.pipeline > 1) parallel["pipeline"] = {{"degree", way.pipeline}, {"microbatches", count}};
    if (way.offload)
      parallel["offload"] = {{"optimizer", "cpu"}, {"parameters", way.kind == "zero1" || way.kind == "zero2" ? "none" : "cpu"}};
    const std::int64_t per_node = spec_.cluster.gpus_per_node;
    strategy.change = {
        {"parallel", std::move(parallel)},
        {"training", {{"micro_batch", micro}, {"accumulation", way.pipeline > 1 ? 1 : count}, {"checkpointing", checkpointing}}},
        {"cluster", {{"nodes", divide_up(way.gpus, per_node)}}}};
    if (question_.prices.empty()) return add_if_read(way, std::move(strategy));
    // Kinds beside each other: what they play alike is played once.
    for (const GpuPrice& price : question_.prices) {
      Strategy of_kind = strategy;
      if (question_.prices.size() > 1) of_kind.label = price.gpu + ", " + strategy.label;
      of_kind.price = price.millionths;
      of_kind.change["cluster"]["gpu"] = price.gpu;
      add_if_read(way, std::move(of_kind));
    }
  }

  void add_if_read(Way& way, Strategy strategy) {
    const Reading<Spec> reading = variants_.read_spec(strategy.change);
    if (reading.problems.empty()) {
      found_.tried.push_back(std::move(strategy));
      return;
    }
    const Problem& first = reading.problems.front();
    if (first.code == "unsupported" && first.at.compare(0, 9, "/parallel") == 0) way.refused = first.message;
    leave_out(first.message, strategy.label);
  }

  void leave_out(const std::string& why, const std::string& example) {
    const auto known = std::find_if(found_.left_out.begin(), found_.left_out.end(), [&](const LeftOut& other) { return other.why == why; });
    if (known == found_.left_out.end())
      found_.left_out.push_back({why, example, 1});
    else
      ++known->count;
  }

  const SearchQuestion& question_;
  Variants variants_;
  const Spec& spec_;
  const Architecture architecture_;
  Strategies found_;
};

bool read_count(const Json& from, std::int64_t most, std::int64_t& to) {
  if (!from.is_number_integer()) return false;
  to = from.get<std::int64_t>();
  return to >= 1 && to <= most;
}

// A number or a list of numbers.
bool read_counts(const Json& from, std::int64_t most, std::vector<std::int64_t>& to) {
  to.clear();
  for (const Json& each : from.is_array() ? from : Json::array({from})) {
    to.push_back(0);
    if (!read_count(each, most, to.back())) return false;
  }
  return !to.empty();
}

// {"h100-sxm-80gb": 2.5}: what an hour of each kind costs, in any money.
bool read_prices(const Json& from, std::vector<GpuPrice>& to) {
  if (!from.is_object() || from.empty()) return false;
  for (const auto& [gpu, price] : from.items()) {
    if (!price.is_number() || !(price.get<double>() > 0) || price.get<double>() > 1e6) return false;
    to.push_back({gpu, std::llround(price.get<double>() * 1e6)});
  }
  return true;
}

}  // namespace

Reading<SearchQuestion> read_search_question(Json question) {
  Reading<SearchQuestion> reading;
  SearchQuestion& asked = reading.value;
  const auto problem = [&](const char* at, const char* message) { reading.problems.push_back({at, "type", message}); };
  if (!question.is_object() || !question.contains("spec") || !question["spec"].is_object()) {
    problem("/spec", "give the spec whose strategies are searched");
    return reading;
  }
  asked.spec = std::move(question["spec"]);
  std::int64_t nodes = 1, per_node = 8, rows = 1, accumulation = 1;
  if (const auto cluster = asked.spec.find("cluster"); cluster != asked.spec.end() && cluster->is_object()) {
    if (cluster->contains("nodes")) read_count((*cluster)["nodes"], kMostGpus, nodes);
    if (cluster->contains("gpus_per_node")) read_count((*cluster)["gpus_per_node"], kMostGpus, per_node);
  }
  if (const auto training = asked.spec.find("training"); training != asked.spec.end() && training->is_object()) {
    if (training->contains("micro_batch")) read_count((*training)["micro_batch"], kMostBatch, rows);
    if (training->contains("accumulation")) read_count((*training)["accumulation"], kMostBatch, accumulation);
  }
  asked.spec.erase("parallel");
  asked.gpus = {nodes * per_node};
  if (question.contains("gpus") && !read_counts(question["gpus"], kMostGpus, asked.gpus))
    problem("/gpus", "must be a number of GPUs, or a list");
  asked.global_batch = *std::max_element(asked.gpus.begin(), asked.gpus.end()) * rows * accumulation;
  if (question.contains("global_batch") && !read_count(question["global_batch"], kMostBatch, asked.global_batch))
    problem("/global_batch", "must be a number of rows");
  if (question.contains("micro_batches") && !read_counts(question["micro_batches"], kMostBatch, asked.micro_batches))
    problem("/micro_batches", "must be a number of rows, or a list");
  if (question.contains("prices") && !read_prices(question["prices"], asked.prices))
    problem("/prices", "must be an object of prices of an hour, by the ids of GPUs");
  for (const GpuPrice& price : asked.prices)
    if (!gpu_named(price.gpu)) reading.problems.push_back({"/prices/" + price.gpu, "unknown_value", "is not a GPU that is known here"});
  // A limit is that of one kind.
  if (!asked.prices.empty() && asked.spec.contains("cluster") && asked.spec["cluster"].is_object()) asked.spec["cluster"].erase("memory");
  for (const auto& [key, value] : question.items())
    if (key != "spec" && key != "gpus" && key != "global_batch" && key != "micro_batches" && key != "prices")
      reading.problems.push_back({"/" + key, "unknown_key", "a search has spec, gpus, global_batch, micro_batches and prices"});
  return reading;
}

Strategies strategies_of(const SearchQuestion& question, const ModelPresets& presets) { return Enumeration(question, presets).all(); }

}  // namespace llmem
