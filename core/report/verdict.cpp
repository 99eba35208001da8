#include "report/verdict.h"

#include "report/words.h"

namespace llmem {
namespace {

// The method as the subject of a sentence.
std::string method(const Spec& spec, std::int64_t stage) {
  if (spec.pipeline.degree > 1) return "Stage " + std::to_string(stage) + " of the pipeline";
  if (spec.training.stack == Stack::megatron && spec.data.kind != DataKind::distributed_optimizer) return "Megatron-LM";
  if (spec.tensor.degree > 1 && spec.training.stack != Stack::megatron)
    return spec.data.kind == DataKind::none ? "Tensor parallelism" : "Tensor parallelism with FSDP2";
  switch (spec.data.kind) {
    case DataKind::none: return "Training on one GPU";
    case DataKind::ddp: return "DDP";
    case DataKind::zero_redundancy: return "DDP with ZeroRedundancyOptimizer";
    case DataKind::distributed_optimizer: return "Megatron's distributed optimizer";
    case DataKind::zero1: return "ZeRO-1";
    case DataKind::zero2: return "ZeRO-2";
    case DataKind::zero3: return "ZeRO-3";
    case DataKind::fsdp1: return "FSDP1";
    case DataKind::fsdp2: return spec.data.replicate > 1 ? "HSDP" : "FSDP2";
  }
  return "";
}

std::string each_gpu(const Spec& spec) {
  return spec.data.degree > 1 || spec.tensor.degree > 1 || spec.pipeline.degree > 1 ? " on each GPU" : "";
}

// How much more the outside may take than is reckoned with. A limit that the spec names is the allocator's alone.
Bytes uncertainty(const Spec& spec, const Outside& outside) { return spec.cluster.memory ? Bytes{0} : outside.high - outside.used; }

Status status_of(const Spec& spec, const RankReport& rank, const Verdict& verdict) {
  if (!verdict.capacity) return Status::unknown;
  if (rank.out_of_memory) return Status::does_not_fit;
  if (*verdict.margin < Bytes{0}) return Status::fits_after_retry;
  return *verdict.margin < uncertainty(spec, rank.outside) ? Status::fits_barely : Status::fits;
}

std::string sentence(const Spec& spec, const RankReport& rank, const Verdict& verdict) {
  const std::string subject = method(spec, rank.stage), each = each_gpu(spec);
  if (verdict.status == Status::unknown)
    return subject + " needs " + with_gib(verdict.needed) + each + ". How much memory this GPU has is not known.";
  const std::string numbers = gib(verdict.needed) + " of " + with_gib(*verdict.capacity) + each;
  const Bytes margin = *verdict.margin;
  switch (verdict.status) {
    case Status::fits: return subject + " fits: " + numbers + ", " + with_gib(margin) + " to spare.";
    case Status::fits_barely:
      return subject + " fits, barely: " + numbers + ", " + with_gib(margin) + " to spare, and what lies outside PyTorch may take " +
             with_gib(uncertainty(spec, rank.outside)) + " more than is reckoned with.";
    case Status::fits_after_retry:
      return subject + " fits, but only by giving cached memory back to the GPU " + times(rank.retries) + ": it would hold " + numbers +
             ".";
    default: break;
  }
  const OutOfMemoryReport& failure = *rank.out_of_memory;
  std::string text = subject + " does not fit: " + numbers;
  if (margin < Bytes{0}) text += ", " + with_gib(Bytes{-margin.count}) + " too much";
  return text + ". It fails " + phase_in_words(failure.phase, spec.training.accumulation) + ", allocating " + failure.what + ": " +
         with_gib(failure.tried) + ".";
}

}  // namespace

Verdict numbers_of(const Spec& spec, const RankReport& rank, std::optional<Bytes> memory) {
  Verdict verdict;
  verdict.rank = spec.rank;
  verdict.needed = rank.device_total;
  if (memory) {
    verdict.capacity = spec.cluster.memory ? *memory + rank.outside.used : *spec.cluster.gpu.memory;
    verdict.margin = *verdict.capacity - verdict.needed;
  }
  verdict.status = status_of(spec, rank, verdict);
  return verdict;
}

Verdict verdict_on(const Spec& spec, const RankReport& rank, std::optional<Bytes> memory) {
  Verdict verdict = numbers_of(spec, rank, memory);
  verdict.sentence = sentence(spec, rank, verdict);
  return verdict;
}

}  // namespace llmem
