import { asFlag, asNumber, asText, asWords, Draft, Section, type Entry, type Import, type Kind } from './draft';
import { readModelName, type Known } from './models';
import { ignoreRest } from './neutral';
import { readOptimizer } from './optimizers';
import { dtypeNamed, readDeepspeed, readDeepspeedPath, readFsdp, readFsdpWords, settlePrecision, type Dtype } from './parallel';
import type { Table } from './tree';

// Transformers' TrainingArguments and what TRL adds to them, from YAML, a command line or Python. Source: transformers 5
// training_args.py; trl/trainer/{base,sft,dpo,…,model}_config.py, trl/scripts/utils.py.

export interface TrainerOptions {
  kind: Kind;
  /** What TRL and LLaMA-Factory say otherwise than Transformers. */
  checkpointingByDefault: boolean;
  mixedByDefault: Dtype | null;
}

/** What the arguments of a Trainer say, shared by the tools that pass them on. */
export interface TrainerPart {
  batch: number | undefined; // rows one GPU works on
  mixed: Dtype | null;
  checkpointing: boolean | undefined;
  liger: boolean;
}

export function readTrainerPart(
  draft: Draft,
  from: Section,
  { checkpointingByDefault, mixedByDefault }: Omit<TrainerOptions, 'kind'>,
): TrainerPart {
  const batch = from.integer('per_device_train_batch_size', (value, entry) =>
    draft.understood(entry, 'rows that one GPU works on at once', { '/training/micro_batch': value }),
  );
  for (const old of ['per_gpu_train_batch_size', 'train_batch_size']) {
    from.integer(old, (value, entry) => draft.inferred(entry, 'read as per_device_train_batch_size', { '/training/micro_batch': value }));
  }
  if (!draft.has('/training/micro_batch'))
    draft.assumed('per_device_train_batch_size', 'not said: Transformers’ default, 8', { '/training/micro_batch': 8 });
  from.flag('auto_find_batch_size', (on, entry) =>
    on
      ? draft.ignored(entry, 'halves the batch after each out of memory: the batch that is asked for is played')
      : draft.understood(entry, 'the batch stays'),
  );
  from.integer('gradient_accumulation_steps', (value, entry) =>
    draft.understood(entry, 'micro-batches before each step', { '/training/accumulation': value }),
  );

  if (from.entry('optim_args')) draft.assumed('optim_args', 'how far a step goes; states are as without them');
  from.text('optim', (name, entry) => readOptimizer(draft, entry, name));
  from.flag(
    'adafactor',
    (on, entry) => on && draft.understood(entry, 'the optimizer: adafactor_hf', { '/training/optimizer/name': 'adafactor_hf' }),
  );
  if (!draft.has('/training/optimizer/name')) {
    draft.assumed('optim', 'not said: adamw_torch_fused, Transformers’ default', {
      '/training/optimizer/name': 'adamw',
      '/training/optimizer/implementation': 'fused',
    });
  }
  from.number('weight_decay', (value, entry) =>
    draft.understood(
      entry,
      value > 0 ? 'decoupled: no tensor of its own in a fused step' : 'none',
      value > 0 ? { '/training/weight_decay': value } : {},
    ),
  );
  from.number('max_grad_norm', (norm, entry) =>
    draft.understood(entry, norm > 0 ? 'clipped to this norm' : 'not clipped', { '/training/max_grad_norm': norm > 0 ? norm : null }),
  );
  if (!draft.has('/training/max_grad_norm'))
    draft.assumed('max_grad_norm', 'not said: 1.0, Transformers’ default', { '/training/max_grad_norm': 1 });
  for (const key of ['label_smoothing_factor', 'label_smoothing']) {
    from.number(key, (value, entry) =>
      draft.understood(
        entry,
        value > 0 ? 'the loss over full logits a second time' : 'none',
        value > 0 && key === 'label_smoothing_factor' ? { '/training/label_smoothing': value } : {},
      ),
    );
  }

  let mixed: Dtype | null | undefined;
  from.flagOr('bf16', ['auto', 'full'], (value, entry) => {
    if (value === true || value === 'auto' || value === 'full') mixed = 'bfloat16';
    else mixed ??= null;
    draft.understood(entry, mixed ? 'computed in bf16' : 'no bf16');
  });
  from.flag('fp16', (on, entry) => {
    if (on) mixed = 'float16';
    else mixed ??= null;
    draft.understood(entry, on ? 'computed in fp16, with a loss scaler' : 'no fp16');
  });
  if (mixed === undefined) {
    mixed = mixedByDefault;
    draft.assumed('bf16', mixedByDefault ? 'not said: on, this tool’s default' : 'not said: no mixed precision, Transformers’ default');
  }

  const checkpointing = readCheckpointing(draft, from, checkpointingByDefault);
  const liger = readLiger(draft, from);
  from.flag('torch_compile', (on, entry) =>
    on ? draft.ignored(entry, 'torch.compile is not played: the step without it is') : draft.understood(entry, 'not compiled'),
  );
  from.flag('activation_offloading', (on, entry) =>
    draft.understood(
      entry,
      on ? 'kept activations go to the host' : 'activations stay',
      on ? { '/parallel/offload/activations': 'cpu' } : {},
    ),
  );

  readSpread(draft, from);
  return { batch, mixed: mixed ?? null, checkpointing, liger };
}

