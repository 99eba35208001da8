import { asWords, Draft, Section, type Entry, type Import } from './draft';
import { readModelName, type Known } from './models';
import { ignoreRest } from './neutral';
import { readOptimizer } from './optimizers';
import { readDeepspeed, readDeepspeedPath, readFsdp, readFsdpWords, settlePrecision, type Dtype } from './parallel';
import { askObjective, readAttention, readQuantisation } from './trainer';
import type { Table } from './tree';

// axolotl's YAML. Source: src/axolotl/utils/schemas/*.py, utils/config/__init__.py, core/builders/base.py, loaders/model.py.

const OWN: Record<string, string> = {
  base_model_config: 'the same model',
  lora_model_dir: 'which adapter, not how large',
  model_quantization_config: 'how a checkpoint in fewer bits is loaded: unpacked, to train it',
  model_quantization_config_kwargs: 'how a checkpoint in fewer bits is loaded: unpacked, to train it',
  lora_on_cpu: 'how the adapter is loaded',
  train_on_inputs: 'which tokens count',
  embeddings_skip_upcast: 'embeddings of a quantised base: not played',
  peft_autocast_adapter_dtype: '',
  max_packed_sequence_len: 'an old name of sample_packing',
  eval_sample_packing: 'evaluation only',
  eval_sequence_len: 'evaluation only',
  dpo_beta: 'a number of the loss',
  rl_beta: 'a number of the loss',
  beta: 'a number of the loss',
  unfrozen_parameters: 'which parameters are trained: all are, here',
  heads_k_stride: 'how ring attention goes round',
  ring_attn_func: 'how ring attention goes round',
  flash_attn_cross_entropy: 'flash-attn’s loss: not played',
  flash_attn_rms_norm: 'flash-attn’s norm: not played',
  flash_attn_fuse_mlp: 'flash-attn’s MLP: not played',
  flash_attn_fuse_qkv: 'flash-attn’s projection: not played',
  s2_attention: 'not played',
  relora: 'ReLoRA: not played',
  relora_steps: 'ReLoRA: not played',
  qat: 'quantisation-aware training: not played',
  quantization: 'after training',
  trl: 'settings of preference training',
  vllm: 'rollouts: not played',
  tiled_mlp: 'not played',
  tiled_mlp_num_shards: 'not played',
  layer_offloading: 'not played',
  lora_mlp_kernel: 'axolotl’s fused LoRA kernels: not played',
  lora_qkv_kernel: 'axolotl’s fused LoRA kernels: not played',
  lora_o_kernel: 'axolotl’s fused LoRA kernels: not played',
  lora_embedding_kernel: 'axolotl’s fused LoRA kernels: not played',
  torch_compile: 'torch.compile is not played: the step without it is',
  resize_token_embeddings_to_32x: 'adds up to 31 rows to the embedding',
  max_memory: 'where it is loaded',
  gpu_memory_limit: 'where it is loaded',
  overrides_of_model_config: 'changes of the model’s config.json: paste the changed one',
  overrides_of_model_kwargs: 'how it is loaded',
  model_config: 'changes of the model’s config.json: paste the changed one',
  include_tokens_per_second: 'logging',
  lisa_n_layers: 'LISA: not played',
  spectrum_top_fraction: 'which parameters are trained: all are, here',
  use_pose: 'what the rows say',
  weight_decay: 'no tensor of its own in a fused step',
  liger_layer_norm: 'no layer norm in models of this kind, mostly',
  liger_use_token_scaling: 'a number of the loss',
};

