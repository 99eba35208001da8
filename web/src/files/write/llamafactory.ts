import type { JsonObject } from '../../choice/choice';
import { accelerate, batch, checkpointing, clip, ddp, deepspeedName, deepspeedText, liger, optim, precision, targets } from './common';
import { allocator, View, yaml, type Export } from './written';

/** LLaMA-Factory's YAML, with DeepSpeed's or accelerate's file beside it. */
export function toLlamafactory(spec: JsonObject): Export {
  const view = new View(spec);
  const { kind, lora, bits, weights, autocast } = view;
  if (kind === 'zero_redundancy') return { ok: false, why: 'LLaMA-Factory does not do ZeroRedundancyOptimizer.' };
  for (const what of ['tensor', 'pipeline', 'context', 'expert'] as const) {
    if (view.degreeOf(what) > 1) return { ok: false, why: `LLaMA-Factory does no ${what} parallelism by itself.` };
  }
  const zero = /^zero\d/.test(kind);
  const sharded = kind.startsWith('fsdp');
  const flags = precision(view);
  let pure = false;
  if (!zero && !sharded) {
    // model/adapter.py: the base in what it computes in; what is trained in fp32, unless pure_bf16.
    pure = weights === 'bfloat16' && autocast === null;
    const held = lora ? (autocast ?? (pure ? 'bfloat16' : 'float32')) : pure ? 'bfloat16' : 'float32';
    view.match('/training/weights', held, 'LLaMA-Factory holds a frozen base in what it computes in, and what is trained in fp32 or bf16');
  }
  if (sharded && lora)
    view.match(
      '/training/weights',
      flags.bf16 ? 'bfloat16' : flags.fp16 ? 'float16' : 'float32',
      'LLaMA-Factory holds a frozen base in what it computes in',
    );
  if (sharded && !lora && !flags.bf16 && !flags.fp16) {
    pure = weights === 'bfloat16';
    view.match('/training/weights', pure ? 'bfloat16' : 'float32', 'LLaMA-Factory holds what is trained in fp32 or bf16');
    if (weights === 'float16') view.lose('/parallel/data/param_dtype', 'LLaMA-Factory holds what is trained in fp32 or bf16');
  }
  const { on, reentrant } = checkpointing(view);
  if (on && reentrant && kind === 'fsdp2')
    view.lose('/training/checkpointing', 'LLaMA-Factory checkpoints without re-entrance under FSDP2');
  const attention = view.text('/training/attention', 'sdpa');
  if (attention === 'flex') view.lose('/training/attention', 'LLaMA-Factory has no flex attention');
  else if (attention === 'fused') view.lose('/training/attention', 'cuDNN’s attention is Megatron’s');
  else view.say('/training/attention');
  view.say('/training/sequence', '/training/accumulation', '/training/method');
  const usesLiger = liger(view, 'standard');
  if (!usesLiger) view.match('/training/loss', 'standard', 'LLaMA-Factory has torch’s loss, or Liger’s');
  const dpo = view.text('/training/objective', 'sft') === 'dpo';
  const compute = flags.bf16 || pure ? 'bfloat16' : flags.fp16 ? 'float16' : 'float32';
  if (lora) {
    view.say('/training/adapter/rank', '/training/adapter/dropout', '/training/adapter/dora');
    if (!zero) view.match('/training/adapter/upcast', !pure, 'adapters are in fp32, unless everything is in bf16');
    else view.lose('/training/adapter/upcast', 'DeepSpeed holds adapters in what it trains in');
    if (bits) view.say('/training/base_quantization/bits');
    if (bits === 4) {
      view.say('/training/base_quantization/type', '/training/base_quantization/double_quant');
      view.match(
        '/training/base_quantization/compute_dtype',
        zero ? (weights === 'float32' ? 'float32' : weights) : compute,
        'LLaMA-Factory unpacks to what it computes in',
      );
    }
  }
  const modules = view.get('/training/adapter/modules_to_save');
  if (lora && Array.isArray(modules) && modules.length > 0) view.say('/training/adapter/modules_to_save');
  const mixed = zero ? { bf16: weights === 'bfloat16', fp16: weights === 'float16' } : { bf16: flags.bf16, fp16: flags.fp16 };
  const all = targets(view);
  const name = deepspeedName(view);
  const optimizer = optim(view);
  const file = yaml({
    model_name_or_path: view.model,
    stage: dpo ? 'dpo' : 'sft',
    do_train: true,
    finetuning_type: lora ? 'lora' : 'full',
    ...(lora
      ? {
          lora_rank: view.number('/training/adapter/rank', 16),
          lora_target: all === 'all-linear' ? 'all' : (all as string[]).join(','),
          lora_dropout: view.number('/training/adapter/dropout', 0),
          use_dora: view.flag('/training/adapter/dora', false),
          ...(Array.isArray(modules) && modules.length > 0 ? { additional_target: modules.join(',') } : {}),
          ...(bits ? { quantization_bit: bits, quantization_method: 'bnb' } : {}),
          ...(bits === 4
            ? {
                quantization_type: view.text('/training/base_quantization/type', 'nf4'),
                double_quantization: view.flag('/training/base_quantization/double_quant', false),
              }
            : {}),
        }
      : {}),
    ...(zero ? { deepspeed: name } : {}),
    dataset: 'YOUR_DATASET',
    template: 'default',
    cutoff_len: view.number('/training/sequence', 2048),
    output_dir: 'out',
    per_device_train_batch_size: batch(view),
    gradient_accumulation_steps: view.number('/training/accumulation', 1),
    optim: optimizer,
    max_grad_norm: clip(view),
    ...mixed,
    pure_bf16: pure,
    flash_attn: attention === 'eager' ? 'disabled' : attention === 'flash_attention_2' ? 'fa2' : 'sdpa',
    enable_liger_kernel: usesLiger,
    disable_gradient_checkpointing: !on,
    ...(on ? { use_reentrant_gc: reentrant } : {}),
    ...ddp(view),
  });
  const files = [{ name: 'llamafactory.yaml', text: file }];
  const single = kind === 'none' || view.world === 1;
  let command = `${allocator(view)}${single ? '' : 'FORCE_TORCHRUN=1 '}${view.nodes > 1 ? `NNODES=${view.nodes} NODE_RANK=0 MASTER_ADDR=HEAD_NODE MASTER_PORT=29500 ` : ''}llamafactory-cli train llamafactory.yaml`;
  for (const at of ['/cluster/nodes', '/cluster/gpus_per_node']) view.lose(at, 'the launcher says it, not the file');
  if (zero) {
    files.unshift({ name, text: deepspeedText(view) });
    view.say('/parallel/data/degree');
  } else if (sharded || !single) {
    for (const at of ['/cluster/nodes', '/cluster/gpus_per_node']) view.lost.delete(at);
    files.unshift({ name: 'accelerate.yaml', text: accelerate(view, flags) });
    command = `${allocator(view)}accelerate launch --config_file accelerate.yaml src/train.py llamafactory.yaml`;
  } else view.lose('/parallel/data/kind', 'one GPU needs no word of it');
  return { ok: true, written: view.done(files, command, 'LLaMA-Factory') };
}