function readCheckpointing(draft: Draft, from: Section, byDefault: boolean): boolean | undefined {
  let on: boolean | undefined;
  let asked: Entry | undefined;
  for (const key of ['gradient_checkpointing', 'activation_checkpointing']) {
    from.flag(key, (value, entry) => {
      on = value;
      asked = entry;
    });
  }
  let reentrant = false;
  for (const key of ['gradient_checkpointing_kwargs', 'activation_checkpointing_kwargs']) {
    const section = from.section(key);
    section?.flag('use_reentrant', (value, entry) => {
      reentrant = value;
      draft.understood(entry, value ? 'the older kind: inputs kept, gradients made in a second graph' : 'torch’s newer kind');
    });
    if (section) ignoreRest(draft, section, {}, 'torch.utils.checkpoint');
  }
  const kind = reentrant ? 'full_reentrant' : 'full';
  if (asked)
    draft.understood(asked, on ? 'each layer again in backward' : 'everything is kept for backward', {
      '/training/checkpointing': on ? kind : 'none',
    });
  else if (byDefault) draft.assumed('gradient_checkpointing', 'not said: on, TRL’s default', { '/training/checkpointing': kind });
  return on ?? (byDefault || undefined);
}

function readLiger(draft: Draft, from: Section): boolean {
  let liger = false;
  for (const key of ['use_liger_kernel', 'use_liger', 'use_liger_loss']) {
    from.flag(key, (on, entry) => {
      liger ||= on;
      draft.understood(entry, on ? 'Liger: no full logits, norms, rotary and SwiGLU fused' : 'no Liger kernels', on ? LIGER : {});
    });
  }
  const flags = from.section('liger_kernel_config');
  for (const key of flags?.keys ?? []) {
    flags?.flag(key, (on, entry) => {
      if (key === 'fused_linear_cross_entropy')
        draft.understood(entry, on ? 'no full logits' : 'full logits', { '/training/loss': on ? 'liger_fused_linear' : 'standard' });
      else if (key === 'cross_entropy')
        draft.understood(
          entry,
          on ? 'the loss over the logits in place' : 'torch’s loss',
          on ? { '/training/loss': 'liger_cross_entropy' } : {},
        );
      else if (['rms_norm', 'rope', 'swiglu'].includes(key))
        draft.understood(entry, on ? 'Liger’s kernel' : 'Transformers’ own', { [`/training/kernels/liger/${key}`]: on });
      else draft.ignored(entry, 'this kernel is not played');
    });
  }
  return liger;
}

export const LIGER = {
  '/training/loss': 'liger_fused_linear',
  '/training/kernels/liger/rms_norm': true,
  '/training/kernels/liger/rope': true,
  '/training/kernels/liger/swiglu': true,
};