export function readAxolotl(table: Table, source: string, known: Known): Import {
  const draft = new Draft('axolotl', source);
  draft.around = known.around;
  const from = new Section(table, draft);

  from.text('base_model', (name, entry) => readModelName(draft, entry, name, known));

  const adapter = from.text('adapter', (text, entry) => {
    const name = text.toLowerCase();
    if (name === 'lora' || name === 'qlora')
      draft.understood(entry, 'LoRA adapters are trained, the base is frozen', { '/training/method': 'lora' });
    else if (name === 'llama-adapter') draft.ignored(entry, 'not played: LoRA is closest');
    else draft.wrong(entry, 'lora or qlora');
  });
  const lora = adapter !== undefined;
  if (!lora) draft.assumed('adapter', 'none: everything is trained', { '/training/method': 'full' });

  const mixed = readPrecision(draft, from);
  readAdapter(draft, from, lora);
  const quantised = readQuantisation(draft, from, mixed.held, true);
  if (adapter?.toLowerCase() === 'qlora' && !quantised) {
    draft.assumed('load_in_4bit', 'qlora: the base in 4 bits', {
      '/training/base_quantization/bits': 4,
      '/training/base_quantization/type': 'nf4',
      '/training/base_quantization/double_quant': true,
      '/training/base_quantization/compute_dtype': mixed.held,
    });
  } else if (quantised && draft.get('/training/base_quantization/bits') === 4) {
    draft.assumed('4-bit settings', 'NF4, scales in 8 bits themselves: axolotl’s choice');
  }
  from.flag('gptq', (on, entry) => on && draft.ignored(entry, 'GPTQ is not played: 4 bits of bitsandbytes are'));

  readRows(draft, from);
  from.integer('gradient_accumulation_steps', (value, entry) =>
    draft.understood(entry, 'micro-batches before each step', { '/training/accumulation': value }),
  );
  from.integer('batch_size', (_, entry) => draft.ignored(entry, 'rows of all ranks in a step'));

  from.text('optimizer', (name, entry) => readOptimizer(draft, entry, name));
  if (!draft.has('/training/optimizer/name') && !from.has('optimizer')) {
    draft.assumed('optimizer', 'not said: adamw_torch_fused, axolotl’s default', {
      '/training/optimizer/name': 'adamw',
      '/training/optimizer/implementation': 'fused',
    });
  }
  from.number('max_grad_norm', (norm, entry) =>
    draft.understood(entry, norm > 0 ? 'clipped to this norm' : 'not clipped', { '/training/max_grad_norm': norm > 0 ? norm : null }),
  );
  if (!draft.has('/training/max_grad_norm'))
    draft.assumed('max_grad_norm', 'not said: 1.0, Transformers’ default', { '/training/max_grad_norm': 1 });

  readCheckpointing(draft, from);
  readAttentions(draft, from);
  readLoss(draft, from);
  readSpread(draft, from);
  settlePrecision(draft, { mixed: mixed.mixed, held: mixed.held, why: ' (axolotl loads it so)', lora });
  from.text('rl', (name, entry) => {
    const kind = name.toLowerCase();
    if (kind !== 'dpo') return askObjective(draft, entry, name);
    const batch = Number(draft.get('/training/micro_batch') ?? 1);
    draft.understood(entry, `DPO: ${batch} pairs are ${2 * batch} rows, chosen and rejected`, {
      '/training/objective': 'dpo',
      '/training/micro_batch': 2 * batch,
    });
  });
  from.flag('reward_model', (on, entry) => on && askObjective(draft, entry, 'reward'));
  if (!draft.has('/parallel/data/degree')) draft.askGpus('axolotl’s file does not say it: the launcher does.');
  ignoreRest(draft, from, OWN, 'axolotl');
  return draft.done();
}

