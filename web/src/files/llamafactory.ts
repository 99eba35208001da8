import { Draft, Section, type Import } from './draft';
import { readModelName, type Known } from './models';
import { ignoreRest } from './neutral';
import { settlePrecision, family } from './parallel';
import { askObjective, readAttention, readLora, readTrainerPart } from './trainer';
import type { Table } from './tree';

// LLaMA-Factory's YAML: TrainingArguments and its own. Source: src/llamafactory/hparams/*.py, model/adapter.py, model/patcher.py.

const OWN: Record<string, string> = {
  freeze_vision_tower: 'text models have none',
  freeze_multi_modal_projector: 'text models have none',
  freeze_language_model: 'of multi-modal models',
  create_new_adapter: 'which adapter, not how large',
  adapter_name_or_path: 'which adapter, not how large',
  adapter_folder: 'which adapter',
  ref_model: 'which reference model',
  pref_beta: 'a number of the loss',
  pref_ftx: 'a number of the loss',
  pref_loss: 'which loss over the log-probabilities',
  upcast_layernorm: 'norm weights in fp32: small, not played',
  upcast_lmhead_output: 'logits in fp32, as the loss makes them',
  resize_vocab: 'adds rows to the embedding if tokens were added',
  shift_attn: 'S²-attention: not played',
  moe_aux_loss_coef: 'a number of the loss',
  use_kv_cache: 'off while training',
  infer_backend: 'inference only',
  infer_dtype: 'inference only',
  offload_folder: 'inference only',
  train_from_scratch: 'the same shapes',
  quantization_device_map: 'which GPU it is loaded on',
  print_param_status: 'logging',
  additional_target: 'trained whole, beside the adapters',
  tool_format: 'what the rows say',
  disable_shuffling: 'which rows come first',
  use_v1_kernels: 'how kernels are called',
  quantization_method: '',
  kt_weight_path: 'KTransformers: not played',
};
const STACKS = [
  'use_unsloth',
  'use_unsloth_gc',
  'use_galore',
  'use_apollo',
  'use_badam',
  'use_adam_mini',
  'use_llama_pro',
  'use_mca',
  'use_megatron_bridge',
  'use_kt',
  'use_hyper_parallel',
  'mixture_of_depths',
  'fp8',
  'use_asft_loss',
];