/** How the Trainer spreads the model: deepspeed, fsdp, ddp. */
function readSpread(draft: Draft, from: Section): void {
  const deepspeed = from.entry('deepspeed');
  if (deepspeed?.value.kind === 'table') {
    const section = new Section(deepspeed.value, draft, 'deepspeed.');
    readDeepspeed(draft, section);
    ignoreRest(draft, section, {}, 'DeepSpeed');
  } else if (deepspeed) {
    const path = asText(deepspeed.value);
    if (path === undefined) draft.wrong(deepspeed, 'a path or DeepSpeed’s settings');
    else readDeepspeedPath(draft, deepspeed, path);
  }
  const fsdp = from.entry('fsdp');
  const config = from.entry('fsdp_config');
  const section = config?.value.kind === 'table' ? new Section(config.value, draft, 'fsdp_config.') : undefined;
  if (config && !section) draft.ignored(config, 'a file that is not here: drop it, too');
  const flag = fsdp && asFlag(fsdp.value);
  if (fsdp && flag !== false) {
    readFsdp(draft, section, { version: 2, versionWhy: 'Transformers’ default' });
    const words = asWords(fsdp.value);
    if (flag === true) draft.understood(fsdp, 'on', { '/parallel/data/kind': draft.get('/parallel/data/kind') ?? 'fsdp2' });
    else if (words) readFsdpWords(draft, fsdp, words);
    else draft.wrong(fsdp, 'words such as full_shard auto_wrap');
  } else {
    if (fsdp) draft.understood(fsdp, 'off');
    if (section) ignoreRest(draft, section, {}, 'FSDP, which is off');
  }
  from.integer('ddp_bucket_cap_mb', (value, entry) =>
    draft.understood(entry, 'MiB in a bucket of gradients', { '/parallel/data/bucket_cap_mb': value }),
  );
  from.flag('ddp_find_unused_parameters', (on, entry) =>
    draft.understood(entry, on ? 'looks for unused parameters' : 'every parameter is used', {
      '/parallel/data/find_unused_parameters': on,
    }),
  );
  from.flag('ddp_static_graph', (on, entry) => draft.understood(entry, 'the graph does not change', { '/parallel/data/static_graph': on }));
  const parallelism = from.section('parallelism_config');
  if (parallelism) {
    for (const [key, at] of [
      ['tp_size', '/parallel/tensor/degree'],
      ['cp_size', '/parallel/context/degree'],
      ['dp_replicate_size', '/parallel/data/replicate'],
      ['dp_shard_size', '/parallel/data/degree'],
    ] as const) {
      parallelism.integer(key, (value, entry) => draft.understood(entry, 'ranks', value > 1 ? { [at]: value } : {}));
    }
    ignoreRest(draft, parallelism, {}, 'accelerate');
  }
}

export function readAttention(draft: Draft, entry: Entry, text: string): void {
  const name = text.trim().toLowerCase();
  const flash = 'flash attention: no score matrix, rows need no padding';
  if (name === 'eager' || name === 'sdpa')
    draft.understood(entry, name === 'eager' ? 'the whole score matrix' : 'no score matrix', { '/training/attention': name });
  else if (/flex/.test(name)) draft.understood(entry, 'flex attention', { '/training/attention': 'flex' });
  else if (/flash[_-]?attn|flash[_-]?attention|^flash$|^fa[234]$/.test(name)) {
    const version = /2|^flash$|^flash_attention$/.test(name) ? '' : ', read as version 2, which keeps the same tensors';
    (version ? draft.inferred : draft.understood).call(draft, entry, flash + version, { '/training/attention': 'flash_attention_2' });
  } else if (/xformers|sage|paged|unsloth|fp8/.test(name))
    draft.inferred(entry, 'no score matrix: read as SDPA', { '/training/attention': 'sdpa' });
  else draft.ignored(entry, 'no attention of this name is known here');
}

/** LoRA's settings by the names that PEFT and TRL give them. */
export function readLora(
  draft: Draft,
  from: Section,
  on: boolean,
  names: { rank: string; targets: string; dropout: string; dora: string; save: string },
): void {
  const off = (entry: Entry) => draft.ignored(entry, 'no adapters are trained by this file');
  from.integer(names.rank, (value, entry) =>
    on ? draft.understood(entry, 'rank of the adapters', { '/training/adapter/rank': value }) : off(entry),
  );
  const targets = from.entry(names.targets);
  if (targets) {
    const words = asWords(targets.value);
    if (!on) off(targets);
    else if (!words || words.length === 0) draft.wrong(targets, 'module names, or all-linear');
    else if (words.length === 1 && /^all([-_]linear)?$/.test(words[0] ?? ''))
      draft.understood(targets, 'every Linear but the head', { '/training/adapter/targets': 'all-linear' });
    else if (words.some((word) => /[*+?^$()|\\]/.test(word)))
      draft.ignored(targets, 'a pattern of names is not followed: list the modules');
    else draft.understood(targets, 'modules with adapters', { '/training/adapter/targets': words });
  }
  from.number(names.dropout, (value, entry) =>
    on ? draft.understood(entry, value > 0 ? 'a mask for each adapted input' : 'none', { '/training/adapter/dropout': value }) : off(entry),
  );
  from.flag(names.dora, (value, entry) =>
    on
      ? draft.understood(entry, value ? 'DoRA: a magnitude for each output, the weight’s norm each step' : 'plain LoRA', {
          '/training/adapter/dora': value,
        })
      : off(entry),
  );
  const save = from.entry(names.save);
  if (save) {
    const words = asWords(save.value);
    if (!on) off(save);
    else if (words) draft.understood(save, 'trained whole, beside the adapters', { '/training/adapter/modules_to_save': words });
    else draft.wrong(save, 'module names');
  }
}