/** `mixed`: the Trainer's flag; `held`: cfg.torch_dtype, which the model is loaded in. */
function readPrecision(draft: Draft, from: Section): { mixed: Dtype | null; held: Dtype } {
  let mixed: Dtype | null = null;
  let held: Dtype | undefined;
  const bf16 = from.flagOr('bf16', ['auto', 'full'], (value, entry) => {
    if (value === false) return draft.understood(entry, 'no bf16');
    held = 'bfloat16';
    mixed = value === 'full' ? null : 'bfloat16';
    const text =
      value === 'auto' ? 'on: every GPU since Ampere has bf16' : value === 'full' ? 'everything in bf16, without autocast' : 'bf16';
    (value === 'auto' ? draft.inferred : draft.understood).call(draft, entry, text);
  });
  from.flag('fp16', (on, entry) => {
    if (on) {
      held = 'float16';
      mixed = 'float16';
    }
    draft.understood(entry, on ? 'fp16, with a loss scaler' : 'no fp16');
  });
  from.flag('bfloat16', (on, entry) => {
    if (on) held = 'bfloat16';
    draft.understood(entry, on ? 'loaded in bf16, without autocast' : 'no');
  });
  from.flag('float16', (on, entry) => {
    if (on) held = 'float16';
    draft.understood(entry, on ? 'loaded in fp16, without autocast' : 'no');
  });
  const fp32 = from.flag('float32', (on, entry) => draft.understood(entry, on ? 'everything in fp32' : 'no'));
  from.flag('fp8', (on, entry) => (on ? draft.ignored(entry, 'fp8 is not played yet: bf16 is') : draft.understood(entry, 'no fp8')));
  if (fp32) return { mixed: null, held: 'float32' };
  if (bf16 === undefined && held === undefined) {
    draft.assumed('bf16', 'not said: auto, which is bf16 on every GPU since Ampere');
    return { mixed: 'bfloat16', held: 'bfloat16' };
  }
  return { mixed, held: held ?? 'float32' };
}

function readAdapter(draft: Draft, from: Section, lora: boolean): void {
  const off = (entry: Entry) => draft.ignored(entry, 'no adapters are trained by this file');
  from.integer('lora_r', (value, entry) =>
    lora ? draft.understood(entry, 'rank of the adapters', { '/training/adapter/rank': value }) : off(entry),
  );
  const linear = from.flag('lora_target_linear', (on, entry) =>
    lora
      ? draft.understood(
          entry,
          on ? 'every Linear but the head' : 'only the modules that are named',
          on ? { '/training/adapter/targets': 'all-linear' } : {},
        )
      : off(entry),
  );
  const modules = from.entry('lora_target_modules');
  if (modules) {
    const words = asWords(modules.value);
    if (!lora) off(modules);
    else if (!words || words.length === 0) draft.wrong(modules, 'module names');
    else if (linear) draft.ignored(modules, 'lora_target_linear takes every Linear anyway');
    else if (words.length === 1 && /^all([-_]linear)?$/.test(words[0] ?? ''))
      draft.understood(modules, 'every Linear but the head', { '/training/adapter/targets': 'all-linear' });
    else if (words.some((word) => /[*+?^$()|\\]/.test(word)))
      draft.ignored(modules, 'a pattern of names is not followed: list the modules');
    else draft.understood(modules, 'modules with adapters', { '/training/adapter/targets': words });
  }
  from.number('lora_dropout', (value, entry) =>
    lora
      ? draft.understood(entry, value > 0 ? 'a mask for each adapted input' : 'none', { '/training/adapter/dropout': value })
      : off(entry),
  );
  from.flag('peft_use_dora', (on, entry) =>
    lora ? draft.understood(entry, on ? 'DoRA' : 'plain LoRA', { '/training/adapter/dora': on }) : off(entry),
  );
  from.words('lora_modules_to_save', (words, entry) =>
    lora ? draft.understood(entry, 'trained whole, beside the adapters', { '/training/adapter/modules_to_save': words }) : off(entry),
  );
  from.flag('peft_autocast_adapter_dtype', (on, entry) =>
    lora
      ? draft.understood(entry, on ? 'adapters in fp32' : 'adapters in the base’s dtype', { '/training/adapter/upcast': on })
      : off(entry),
  );
  if (!lora) return;
  if (!draft.has('/training/adapter/rank')) draft.asked('lora_r', 'An adapter, but no rank of it.', '/training/adapter/rank');
  if (!draft.has('/training/adapter/targets'))
    draft.assumed('lora_target_modules', 'not said: PEFT’s own choice for Llama-like models, q_proj and v_proj', {
      '/training/adapter/targets': ['q_proj', 'v_proj'],
    });
}

