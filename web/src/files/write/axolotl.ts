import type { JsonObject } from '../../choice/choice';
import { batch, checkpointing, clip, deepspeedName, deepspeedText, fsdp, optim, targets } from './common';
import { allocator, View, yaml, type Export } from './written';

/** axolotl's YAML, with DeepSpeed's file beside it. */
export function toAxolotl(spec: JsonObject): Export {
  const view = new View(spec);
  const { kind, lora, bits, weights, autocast } = view;
  if (kind === 'zero_redundancy') return { ok: false, why: 'axolotl does not do ZeroRedundancyOptimizer.' };
  if (view.degreeOf('pipeline') > 1 || view.degreeOf('expert') > 1)
    return { ok: false, why: 'axolotl has neither a pipeline nor expert parallelism by itself.' };
  const tensor = view.degreeOf('tensor');
  const context = view.degreeOf('context');
  if (tensor > 1 && kind !== 'fsdp2' && kind !== 'none') return { ok: false, why: 'axolotl has tensor parallelism with FSDP2 alone.' };
  const zero = /^zero\d/.test(kind);
  const sharded = kind.startsWith('fsdp');
  const flags = precisionFlags(view, zero, sharded);
  const { on, reentrant } = checkpointing(view);
  const attention = view.text('/training/attention', 'sdpa');
  if (attention === 'fused') view.lose('/training/attention', 'cuDNN’s attention is Megatron’s');
  else view.say('/training/attention');
  view.say('/training/sequence', '/training/accumulation', '/training/method');
  const rows = batch(view);
  const dpo = view.text('/training/objective', 'sft') === 'dpo';
  if (!dpo) view.lose('/training/objective', 'fine-tuning is what axolotl does unasked');
  const loss = view.text('/training/loss', 'standard');
  if (loss === 'trl_tiled') view.lose('/training/loss', 'axolotl has no such loss');
  else if (loss === 'standard') view.lose('/training/loss', 'torch’s loss is what axolotl takes unasked');
  else view.say('/training/loss');
  const kernels = ['rms_norm', 'rope', 'swiglu'] as const;
  for (const key of kernels) {
    if (view.flag(`/training/kernels/liger/${key}`, false)) view.say(`/training/kernels/liger/${key}`);
    else view.lose(`/training/kernels/liger/${key}`, 'off unless named');
  }
  if (lora) {
    view.say('/training/adapter/rank', '/training/adapter/dropout', '/training/adapter/dora', '/training/adapter/upcast');
    if (bits) view.say('/training/base_quantization/bits');
    if (bits === 4) {
      view.match('/training/base_quantization/type', 'nf4', 'axolotl takes NF4');
      view.match('/training/base_quantization/double_quant', true, 'axolotl quantises the scales, too');
      view.match('/training/base_quantization/compute_dtype', flags.held, 'axolotl unpacks to what it loads in');
    }
    const save = view.get('/training/adapter/modules_to_save');
    if (Array.isArray(save) && save.length > 0) view.say('/training/adapter/modules_to_save');
  }
  const liger = kernels.some((key) => view.flag(`/training/kernels/liger/${key}`, false)) || loss.startsWith('liger');
  const modules = view.get('/training/adapter/modules_to_save');
  const upcast = view.get('/training/adapter/upcast');
  const replicate = view.number('/parallel/data/replicate', 1);
  const all = targets(view);
  const name = deepspeedName(view);
  const optimizer = optim(view, { muon: 'muon', lion: 'lion_pytorch', adamw_fp8_torchao: 'ao_adamw_fp8' });
  if (kind === 'fsdp2') {
    view.say('/parallel/data/degree', ...(replicate > 1 ? ['/parallel/data/replicate'] : []));
  }
  if (tensor > 1) view.say('/parallel/tensor/degree');
  if (context > 1) view.say('/parallel/context/degree');
  const buckets = kind === 'ddp' && view.get('/parallel/data/bucket_cap_mb') !== undefined;
  const unused = kind === 'ddp' && view.get('/parallel/data/find_unused_parameters') !== undefined;
  if (buckets) view.say('/parallel/data/bucket_cap_mb');
  if (unused) view.say('/parallel/data/find_unused_parameters');
  if (kind === 'ddp') view.say('/parallel/data/kind');
  const fsdpConfig = sharded ? withoutVersion(fsdp(view, '')) : undefined;
  const text = yaml({
    base_model: view.model,
    ...(liger ? { plugins: ['axolotl.integrations.liger.LigerPlugin'] } : {}),
    datasets: ['YOUR/DATASET'],
    ...(lora
      ? {
          adapter: bits === 4 ? 'qlora' : 'lora',
          load_in_4bit: bits === 4,
          load_in_8bit: bits === 8,
          lora_r: view.number('/training/adapter/rank', 16),
          lora_dropout: view.number('/training/adapter/dropout', 0),
          ...(all === 'all-linear' ? { lora_target_linear: true } : { lora_target_modules: all }),
          peft_use_dora: view.flag('/training/adapter/dora', false),
          ...(typeof upcast === 'boolean' ? { peft_autocast_adapter_dtype: upcast } : {}),
          ...(Array.isArray(modules) && modules.length > 0 ? { lora_modules_to_save: modules } : {}),
        }
      : {}),
    ...(dpo ? { rl: 'dpo' } : {}),
    sequence_len: view.number('/training/sequence', 2048),
    sample_packing: false,
    pad_to_sequence_len: true,
    micro_batch_size: rows,
    gradient_accumulation_steps: view.number('/training/accumulation', 1),
    optimizer,
    learning_rate: 2e-5,
    max_grad_norm: clip(view),
    ...flags.entries,
    gradient_checkpointing: on,
    ...(on ? { gradient_checkpointing_kwargs: { use_reentrant: reentrant } } : {}),
    attn_implementation: attention === 'flex' ? 'flex_attention' : attention === 'fused' ? 'sdpa' : attention,
    ...(loss === 'liger_fused_linear' ? { liger_fused_linear_cross_entropy: true } : {}),
    ...(loss === 'liger_cross_entropy' ? { liger_cross_entropy: true } : {}),
    ...(loss === 'chunked' ? { chunked_cross_entropy: true } : {}),
    ...(view.flag('/training/kernels/liger/rms_norm', false) ? { liger_rms_norm: true } : {}),
    ...(view.flag('/training/kernels/liger/rope', false) ? { liger_rope: true } : {}),
    ...(view.flag('/training/kernels/liger/swiglu', false) ? { liger_glu_activation: true } : {}),
    ...(zero ? { deepspeed: name } : {}),
    ...(kind === 'ddp' ? { ddp: true } : {}),
    ...(buckets ? { ddp_bucket_cap_mb: view.number('/parallel/data/bucket_cap_mb', 25) } : {}),
    ...(unused ? { ddp_find_unused_parameters: view.flag('/parallel/data/find_unused_parameters', false) } : {}),
    ...(sharded ? { fsdp_version: kind === 'fsdp1' ? 1 : 2, fsdp_config: fsdpConfig } : {}),
    ...(kind === 'fsdp2' ? { dp_shard_size: view.degree / replicate, ...(replicate > 1 ? { dp_replicate_size: replicate } : {}) } : {}),
    ...(tensor > 1 ? { tensor_parallel_size: tensor } : {}),
    ...(context > 1 ? { context_parallel_size: context } : {}),
    num_epochs: 1,
    output_dir: 'out',
  });
  const files = [{ name: 'axolotl.yaml', text }];
  for (const at of ['/cluster/nodes', '/cluster/gpus_per_node']) view.lose(at, 'the launcher says it, not the file');
  if (zero) {
    files.unshift({ name, text: deepspeedText(view) });
    view.say('/parallel/data/degree');
  } else if (kind !== 'fsdp2') view.lose('/parallel/data/degree', 'the launcher says it, not the file');
  if (kind === 'none') view.lose('/parallel/data/kind', 'one GPU needs no word of it');
  const machines = view.nodes > 1 ? ` --num-machines ${view.nodes} --main-process-ip HEAD_NODE` : '';
  const command = `${allocator(view)}axolotl train axolotl.yaml --launcher accelerate -- --num_processes ${view.world}${machines}`;
  return { ok: true, written: view.done(files, command, 'axolotl') };

  function precisionFlags(of: View, deep: boolean, cut: boolean): { entries: JsonObject; held: string } {
    const say = (mixed: string | null, held: string, entries: JsonObject) => {
      // axolotl's readings: ../axolotl.ts, readPrecision; ../parallel.ts, settlePrecision.
      if (deep) {
        of.match('/training/weights', mixed ?? held, 'axolotl loads the model in what it computes in');
        of.match('/training/autocast', null, 'DeepSpeed holds the model in what it trains in');
      } else if (cut) {
        const kept = lora ? held : mixed ? 'float32' : held;
        const computed = mixed ?? (kept === 'float32' ? null : kept);
        of.match('/training/weights', kept, 'axolotl loads the model in what it computes in');
        of.match('/training/autocast', null, 'FSDP’s own mixed precision takes its place');
        if (computed !== null || kind !== 'fsdp1') of.match('/parallel/data/param_dtype', computed, 'axolotl computes in what it loads in');
        else of.lose('/parallel/data/param_dtype', 'axolotl computes in what it loads in');
        if (mixed) of.match('/parallel/data/reduce_dtype', mixed, 'accelerate reduces gradients in what it computes in');
        of.match('/training/grad_scaler', null, 'none under FSDP');
      } else {
        of.match('/training/weights', held, 'axolotl loads the model in what it computes in');
        of.match('/training/autocast', mixed, 'axolotl loads the model in what it computes in');
        of.match('/training/grad_scaler', mixed === 'float16' ? true : null, 'a loss scaler goes with fp16 alone');
      }
      return { entries, held };
    };
    const param = of.get('/parallel/data/param_dtype');
    const mixed = deep
      ? weights === 'float32'
        ? null
        : weights
      : cut
        ? weights === 'float32' && typeof param === 'string' && param !== 'float32'
          ? param
          : lora && weights !== 'float32'
            ? weights
            : null
        : autocast;
    if (mixed === 'bfloat16') return say('bfloat16', 'bfloat16', { bf16: true });
    if (mixed === 'float16') return say('float16', 'float16', { bf16: false, fp16: true });
    if (weights === 'bfloat16') return say(null, 'bfloat16', { bf16: 'full' });
    if (weights === 'float16') return say(null, 'float16', { bf16: false, float16: true });
    return say(null, 'float32', { bf16: false, float32: true });
  }
}

function withoutVersion(config: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(config).filter(([key]) => key !== 'version'));
}
