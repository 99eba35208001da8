import type { JsonObject } from '../../choice/choice';
import {
  accelerate,
  batch,
  checkpointing,
  clip,
  ddp,
  deepspeedName,
  deepspeedText,
  fsdp,
  liger,
  optim,
  precision,
  targets,
  type Precision,
} from './common';
import { allocator, torchrun, View, yaml, type Export } from './written';

// accelerate, DeepSpeed and FSDP say how a model is spread; what is trained is TRL's to say, so each comes with a TRL file.

function trl(view: View, { dtype, bf16, fp16 }: Precision, more: JsonObject): string {
  const { on, reentrant } = checkpointing(view);
  const usesLiger = liger(view, 'trl_tiled');
  const dpo = view.text('/training/objective', 'sft') === 'dpo';
  const { lora, bits } = view;
  const attention = view.text('/training/attention', 'sdpa');
  if (attention === 'fused') view.lose('/training/attention', 'cuDNN’s attention is Megatron’s');
  else view.say('/training/attention');
  view.say(
    '/training/sequence',
    '/training/accumulation',
    '/training/method',
    '/training/weight_decay',
    '/training/label_smoothing',
  );
  if (dpo) view.lose('/training/loss', 'DPO has TRL’s tiled head');
  if (lora) {
    view.say('/training/adapter/rank', '/training/adapter/dropout', '/training/adapter/dora');
    view.match(
      '/training/adapter/upcast',
      bits === 0,
      bits ? 'TRL holds the adapters of a quantised base in bf16' : 'PEFT holds adapters in fp32',
    );
    if (bits) view.say('/training/base_quantization/bits');
    const save = view.get('/training/adapter/modules_to_save');
    if (Array.isArray(save) && save.length > 0) view.say('/training/adapter/modules_to_save');
    else view.match('/training/adapter/modules_to_save', [], '');
    if (bits === 4) {
      view.say('/training/base_quantization/type', '/training/base_quantization/double_quant');
      view.match('/training/base_quantization/compute_dtype', dtype, 'TRL computes in the dtype of the model');
    }
  }
  const modules = view.get('/training/adapter/modules_to_save');
  const decay = view.number('/training/weight_decay', 0);
  const smoothing = view.number('/training/label_smoothing', 0);
  view.match('/training/weight_decay', decay > 0 ? decay : null, '0 is none');
  view.match('/training/label_smoothing', smoothing > 0 ? smoothing : null, '0 is none');
  const name = optim(view);
  return yaml({
    model_name_or_path: view.model,
    dtype,
    attn_implementation: attention === 'flex' ? 'flex_attention' : attention === 'fused' ? 'sdpa' : attention,
    dataset_name: 'YOUR/DATASET',
    output_dir: 'out',
    per_device_train_batch_size: batch(view),
    gradient_accumulation_steps: view.number('/training/accumulation', 1),
    max_length: view.number('/training/sequence', 2048),
    bf16,
    fp16,
    gradient_checkpointing: on,
    ...(on ? { gradient_checkpointing_kwargs: { use_reentrant: reentrant } } : {}),
    optim: name,
    max_grad_norm: clip(view),
    ...(decay > 0 ? { weight_decay: decay } : {}),
    ...(smoothing > 0 ? { label_smoothing_factor: smoothing } : {}),
    use_liger_kernel: usesLiger,
    ...(dpo ? { beta: 0.1, loss_type: ['sigmoid'] } : {}),
    ...(lora
      ? {
          use_peft: true,
          lora_r: view.number('/training/adapter/rank', 16),
          lora_target_modules: targets(view),
          lora_dropout: view.number('/training/adapter/dropout', 0),
          use_dora: view.flag('/training/adapter/dora', false),
          ...(Array.isArray(modules) && modules.length > 0 ? { lora_modules_to_save: modules } : {}),
          ...(bits === 4
            ? {
                load_in_4bit: true,
                bnb_4bit_quant_type: view.text('/training/base_quantization/type', 'nf4'),
                use_bnb_nested_quant: view.flag('/training/base_quantization/double_quant', false),
              }
            : {}),
          ...(bits === 8 ? { load_in_8bit: true } : {}),
        }
      : {}),
    ...ddp(view),
    ...more,
  });
}