/** With sample packing the rows of a micro-batch are laid into one: [1, micro_batch_size × sequence_len]. */
function readRows(draft: Draft, from: Section): void {
  const length =
    from.integer('sequence_len', (value, entry) => draft.understood(entry, 'tokens in a row', { '/training/sequence': value })) ?? 512;
  if (!draft.has('/training/sequence')) draft.assumed('sequence_len', 'not said: 512, axolotl’s default', { '/training/sequence': 512 });
  const batch =
    from.integer('micro_batch_size', (value, entry) =>
      draft.understood(entry, 'rows that one GPU works on at once', { '/training/micro_batch': value }),
    ) ?? 1;
  if (!draft.has('/training/micro_batch'))
    draft.assumed('micro_batch_size', 'not said: 1, axolotl’s default', { '/training/micro_batch': 1 });
  const packed = from.flag('sample_packing', (on, entry) =>
    draft.understood(entry, on ? 'rows are filled with several examples' : 'one example a row'),
  );
  from.flagOr('batch_flattening', ['auto'], (_, entry) => draft.ignored(entry, 'rows without padding: every row is taken to be full'));
  if (packed && batch > 1) {
    draft.assumed(
      'packed batch',
      `the ${batch} rows of ${length.toLocaleString('en')} lie behind each other: one row of ${(batch * length).toLocaleString('en')} tokens, by axolotl’s design`,
      {
        '/training/micro_batch': 1,
        '/training/sequence': batch * length,
      },
    );
  }
  from.flag('pad_to_sequence_len', (on, entry) =>
    draft.understood(entry, on ? 'every row is full length' : 'rows end with their longest: every row is taken to be full'),
  );
}

function readCheckpointing(draft: Draft, from: Section): void {
  let reentrant = false;
  const kwargs = from.section('gradient_checkpointing_kwargs');
  kwargs?.flag('use_reentrant', (on, entry) => {
    reentrant = on;
    draft.understood(entry, on ? 'the older kind of checkpointing' : 'torch’s newer kind');
  });
  if (kwargs) ignoreRest(draft, kwargs, {}, 'torch.utils.checkpoint');
  from.flagOr('gradient_checkpointing', ['offload', 'offload_disk', 'unsloth'], (value, entry) => {
    const on = value !== false;
    draft.understood(entry, on ? 'each layer again in backward' : 'everything is kept for backward', {
      '/training/checkpointing': on ? (reentrant ? 'full_reentrant' : 'full') : 'none',
      ...(typeof value === 'string' ? { '/parallel/offload/activations': 'cpu' } : {}),
    });
  });
  from.flagOr('activation_offloading', ['legacy', 'disk', 'hidden_states'], (value, entry) =>
    draft.understood(
      entry,
      value === false ? 'activations stay' : 'kept activations go to the host',
      value === false ? {} : { '/parallel/offload/activations': 'cpu' },
    ),
  );
  const selective = from.entry('selective_checkpointing');
  if (selective) draft.understood(selective, 'some outputs are kept', { '/training/checkpointing': 'selective' });
  if (!draft.has('/training/checkpointing'))
    draft.assumed('gradient_checkpointing', 'not said: off, axolotl’s default', { '/training/checkpointing': 'none' });
}

function readAttentions(draft: Draft, from: Section): void {
  for (const key of ['attn_implementation', 'attention']) from.text(key, (text, entry) => readAttention(draft, entry, text));
  for (const [key, name] of [
    ['flash_attention', 'flash_attention_2'],
    ['flex_attention', 'flex'],
    ['sdp_attention', 'sdpa'],
    ['eager_attention', 'eager'],
    ['xformers_attention', 'xformers'],
    ['sage_attention', 'sage'],
    ['flash_optimum', 'sdpa'],
  ] as const) {
    from.flag(key, (on, entry) => (on ? readAttention(draft, entry, name) : draft.understood(entry, 'not this one')));
  }
  if (!draft.has('/training/attention'))
    draft.assumed('attention', 'not said: what Transformers takes by itself, SDPA', { '/training/attention': 'sdpa' });
}