/** load_in_4bit and load_in_8bit, with bitsandbytes' settings beside them. True: the base is quantised. */
export function readQuantisation(
  draft: Draft,
  from: Section,
  compute: Dtype,
  doubleByDefault: boolean,
  names = { double: 'use_bnb_nested_quant' },
): boolean {
  let bits: 4 | 8 | undefined;
  for (const [key, of] of [
    ['load_in_4bit', 4],
    ['load_in_8bit', 8],
  ] as const) {
    from.flag(key, (on, entry) => {
      if (on) bits = of;
      draft.understood(
        entry,
        on ? `the frozen base in ${of} bits (bitsandbytes)` : 'not quantised',
        on ? { '/training/base_quantization/bits': of } : {},
      );
    });
  }
  const off = (entry: Entry) => draft.ignored(entry, 'the base is not held in 4 bits');
  from.text('bnb_4bit_quant_type', (type, entry) => {
    if (bits !== 4) return off(entry);
    if (type !== 'nf4' && type !== 'fp4') return draft.wrong(entry, 'nf4 or fp4');
    draft.understood(entry, 'the table of 16 values', { '/training/base_quantization/type': type });
  });
  let double = doubleByDefault;
  for (const key of new Set([names.double, 'bnb_4bit_use_double_quant'])) {
    from.flag(key, (on, entry) => {
      double = on;
      if (bits === 4) draft.understood(entry, on ? 'scales in 8 bits themselves' : 'scales in fp32');
      else off(entry);
    });
  }
  let dtype = compute;
  from.text('bnb_4bit_compute_dtype', (text, entry) => {
    const named = dtypeNamed(text);
    if (!named) return draft.wrong(entry, 'bfloat16, float16 or float32');
    dtype = named;
    if (bits === 4) draft.understood(entry, 'what a layer is unpacked to');
    else off(entry);
  });
  from.text('bnb_4bit_quant_storage', (_, entry) => draft.ignored(entry, 'the same bytes under another dtype'));
  if (bits === 4) {
    draft.set('/training/base_quantization/type', draft.get('/training/base_quantization/type') ?? 'nf4');
    draft.set('/training/base_quantization/double_quant', double);
    draft.set('/training/base_quantization/compute_dtype', dtype);
  }
  return bits !== undefined;
}

const OBJECTIVES = [
  'grpo',
  'kto',
  'orpo',
  'cpo',
  'simpo',
  'rloo',
  'ppo',
  'reward',
  'rm',
  'ipo',
  'bco',
  'xpo',
  'gkd',
  'online_dpo',
  'nash_md',
  'prm',
  'ebft',
  'gdpo',
];

export function askObjective(draft: Draft, entry: Entry | undefined, name: string): void {
  const text = `${name.toUpperCase()} is not played yet: what is estimated is supervised fine-tuning on rows of this length`;
  if (entry) draft.ignored(entry, text);
  draft.asked('objective', `${text}. A reference or reward model and rollouts come on top.`, '/training/objective');
}

const TRL_NEUTRAL: Record<string, string> = {
  use_peft: '',
  lora_task_type: 'which head, not how large',
  loss_weights: 'numbers of the loss',
  max_prompt_length: 'a part of max_length',
  max_completion_length: 'of rollouts: not played',
  beta: 'a number of the loss',
  precompute_ref_log_probs: 'the reference runs before training: not played',
  disable_dropout: 'no dropout, as is played where the model has none',
  dataset_text_field: 'which column',
  pad_to_multiple_of: 'rows are as long as the longest that is allowed',
  eval_packing: 'evaluation only',
  ddp_broadcast_buffers: 'buffers are small, and made anew',
};