export function readLlamafactory(table: Table, source: string, known: Known): Import {
  const draft = new Draft('llamafactory', source);
  draft.around = known.around;
  const from = new Section(table, draft);

  from.text('model_name_or_path', (name, entry) => readModelName(draft, entry, name, known));
  let dpo = false;
  const stage = from.text('stage', (text, entry) => {
    const name = text.toLowerCase();
    if (name === 'sft' || name === 'pt')
      draft.understood(entry, name === 'pt' ? 'pre-training: the same step' : 'supervised fine-tuning', { '/training/objective': 'sft' });
    else if (name === 'dpo') {
      dpo = true;
      draft.understood(entry, 'DPO: each pair is two rows, and there is a reference', { '/training/objective': 'dpo' });
    } else if (['rm', 'ppo', 'kto'].includes(name)) askObjective(draft, entry, name);
    else draft.wrong(entry, 'pt, sft, rm, ppo, dpo or kto');
  });
  let method: 'full' | 'lora' = 'lora';
  const said = from.text('finetuning_type', (text, entry) => {
    const name = text.toLowerCase();
    if (name === 'full' || name === 'lora') {
      method = name;
      draft.understood(entry, name === 'full' ? 'everything is trained' : 'LoRA adapters are trained, the base is frozen', {
        '/training/method': name,
      });
    } else if (name === 'freeze' || name === 'oft') {
      draft.ignored(entry, `“${name}” is not played: LoRA is closest`);
      draft.set('/training/method', 'lora');
    } else draft.wrong(entry, 'lora, full, freeze or oft');
  });
  if (!said) draft.assumed('finetuning_type', 'not said: lora, LLaMA-Factory’s default', { '/training/method': 'lora' });
  const lora = method === 'lora';

  readLora(draft, from, lora, {
    rank: 'lora_rank',
    targets: 'lora_target',
    dropout: 'lora_dropout',
    dora: 'use_dora',
    save: 'additional_target',
  });
  if (lora && !draft.has('/training/adapter/rank'))
    draft.assumed('lora_rank', 'not said: 8, LLaMA-Factory’s default', { '/training/adapter/rank': 8 });
  if (lora && !draft.has('/training/adapter/targets'))
    draft.assumed('lora_target', 'not said: all, LLaMA-Factory’s default', { '/training/adapter/targets': 'all-linear' });

  const pure =
    from.flag('pure_bf16', (on, entry) =>
      draft.understood(entry, on ? 'everything in bf16, nothing in fp32' : 'mixed precision as bf16 says'),
    ) ?? false;
  const badam = from.peek('use_badam') === true;
  const part = readTrainerPart(draft, from, { checkpointingByDefault: false, mixedByDefault: null });
  const compute = part.mixed ?? (pure ? 'bfloat16' : 'float32');

  let quantised = false;
  from.integer('quantization_bit', (bits, entry) => {
    if (bits !== 4 && bits !== 8) return draft.ignored(entry, `${bits} bits are not played: 4 and 8 (bitsandbytes) are`);
    quantised = true;
    draft.understood(entry, `the frozen base in ${bits} bits (bitsandbytes)`, {
      '/training/base_quantization/bits': bits,
      ...(bits === 4
        ? {
            '/training/base_quantization/type': 'nf4',
            '/training/base_quantization/double_quant': true,
            '/training/base_quantization/compute_dtype': compute,
          }
        : {}),
    });
  });
  from.text('quantization_type', (type, entry) => {
    if (!quantised) return draft.ignored(entry, 'the base is not quantised');
    if (type !== 'nf4' && type !== 'fp4') return draft.wrong(entry, 'nf4 or fp4');
    draft.understood(entry, 'the table of 16 values', { '/training/base_quantization/type': type });
  });
  from.flag('double_quantization', (on, entry) =>
    quantised
      ? draft.understood(entry, on ? 'scales in 8 bits themselves' : 'scales in fp32', { '/training/base_quantization/double_quant': on })
      : draft.ignored(entry, 'the base is not quantised'),
  );
  from.text('quantization_method', (name, entry) =>
    /^(bnb|bitsandbytes)$/i.test(name) ? draft.understood(entry, 'bitsandbytes') : draft.ignored(entry, 'only bitsandbytes is played'),
  );

  // model/adapter.py: what is trained is raised to fp32 unless pure_bf16 (or ZeRO-3, which holds fp32 copies of its own).
  const held = lora ? compute : pure || badam ? 'bfloat16' : 'float32';
  const why = lora
    ? ' (LLaMA-Factory loads the base in what it computes in)'
    : held === 'float32'
      ? ' (LLaMA-Factory raises what is trained to fp32)'
      : '';
  settlePrecision(draft, { mixed: part.mixed, held, why, lora });
  if (lora && family(draft) !== 'deepspeed') draft.set('/training/adapter/upcast', !pure);

  // model/model_utils/checkpointing.py: on unless disabled, of the re-entrant kind; FSDP2 wants the other one.
  const disabled =
    from.flag('disable_gradient_checkpointing', (on, entry) =>
      draft.understood(entry, on ? 'everything is kept for backward' : 'each layer again in backward'),
    ) ?? false;
  const fsdp2 = draft.dataKind === 'fsdp2';
  const reentrant =
    (from.flag('use_reentrant_gc', (on, entry) => draft.understood(entry, on ? 'the older kind of checkpointing' : 'torch’s newer kind')) ??
      true) &&
    !fsdp2;
  draft.assumed(
    'gradient checkpointing',
    disabled
      ? 'switched off by the file'
      : `on: LLaMA-Factory checkpoints unless disable_gradient_checkpointing${reentrant ? ', with use_reentrant' : ''}`,
    {
      '/training/checkpointing': disabled ? 'none' : reentrant ? 'full_reentrant' : 'full',
    },
  );

  from.text('flash_attn', (text, entry) => {
    const name = text.toLowerCase();
    if (name === 'auto') draft.inferred(entry, 'what Transformers takes by itself: SDPA', { '/training/attention': 'sdpa' });
    else if (name === 'disabled') draft.understood(entry, 'eager: the whole score matrix', { '/training/attention': 'eager' });
    else readAttention(draft, entry, name);
  });
  from.flag('enable_liger_kernel', (on, entry) => {
    draft.understood(
      entry,
      on ? 'Liger: no full logits, norms, rotary and SwiGLU fused' : 'no Liger kernels',
      on
        ? {
            '/training/loss': 'liger_fused_linear',
            '/training/kernels/liger/rms_norm': true,
            '/training/kernels/liger/rope': true,
            '/training/kernels/liger/swiglu': true,
          }
        : {},
    );
  });
  from.flag('use_muon', (on, entry) => on && draft.understood(entry, 'the optimizer: muon', { '/training/optimizer/name': 'muon' }));

  const cutoff = from.integer('cutoff_len', (value, entry) =>
    draft.understood(entry, 'tokens in a row at most: every row is taken to be that long', { '/training/sequence': value }),
  );
  if (!cutoff) draft.assumed('cutoff_len', 'not said: 2,048, LLaMA-Factory’s default', { '/training/sequence': 2048 });
  from.flag('packing', (on, entry) => draft.understood(entry, on ? 'rows are filled with several examples' : 'one example a row'));
  from.flag('neat_packing', (on, entry) =>
    draft.understood(entry, on ? 'rows are filled with several examples that do not see each other' : 'no'),
  );
  if (dpo) {
    const batch = Number(draft.get('/training/micro_batch') ?? 1);
    draft.assumed('DPO', `${batch} pairs are ${2 * batch} rows, chosen and rejected`, { '/training/micro_batch': 2 * batch });
  }
  for (const key of STACKS) {
    from.flag(key, (on, entry) => {
      if (!on) return draft.understood(entry, 'off');
      draft.ignored(entry, 'not played here: the step without it is');
    });
  }
  from.text('mixture_of_depths', (_, entry) => draft.ignored(entry, 'not played here'));
  from.integer('ray_num_workers', (value, entry) =>
    draft.understood(entry, 'ranks, a GPU each', value > 1 ? { '/parallel/data/degree': value } : {}),
  );

  if (stage === undefined) draft.assumed('stage', 'not said: sft, LLaMA-Factory’s default', { '/training/objective': 'sft' });
  if (!draft.has('/parallel/data/degree')) draft.askGpus('LLaMA-Factory’s file does not say it: the launcher does.');
  ignoreRest(draft, from, OWN, 'LLaMA-Factory');
  return draft.done();
}
