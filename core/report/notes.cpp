#include "report/notes.h"

#include "report/words.h"

namespace llmem {
namespace {

Note about_memory(const Spec& spec, const RankReport& rank) {
  const Gpu& gpu = spec.cluster.gpu;
  const std::string name = gpu.name.empty() ? "this GPU" : gpu.name;
  if (spec.cluster.memory) return {"/cluster/memory", "PyTorch's allocator has " + with_gib(*spec.cluster.memory) + ", as given."};
  if (!gpu.memory) return {"/cluster/memory", "How much memory " + name + " has is not known, so nothing can run out of it."};
  return {"/cluster/memory", "Of the " + with_gib(*gpu.memory) + " that CUDA shows of " + name + ", PyTorch's allocator has what " +
                                 with_gib(rank.outside.used) + " outside it leave. Nothing else runs on the GPU."};
}

Note about_outside(const RankReport& rank) {
  std::string text = "Outside PyTorch's allocator: " + with_gib(rank.outside.used) + ", an estimate between " + gib(rank.outside.low) +
                     " and " + with_gib(rank.outside.high) + " (";
  for (std::size_t i = 0; i < rank.outside.what.size(); ++i) text += (i > 0 ? "; " : "") + std::string(rank.outside.what[i].name);
  return {"/cluster/gpu", text + ")."};
}

Note about_ranks(const Spec& spec) {
  const std::int64_t world = spec.world();
  const std::string played = "Rank " + std::to_string(spec.rank) + " was played";
  if (spec.pipeline.degree > 1)
    return {"/parallel/rank",
            played + ". Stages hold different layers, and earlier ones more microbatches at once: ask for each by its rank."};
  if (spec.data.kind == DataKind::zero_redundancy)
    return {"/parallel/rank", played + ". ZeroRedundancyOptimizer gives whole parameters to ranks, and rank 0 the largest: ranks differ."};
  std::string text = played + ", and the " + std::to_string(world) + " ranks hold and do the same";
  if (spec.data.kind == DataKind::zero1 || spec.data.kind == DataKind::zero2)
    text += ", except for the whole parameters that reach across the border of a rank's part";
  if (spec.context.degree > 1 && !spec.context.ulysses) text += ", except that ranks of the ring work on halves at different times";
  if (spec.data.kind == DataKind::fsdp1 || spec.data.kind == DataKind::fsdp2)
    text += ", except that the last ranks hold less of what does not divide evenly";
  return {"/parallel/rank", text + "."};
}

Note about_retries(const RankReport& rank) {
  return {"/allocator", "The allocator gives its cache back to the GPU and asks again " + times(rank.retries) +
                            ": each stops the GPU for a moment, and with a little less memory the run fails."};
}

std::string series_of(Transformers version) {
  switch (version) {
    case Transformers::v4_45: return "4.45";
    case Transformers::v4_48: return "4.48";
    case Transformers::v4_51: return "4.51";
    case Transformers::v4_56: return "4.56";
    case Transformers::v5: break;
  }
  return "5";
}

// Which kind of evidence stands behind the answer.
Note about_software(const Spec& spec) {
  if (spec.training.stack == Stack::megatron)
    return {
        "/software/stack",
        "Megatron-LM's training loop, Megatron-Core and TransformerEngine as their sources of August 2026 have them, two training steps. "
        "Evidence: the sources, held against what Megatron-LM's own tests measured on GPUs (not event by event, as PyTorch's own methods "
        "are)." +
            std::string(spec.expert.degree > 1 ? " Tokens are taken to be shared out evenly among the experts." : "")};
  if (spec.training.stack == Stack::torchtitan)
    return {"/software/stack",
            "torchtitan's modules and checkpointing as its sources of August 2026 have them, over PyTorch 2.14's own parallel methods, not "
            "compiled, "
            "two training steps. Evidence: FSDP2 and tensor parallelism were held event by event against recorded runs of PyTorch; "
            "torchtitan's "
            "modules are what its sources say, held against reserved memory that its authors measured on GPUs."};
  if (spec.training.stack == Stack::litgpt)
    return {"/software/stack",
            "litgpt's modules, adapters and loop as its sources of 2024 have them, over PyTorch 2.14, eager mode, two training steps. "
            "Evidence: the "
            "sources, held against what its authors measured on GPUs."};
  return {"/software", "PyTorch 2.14 and Transformers " + series_of(spec.software.transformers) +
                           ", eager mode, two training steps: the optimizer's states appear in the first."};
}

// What was asked for and not given back when the most was allocated: whatever the allocator does, it reserves no less.
Bytes requested_at_peak(const Trace& trace, const RankReport& rank) {
  std::int64_t live = 0;
  for (std::size_t e = 0; e <= rank.peak.event && e < trace.events.size(); ++e) {
    const std::int64_t bytes = trace.allocations[allocation_of(trace.events[e])].bytes.count;
    live += is_free(trace.events[e]) ? -bytes : bytes;
  }
  return Bytes{live};
}

// Only where there is something to gain, and said only after having tried it: expandable segments can also cost.
std::optional<Note> about_expandable_segments(const Played& played, const RankReport& rank, std::optional<Bytes> memory) {
  const bool lacking = memory && rank.peak_reserved > *memory;
  const bool wasteful = (rank.peak_reserved - rank.peak_allocated).count > rank.peak_allocated.count / 10;
  AllocatorSettings settings = settings_of(played.spec);
  if (settings.expandable_segments || !(lacking || wasteful)) return std::nullopt;
  if (lacking && requested_at_peak(played.trace, rank) > *memory) return std::nullopt;
  settings.expandable_segments = true;
  const Bytes then = replay(played.trace, settings).peak_reserved;
  const bool helps = lacking ? then <= *memory : then.count < rank.peak_reserved.count / 100 * 95;
  if (!helps) return std::nullopt;
  return Note{"/allocator/expandable_segments", "With PYTORCH_ALLOC_CONF=expandable_segments:True the allocator reserves " +
                                                    with_gib(then) + " in place of " + gib(rank.peak_reserved) +
                                                    (lacking ? ", and it fits." : ".")};
}

bool is_zero(DataKind kind) { return kind == DataKind::zero1 || kind == DataKind::zero2 || kind == DataKind::zero3; }

// Combinations that silently do not do what people hope.
void add_combinations(const Spec& spec, std::vector<Note>& notes) {
  const DataKind kind = spec.data.kind;
  const bool adapters = spec.training.method == Method::lora;
  const bool shards = is_zero(kind) || kind == DataKind::fsdp1 || kind == DataKind::fsdp2;
  if (shards && spec.data.shard_ranks() * spec.context.degree == 1)
    notes.push_back(
        {"/parallel/data/degree", "With one rank there is nobody to share with: nothing is sharded, and the buffers come on top."});
  if ((kind == DataKind::zero1 || kind == DataKind::zero2) && spec.offload.parameters)
    notes.push_back({"/parallel/offload/parameters",
                     "DeepSpeed offloads parameters in stage 3 only: below it this has no effect, and each GPU holds all of them."});
  if (is_zero(kind) && spec.training.autocast)
    notes.push_back({"/training/autocast", "DeepSpeed's engine switches off an autocast that is not its own: this has no effect."});
  const std::optional<BaseQuantization>& base = spec.training.base_quantization;
  if (adapters && spec.data.degree > 1 &&
      (kind == DataKind::ddp || kind == DataKind::zero_redundancy || kind == DataKind::zero1 || kind == DataKind::zero2))
    notes.push_back({"/parallel/data/kind",
                     std::string("The frozen base is whole on each GPU: this method shares what trains, which are the adapters alone.") +
                         (base ? " FSDP1 shards it." : " ZeRO-3 and FSDP shard it.")});
  if (base && kind == DataKind::fsdp1)
    notes.push_back({"/training/base_quantization",
                     "FSDP1 shards the packed values only: the scales of all layers are whole on each GPU. Norms, embedding and head stay "
                     "in the weights' dtype (peft's prepare_model_for_kbit_training is left out, as TRL does where a quantised base is "
                     "sharded)."});
  if (adapters && kind == DataKind::fsdp1 && !spec.data.adapters_apart)
    notes.push_back({"/parallel/data/kind",
                     "FSDP1 keeps frozen weights and adapters of a layer in one flat tensor, so that backward makes gradients for all of "
                     "it. FSDP2 does not."});
  if (spec.offload.activations)
    notes.push_back({"/parallel/offload/activations", "Activations wait in pinned memory of the host, which is not counted here."});
}

bool unpads(const Training& training) { return training.mask == Mask::padded && training.attention == Attention::flash_attention_2; }

// What the host waits for, and so how much can be on its way to be free.
std::string_view held_up_by(const Spec& spec) {
  if (spec.data.kind == DataKind::zero3) return "DeepSpeed lets at most two fetches and two reductions be under way";
  if (spec.data.limit_all_gathers && spec.data.shards)
    return "FSDP lets at most two units that were given back be in use still (limit_all_gathers)";
  return "nothing holds the host up before the step is over";
}

std::optional<Note> about_order(const Spec& spec, const RankReport& rank) {
  if (!rank.late) return std::nullopt;
  return Note{"/allocator",
              "Reserved memory is a range, " + gib(rank.peak_reserved) + " to " + with_gib(rank.late->peak_reserved) +
                  ": a block that another stream has used is given out again only when that stream has got there "
                  "(record_stream), which depends on timing. Points and ledger take it to be there at once; the upper end, as late "
                  "as can be: " +
                  std::string(held_up_by(spec)) + "."};
}

// In words what a node's processes do meanwhile.
std::string_view doing_at(const HostPoint& point) {
  if (point.at == saving_point) return "saving a full state dict";
  return point.at == "loading" ? "loading the model" : "what is offloaded";
}

// Of a spec that says how much memory the host has.
[[gnu::noinline]] void add_host(const Spec& spec, const HostMemory& host, std::vector<Note>& notes) {
  const HostPoint* needed = host.needed();
  for (const HostPoint& point : host.points) {
    const bool asked = &point == needed || point.at == saving_point;
    if (!asked || point.total <= *spec.cluster.host_memory) continue;
    notes.push_back({"/cluster/host_memory", "The host's memory runs out: " + std::string(doing_at(point)) + " takes " +
                                                 with_gib(point.total) + " on a node, " +
                                                 with_gib(point.total - *spec.cluster.host_memory) + " more than its " +
                                                 with_gib(*spec.cluster.host_memory) + "."});
  }
}

}  // namespace

std::vector<Note> assumptions_of(const Played& played, const RankReport& rank) {
  std::vector<Note> notes = {about_memory(played.spec, rank),
                             about_outside(rank),
                             about_software(played.spec),
                             {"/training/sequence", "Every row has the full sequence length."}};
  if (unpads(played.spec.training))
    notes.push_back({"/training/mask",
                     "flash_attention_2 leaves padding out, and how many tokens are padding is not said: attention is played over all of "
                     "them, the most."});
  if (played.spec.world() > 1) notes.push_back(about_ranks(played.spec));
  notes.insert(notes.end(), played.notes.begin(), played.notes.end());
  return notes;
}

std::vector<Note> warnings_of(const Played& played, const RankReport& rank, std::optional<Bytes> memory, const HostMemory& host) {
  std::vector<Note> notes;
  if (played.spec.cluster.host_memory) add_host(played.spec, host, notes);
  add_combinations(played.spec, notes);
  if (std::optional<Note> note = about_order(played.spec, rank)) notes.push_back(*std::move(note));
  const std::optional<BaseQuantization>& base = played.spec.training.base_quantization;
  if (base && !base->gptq && played.architecture.model_type == "falcon")
    notes.push_back(
        {"/training/base_quantization",
         "Nothing is quantised: Transformers gives bitsandbytes modules of the class torch.nn.Linear, and Falcon has its own."});
  if (rank.retries > 0 && !rank.out_of_memory) notes.push_back(about_retries(rank));
  if (std::optional<Note> note = about_expandable_segments(played, rank, memory)) notes.push_back(*std::move(note));
  return notes;
}

}  // namespace llmem