/** TRL's YAML or arguments, or plain TrainingArguments. `table` has them flat; `loraConfig`: from Python's LoraConfig. */
export function readTrainer(
  table: Table,
  source: string,
  known: Known,
  kind: 'trl' | 'trainer',
  calls: readonly string[] = [],
  objective = '',
): Import {
  const draft = new Draft(kind, source);
  draft.around = known.around;
  const from = new Section(table, draft);
  const trl = kind === 'trl';

  for (const key of ['model_name_or_path', 'model_name', 'model_id', 'model'])
    from.text(key, (name, entry) => readModelName(draft, entry, name, known));
  const kwargs = from.section('model_init_kwargs');

  let held: Dtype | undefined;
  let heldWhy = '';
  for (const section of [from, kwargs]) {
    for (const key of ['dtype', 'torch_dtype']) {
      section?.text(key, (text, entry) => {
        held = dtypeNamed(text);
        if (held) draft.understood(entry, 'what the model is loaded in');
        else if (text === 'auto') {
          held = 'bfloat16';
          heldWhy = ' (auto: the checkpoint’s dtype, bf16 for nearly all)';
          draft.inferred(entry, 'the checkpoint’s own dtype: bf16 for nearly all');
        } else draft.wrong(entry, 'bfloat16, float16, float32 or auto');
      });
    }
    section?.text('attn_implementation', (text, entry) => readAttention(draft, entry, text));
  }
  from.flag('use_flash_attention_2', (on, entry) =>
    draft.understood(entry, on ? 'flash attention' : 'not flash attention', on ? { '/training/attention': 'flash_attention_2' } : {}),
  );

  const part = readTrainerPart(draft, from, { checkpointingByDefault: trl, mixedByDefault: trl ? 'bfloat16' : null });

  let adapters = calls.some((name) => /^(Lora|Peft)/.test(name)) || ['r', 'lora_rank'].some((key) => from.has(key));
  from.flag('use_peft', (on, entry) => {
    adapters = on;
    draft.understood(entry, on ? 'LoRA adapters are trained, the base is frozen' : 'everything is trained');
  });
  if (!from.has('use_peft') && (from.has('lora_r') || from.has('lora_target_modules')) && calls.length === 0) {
    adapters = true;
    draft.assumed('use_peft', 'not said: LoRA’s settings are there, so it is taken as meant (TRL itself wants use_peft: true)');
  }
  for (const rank of ['r', 'lora_r', 'lora_rank']) {
    if (from.has(rank))
      readLora(draft, from, adapters, {
        rank,
        targets: 'lora_target_modules',
        dropout: 'lora_dropout',
        dora: 'use_dora',
        save: 'lora_modules_to_save',
      });
  }
  readLora(draft, from, adapters, {
    rank: 'lora_r',
    targets: 'lora_target_modules',
    dropout: 'lora_dropout',
    dora: 'use_dora',
    save: 'lora_modules_to_save',
  });
  readLora(draft, from, adapters, {
    rank: 'lora_r',
    targets: 'target_modules',
    dropout: 'lora_dropout',
    dora: 'use_dora',
    save: 'modules_to_save',
  });
  const quantised = readQuantisation(draft, from, held ?? part.mixed ?? 'float32', false);
  if (adapters || quantised) {
    if (!adapters) draft.assumed('method', 'a quantised base cannot be trained: LoRA adapters are taken as meant');
    draft.set('/training/method', 'lora');
    if (!draft.has('/training/adapter/rank')) {
      const rank = trl ? 16 : 8;
      draft.assumed('lora_r', `not said: ${rank}, ${trl ? 'TRL' : 'PEFT'}’s default`, { '/training/adapter/rank': rank });
    }
    if (!draft.has('/training/adapter/targets'))
      draft.assumed('lora_target_modules', 'not said: PEFT’s own choice for Llama-like models, q_proj and v_proj', {
        '/training/adapter/targets': ['q_proj', 'v_proj'],
      });
    // trl/trainer/sft_trainer.py: adapters of a quantised base are turned to bf16.
    if (quantised && trl)
      draft.assumed('adapters', 'TRL holds the adapters of a quantised base in bf16', { '/training/adapter/upcast': false });
  } else draft.set('/training/method', 'full');

  if (held === undefined) {
    held = trl && calls.length === 0 ? 'float32' : 'bfloat16';
    heldWhy =
      trl && calls.length === 0
        ? ' (TRL’s default dtype)'
        : ' (as the checkpoint is stored: Transformers 5 loads it so, and nearly all are bf16)';
  }
  settlePrecision(draft, { mixed: part.mixed, held, why: heldWhy, lora: adapters || quantised });

  readObjective(draft, from, part, calls, trl, objective);
  if (!draft.has('/parallel/data/degree')) {
    for (const key of ['world_size', 'nproc_per_node', 'num_processes', 'num_gpus']) {
      from.integer(key, (value, entry) => draft.understood(entry, 'ranks, a GPU each', { '/parallel/data/degree': value }));
    }
  }
  if (!draft.has('/parallel/data/degree')) draft.askGpus('The trainer’s arguments do not say it: the launcher does.');
  if (kwargs)
    ignoreRest(
      draft,
      kwargs,
      { use_cache: 'off while training', revision: 'which weights', low_cpu_mem_usage: 'the host’s memory while loading' },
      'from_pretrained',
    );
  ignoreRest(draft, from, TRL_NEUTRAL, trl ? 'TRL' : 'TrainingArguments');
  return draft.done();
}

