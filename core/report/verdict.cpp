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
  if (rank.late && rank.late->out_of_memory) return Status::may_not_fit;
  const Bytes to_spare = *verdict.capacity - verdict.needed_high;
  if (to_spare < Bytes{0}) return Status::fits_after_retry;
  return to_spare < uncertainty(spec, rank.outside) ? Status::fits_barely : Status::fits;
}

std::string needed_in_words(const Verdict& verdict) {
  const std::string least = gib(verdict.needed), most = gib(verdict.needed_high);
  return least == most ? least : least + " to " + most;
}

std::string failure_in_words(const Spec& spec, const OutOfMemoryReport& failure) {
  return phase_in_words(failure.phase, spec.training.accumulation) + ", allocating " + failure.what + ": " + with_gib(failure.tried) + ".";
}

std::string retries_in_words(const RankReport& rank) {
  if (rank.retries > 0) return "fits, but only by giving cached memory back to the GPU " + times(rank.retries);
  return "fits, but may have to give cached memory back to the GPU, " + times(rank.late ? rank.late->retries : 0);
}

std::string sentence(const Spec& spec, const RankReport& rank, const Verdict& verdict) {
  const std::string subject = method(spec, rank.stage), each = each_gpu(spec);
  if (verdict.status == Status::unknown)
    return subject + " needs " + needed_in_words(verdict) + " GiB" + each + ". How much memory this GPU has is not known.";
  const std::string numbers = needed_in_words(verdict) + " of " + with_gib(*verdict.capacity) + each;
  const Bytes margin = *verdict.margin, to_spare = *verdict.capacity - verdict.needed_high;
  switch (verdict.status) {
    case Status::fits: return subject + " fits: " + numbers + ", " + with_gib(to_spare) + " to spare.";
    case Status::fits_barely:
      return subject + " fits, barely: " + numbers + ", " + with_gib(to_spare) + " to spare, and what lies outside PyTorch may take " +
             with_gib(uncertainty(spec, rank.outside)) + " more than is reckoned with.";
    case Status::fits_after_retry: return subject + " " + retries_in_words(rank) + ": it would hold " + numbers + ".";
    case Status::may_not_fit:
      return subject + " may not fit: " + numbers + ", by when memory that other streams have used comes back. At the latest, it fails " +
             failure_in_words(spec, *rank.late->out_of_memory);
    default: break;
  }
  const OutOfMemoryReport& failure = *rank.out_of_memory;
  std::string text = subject + " does not fit: " + numbers;
  if (margin < Bytes{0}) text += ", " + with_gib(Bytes{-margin.count}) + " too much";
  return text + ". It fails " + failure_in_words(spec, failure);
}

}  // namespace

Verdict numbers_of(const Spec& spec, const RankReport& rank, std::optional<Bytes> memory) {
  Verdict verdict;
  verdict.rank = spec.rank;
  verdict.needed = rank.device_total;
  verdict.needed_high = rank.device_total_high();
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