function readLoss(draft: Draft, from: Section): void {
  const fused = ['liger_fused_linear_cross_entropy', 'cut_cross_entropy'];
  for (const key of fused) {
    from.flag(key, (on, entry) =>
      draft.understood(
        entry,
        on ? (key === 'cut_cross_entropy' ? 'no full logits: read as Liger’s fused loss' : 'no full logits') : 'no',
        on ? { '/training/loss': 'liger_fused_linear' } : {},
      ),
    );
  }
  from.flag('liger_cross_entropy', (on, entry) =>
    draft.understood(
      entry,
      on ? 'the loss over the logits in place' : 'no',
      on && !draft.has('/training/loss') ? { '/training/loss': 'liger_cross_entropy' } : {},
    ),
  );
  from.flag('chunked_cross_entropy', (on, entry) =>
    draft.understood(entry, on ? 'the loss over pieces of the logits' : 'no', on ? { '/training/loss': 'chunked' } : {}),
  );
  from.integer('chunked_cross_entropy_num_chunks', (_, entry) => draft.ignored(entry, 'how many pieces: 1,024 tokens each are played'));
  for (const [key, kernel] of [
    ['liger_rms_norm', 'rms_norm'],
    ['liger_rope', 'rope'],
    ['liger_glu_activation', 'swiglu'],
    ['liger_swiglu', 'swiglu'],
  ] as const) {
    from.flag(key, (on, entry) =>
      draft.understood(entry, on ? 'Liger’s kernel' : 'Transformers’ own', on ? { [`/training/kernels/liger/${kernel}`]: true } : {}),
    );
  }
}

function readSpread(draft: Draft, from: Section): void {
  const deepspeed = from.entry('deepspeed');
  if (deepspeed?.value.kind === 'table') {
    const section = new Section(deepspeed.value, draft, 'deepspeed.');
    readDeepspeed(draft, section);
    ignoreRest(draft, section, {}, 'DeepSpeed');
  } else if (deepspeed?.value.kind === 'scalar' && typeof deepspeed.value.value === 'string')
    readDeepspeedPath(draft, deepspeed, deepspeed.value.value);
  else if (deepspeed) draft.wrong(deepspeed, 'a path or DeepSpeed’s settings');

  let said: 1 | 2 | undefined;
  from.integer('fsdp_version', (value, entry) => {
    if (value !== 1 && value !== 2) return draft.wrong(entry, '1 or 2');
    said = value;
    draft.understood(entry, `FSDP${value}`);
  });
  const fsdp = from.entry('fsdp');
  const config = from.section('fsdp_config');
  if (config || fsdp) {
    readFsdp(draft, config, { version: 1, versionWhy: 'axolotl’s default where fsdp_version is absent', said });
    const words = fsdp && asWords(fsdp.value);
    if (words) readFsdpWords(draft, fsdp, words);
    else if (fsdp) draft.wrong(fsdp, 'words such as full_shard, auto_wrap');
  }
  const replicate =
    from.integer('dp_replicate_size', (value, entry) =>
      draft.understood(entry, 'copies of the sharded model', value > 1 ? { '/parallel/data/replicate': value } : {}),
    ) ?? 1;
  from.integer('dp_shard_size', (value, entry) =>
    draft.understood(entry, 'ranks that a copy is cut among', { '/parallel/data/degree': value * replicate }),
  );
  from.integer('tensor_parallel_size', (value, entry) =>
    draft.understood(entry, 'tensor-parallel ranks', value > 1 ? { '/parallel/tensor/degree': value } : {}),
  );
  for (const key of ['sequence_parallel_degree', 'context_parallel_size']) {
    from.integer(key, (value, entry) =>
      draft.understood(
        entry,
        value > 1 ? 'ranks that share a row (ring attention)' : 'every rank has its own rows',
        value > 1 ? { '/parallel/context/degree': value } : {},
      ),
    );
  }
  from.integer('world_size', (value, entry) => draft.understood(entry, 'ranks', { '/parallel/data/degree': value }));
  from.flag('ddp', (on, entry) => draft.understood(entry, on ? 'DDP' : 'no', on ? { '/parallel/data/kind': 'ddp' } : {}));
  from.integer('ddp_bucket_cap_mb', (value, entry) =>
    draft.understood(entry, 'MiB in a bucket of gradients', { '/parallel/data/bucket_cap_mb': value }),
  );
  from.flag('ddp_find_unused_parameters', (on, entry) =>
    draft.understood(entry, on ? 'looks for unused parameters' : 'every parameter is used', {
      '/parallel/data/find_unused_parameters': on,
    }),
  );
}