/** Rows and their length, packing, and which loss. */
function readObjective(draft: Draft, from: Section, part: TrainerPart, calls: readonly string[], trl: boolean, said: string): void {
  let length: number | undefined;
  for (const key of ['max_length', 'max_seq_length', 'max_seq_len', 'model_max_length', 'cutoff_len', 'block_size']) {
    const entry = from.entry(key);
    if (!entry) continue;
    const value = asNumber(entry.value);
    if (value === undefined || !Number.isInteger(value) || value < 1) draft.wrong(entry, 'a whole number from 1');
    else {
      length = value;
      draft.understood(entry, 'tokens in a row at most: every row is taken to be that long', { '/training/sequence': value });
    }
  }
  if (length === undefined && trl) {
    length = 1024;
    draft.assumed('max_length', 'not said: 1,024, TRL’s default', { '/training/sequence': 1024 });
  } else if (length === undefined) {
    draft.asked('sequence', 'TrainingArguments do not say how long a row is: the tokenizer’s max_length does.', '/training/sequence');
  }

  const packing = from.flag('packing', (on, entry) =>
    draft.understood(entry, on ? 'rows are filled with several examples' : 'one example a row'),
  );
  const strategy = from.text('packing_strategy', (text, entry) => {
    if (!packing) draft.ignored(entry, 'nothing is packed');
    else
      draft.understood(entry, text === 'wrapped' ? 'examples are cut where a row ends' : 'examples stay whole, and their bounds are kept');
  });
  const free = from.flag('padding_free', (on, entry) =>
    draft.understood(entry, on ? 'the rows of a batch lie behind each other in one' : 'rows are padded'),
  );
  const batch = Number(draft.get('/training/micro_batch') ?? 1);
  // trl/trainer/sft_trainer.py: packing that keeps bounds implies padding_free, which lays the batch into one row.
  if ((free || (packing && strategy !== 'wrapped')) && length !== undefined && batch > 1) {
    draft.assumed('packing', `the ${batch} rows lie behind each other: one row of ${(batch * length).toLocaleString('en')} tokens`, {
      '/training/micro_batch': 1,
      '/training/sequence': batch * length,
    });
  }

  const trainer =
    calls
      .find((name) => /^(DPO|GRPO|KTO|ORPO|CPO|RLOO|PPO|Reward|Bco|BCO|XPO|GKD|OnlineDPO)/.test(name))
      ?.replace(/(Config|Trainer)$/, '') ??
    (said !== 'sft' && said
      ? said
      : ['num_generations', 'max_completion_length', 'reward_funcs'].some((key) => from.has(key))
        ? 'grpo'
        : undefined);
  const dpo =
    trainer?.toLowerCase() === 'dpo' ||
    // Of TRL's trainers only those for preferences have a beta.
    (trl && !trainer && from.has('beta') && !/kto|nll|dft/.test(String(from.peek('loss_type') ?? '')));
  const loss = from.entry('loss_type');
  if (dpo) {
    draft.assumed('objective', `DPO: ${batch} pairs are ${2 * batch} rows, chosen and rejected`, {
      '/training/objective': 'dpo',
      '/training/micro_batch': 2 * batch,
    });
    if (loss) draft.understood(loss, 'which loss over the log-probabilities');
  } else if (trainer && OBJECTIVES.includes(trainer.toLowerCase())) {
    askObjective(draft, undefined, trainer);
    if (loss) draft.ignored(loss, 'which loss, not what it holds');
  } else if (trl && !part.liger && !draft.has('/training/loss')) {
    // TRL 1.16 has the tiled head alone; "nll" and "chunked_nll" are two names of it (semantics/loops.md).
    if (loss) draft.understood(loss, 'TRL’s tiled head: no full logits', { '/training/loss': 'trl_tiled' });
    else draft.assumed('loss_type', 'not said: TRL’s tiled head, no full logits', { '/training/loss': 'trl_tiled' });
  } else if (loss) draft.understood(loss, 'which loss');
}