const script = (view: View) => `trl.scripts.${view.text('/training/objective', 'sft') === 'dpo' ? 'dpo' : 'sft'}`;
const fileOf = (view: View) => `${view.text('/training/objective', 'sft') === 'dpo' ? 'dpo' : 'sft'}.yaml`;

function refused(view: View, tool: string, kinds: readonly string[]): string | undefined {
  if (!kinds.includes(view.kind)) return `${tool} does not do ${view.kind === 'zero_redundancy' ? 'ZeroRedundancyOptimizer' : view.kind}.`;
  if (view.degreeOf('pipeline') > 1) return 'The Trainer has no pipeline.';
  if (view.degreeOf('expert') > 1) return 'The Trainer has no expert parallelism.';
  if (view.kind !== 'fsdp2' && (view.degreeOf('tensor') > 1 || view.degreeOf('context') > 1))
    return 'accelerate has tensor and context parallelism with FSDP2 alone.';
  return undefined;
}

export function toAccelerate(spec: JsonObject): Export {
  const view = new View(spec);
  const why = refused(view, 'accelerate', ['none', 'ddp', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2']);
  if (why) return { ok: false, why };
  const flags = precision(view);
  const files = [
    { name: 'accelerate.yaml', text: accelerate(view, flags) },
    ...(/^zero\d/.test(view.kind) ? [{ name: deepspeedName(view), text: deepspeedText(view) }] : []),
    { name: fileOf(view), text: trl(view, flags, {}) },
  ];
  return {
    ok: true,
    written: view.done(
      files,
      `${allocator(view)}accelerate launch --config_file accelerate.yaml -m ${script(view)} --config ${fileOf(view)}`,
      'accelerate with TRL',
    ),
  };
}

export function toDeepspeed(spec: JsonObject): Export {
  const view = new View(spec);
  const why = refused(view, 'DeepSpeed', ['zero1', 'zero2', 'zero3']);
  if (why) return { ok: false, why };
  const flags = precision(view);
  const name = deepspeedName(view);
  view.say('/parallel/data/degree', '/cluster/nodes', '/cluster/gpus_per_node');
  for (const at of ['/cluster/nodes', '/cluster/gpus_per_node']) view.lose(at, 'the launcher says it, not the file');
  const files = [
    { name, text: deepspeedText(view) },
    { name: fileOf(view), text: trl(view, flags, { deepspeed: name }) },
  ];
  const nodes = view.nodes > 1 ? ` --num_nodes ${view.nodes} --hostfile hostfile` : '';
  return {
    ok: true,
    written: view.done(
      files,
      `${allocator(view)}deepspeed --num_gpus ${view.perNode}${nodes} --module ${script(view)} --config ${fileOf(view)}`,
      'DeepSpeed with TRL',
    ),
  };
}

export function toFsdp(spec: JsonObject): Export {
  const view = new View(spec);
  const why = refused(view, 'FSDP', ['fsdp1', 'fsdp2']);
  if (why) return { ok: false, why };
  if (view.degreeOf('tensor') > 1 || view.degreeOf('context') > 1 || view.number('/parallel/data/replicate', 1) > 1) {
    return { ok: false, why: 'Copies, tensor and context parallelism are accelerate’s to say: take its file.' };
  }
  const flags = precision(view);
  for (const at of ['/cluster/nodes', '/cluster/gpus_per_node', '/parallel/data/degree']) view.lose(at, 'torchrun says it, not the file');
  const files = [{ name: fileOf(view), text: trl(view, flags, { fsdp: true, fsdp_config: fsdp(view, '') }) }];
  return {
    ok: true,
    written: view.done(files, `${allocator(view)}${torchrun(view)} -m ${script(view)} --config ${fileOf(view)}`, 'FSDP with TRL'),
  };
}
