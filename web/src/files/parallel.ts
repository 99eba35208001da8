import { asFlag, asText, Section, type Draft, type Entry } from './draft';
import { ignoreRest } from './neutral';
import { shorten } from './tree';

// What several tools write the same way: FSDP's and DeepSpeed's settings, and what the precision comes to under them.

export type Dtype = 'float32' | 'bfloat16' | 'float16';

export function dtypeNamed(text: string): Dtype | undefined {
  const name = text
    .trim()
    .toLowerCase()
    .replace(/^torch\./, '');
  if (['bf16', 'bfloat16'].includes(name)) return 'bfloat16';
  if (['fp16', 'float16', 'half', '16'].includes(name)) return 'float16';
  return ['fp32', 'float32', 'float', '32'].includes(name) ? 'float32' : undefined;
}

/** The data-parallel kind that the spec has so far, in words of its family. */
export function family(draft: Draft): 'deepspeed' | 'fsdp' | 'other' {
  const kind = draft.dataKind;
  return /^zero\d/.test(kind) ? 'deepspeed' : kind.startsWith('fsdp') ? 'fsdp' : 'other';
}

/** `mixed`: the 16-bit dtype of mixed precision; `held`: what the model is loaded in, with the reason. */
export interface Precision {
  mixed: Dtype | null;
  held: Dtype | undefined;
  why: string;
  lora: boolean;
}

/** Which dtype holds the weights and which computes: the same flags mean different things under DeepSpeed, FSDP and neither. */
export function settlePrecision(draft: Draft, { mixed, held, why, lora }: Precision): void {
  const where = family(draft);
  if (where === 'deepspeed') {
    const weights = mixed ?? held ?? 'float32';
    const master =
      weights === 'float32'
        ? 'fp32 throughout'
        : `weights and gradients in ${brief(weights)}; fp32 master weights lie with the optimizer states, cut by ZeRO`;
    draft.assumed('precision', `DeepSpeed holds the model in what it trains in: ${master}`, {
      '/training/weights': weights,
      '/training/autocast': null,
    });
    return;
  }
  if (where === 'fsdp') {
    const weights = lora ? (held ?? mixed ?? 'float32') : mixed ? 'float32' : (held ?? 'float32');
    const fsdp1 = draft.dataKind === 'fsdp1';
    const computed = mixed ?? (weights === 'float32' ? null : weights);
    const text =
      mixed && !lora
        ? `trained weights held in fp32 (accelerate raises them), gathered, computed and reduced in ${brief(mixed)}`
        : `held in ${brief(weights)}${computed ? `, gathered and computed in ${brief(computed)}` : ''}`;
    draft.assumed('precision', text, {
      '/training/weights': weights,
      '/training/autocast': null,
      ...(computed || !fsdp1 ? { '/parallel/data/param_dtype': computed } : {}),
      ...(mixed ? { '/parallel/data/reduce_dtype': mixed } : {}),
    });
    return;
  }
  const weights = held ?? 'float32';
  const text = mixed
    ? `weights held in ${brief(weights)}${why}, computed under ${brief(mixed)} autocast`
    : `held and computed in ${brief(weights)}${why}`;
  draft.assumed('precision', text, {
    '/training/weights': weights,
    '/training/autocast': mixed,
    ...(mixed === 'float16' ? { '/training/grad_scaler': true } : {}),
  });
}

export function brief(dtype: Dtype): string {
  return { float32: 'fp32', bfloat16: 'bf16', float16: 'fp16' }[dtype];
}

// FSDP

const FSDP1_ONLY = [
  'sharding_strategy',
  'backward_prefetch',
  'forward_prefetch',
  'use_orig_params',
  'sync_module_states',
  'limit_all_gathers',
];
const FSDP_NEUTRAL: Record<string, string> = {
  auto_wrap_policy: 'one unit a decoder layer is what is played',
  transformer_layer_cls_to_wrap: 'one unit a decoder layer is what is played',
  transformer_cls_names_to_wrap: 'one unit a decoder layer is what is played',
  min_num_params: 'units of a size are not played: one a decoder layer is',
  sync_module_states: 'what is loaded first on rank 0, not what the step holds',
  state_dict_type: 'how it is saved',
  final_state_dict_type: 'how it is saved',
  xla: 'TPUs only',
  xla_fsdp_v2: 'TPUs only',
  xla_fsdp_grad_ckpt: 'TPUs only',
  mixed_precision_policy: 'the precision of the trainer is taken',
  enable_fsdp_symm_mem: 'NCCL’s buffers lie outside the allocator',
};

export const STRATEGIES: Record<string, { strategy: string; reshard: boolean }> = {
  FULL_SHARD: { strategy: 'FULL_SHARD', reshard: true },
  SHARD_GRAD_OP: { strategy: 'SHARD_GRAD_OP', reshard: false },
  NO_SHARD: { strategy: 'NO_SHARD', reshard: false },
  HYBRID_SHARD: { strategy: 'HYBRID_SHARD', reshard: true },
  HYBRID_SHARD_ZERO2: { strategy: '_HYBRID_SHARD_ZERO2', reshard: false },
};
const BY_NUMBER = ['', 'FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD', 'HYBRID_SHARD', 'HYBRID_SHARD_ZERO2'];

export interface FsdpHints {
  version: 1 | 2; // where nothing says which
  versionWhy: string;
  said?: 1 | 2 | undefined; // at another place in the file
}

/** fsdp_config, with or without "fsdp_" before its keys. Sets the kind and its options; false: it is switched off. */
export function readFsdp(draft: Draft, from: Section | undefined, hints: FsdpHints): void {
  const keyOf = (name: string) => (from?.has(`fsdp_${name}`) ? `fsdp_${name}` : name);
  const has = (name: string) => from?.has(keyOf(name)) ?? false;

  let version = hints.said;
  for (const key of ['fsdp_version', 'version']) {
    from?.integer(key, (value, entry) => {
      if (value !== 1 && value !== 2) return draft.wrong(entry, '1 or 2');
      version = value;
      draft.understood(entry, `FSDP${value}: ${value === 2 ? 'each parameter cut by itself' : 'flat parameters, one a layer'}`);
    });
  }
  if (!version) {
    const only = FSDP1_ONLY.filter(has);
    version = only.length > 0 ? 1 : hints.version;
    draft.assumed(
      'FSDP version',
      only.length > 0
        ? `FSDP1: ${only.slice(0, 2).join(', ')} ${only.length > 1 ? 'are' : 'is'} of its settings`
        : `FSDP${version}: ${hints.versionWhy}`,
    );
  }
  draft.set('/parallel/data/kind', `fsdp${version}`);

  const strategy = (entry: Entry, text: string) => {
    const name = text
      .toUpperCase()
      .replace(/^_/, '')
      .replace(/^\d$/, (digit) => BY_NUMBER[Number(digit)] ?? digit);
    const row = Object.hasOwn(STRATEGIES, name) ? STRATEGIES[name] : undefined;
    if (!row) return draft.wrong(entry, `one of ${Object.keys(STRATEGIES).join(', ')}`);
    setStrategy(draft, entry, row);
  };
  from?.text(keyOf('sharding_strategy'), (text, entry) => strategy(entry, text));
  const reshard = from?.entry(keyOf('reshard_after_forward'));
  if (reshard) {
    const flag = asFlag(reshard.value);
    if (flag === undefined) strategy(reshard, asText(reshard.value) ?? '');
    else setStrategy(draft, reshard, flag ? STRATEGIES.FULL_SHARD! : STRATEGIES.SHARD_GRAD_OP!);
  }
  for (const name of ['offload_params', 'cpu_offload']) {
    from?.flag(keyOf(name), (on, entry) => setFsdpOffload(draft, entry, on));
  }
  from?.flag(keyOf('use_orig_params'), (on, entry) => {
    if (version === 2) return draft.ignored(entry, 'FSDP2 has no such choice');
    draft.understood(entry, on ? 'gradients are views of the flat ones' : 'one flat parameter a unit, as the optimizer sees it', {
      '/parallel/data/use_orig_params': on,
    });
  });
  from?.text(keyOf('backward_prefetch'), (text, entry) => {
    const name = text.toUpperCase();
    if (!['BACKWARD_PRE', 'BACKWARD_POST'].includes(name))
      return draft.ignored(entry, 'no prefetch in backward: one unit fewer is gathered at a time than is played');
    draft.understood(
      entry,
      name === 'BACKWARD_PRE' ? 'two units are gathered at once in backward' : 'the next unit is gathered after this one’s gradients',
      {
        '/parallel/data/backward_prefetch': name,
      },
    );
  });
  from?.flag(keyOf('forward_prefetch'), (on, entry) => {
    draft.understood(
      entry,
      on ? 'the next unit is gathered during forward' : 'no unit is gathered ahead in forward',
      version === 1 ? { '/parallel/data/forward_prefetch': on } : {},
    );
  });
  from?.flag(keyOf('cpu_ram_efficient_loading'), (on, entry) => {
    draft.understood(
      entry,
      on ? 'one process of a node reads the checkpoint' : 'each process of a node reads the checkpoint',
      { '/parallel/data/cpu_ram_efficient_loading': on },
    );
  });
  from?.flag(keyOf('limit_all_gathers'), (on, entry) => {
    draft.understood(entry, 'when the host waits, not what it holds', version === 1 ? { '/parallel/data/limit_all_gathers': on } : {});
  });
  from?.flag(keyOf('cpu_offload_pin_memory'), (on, entry) =>
    draft.understood(entry, 'of what is offloaded', { '/parallel/data/pin_memory': on }),
  );
  from?.flag(keyOf('activation_checkpointing'), (on, entry) => {
    draft.understood(
      entry,
      on ? 'each layer again in backward' : 'no checkpointing by FSDP',
      on ? { '/training/checkpointing': 'full' } : {},
    );
  });
  if (from) {
    const own = { ...FSDP_NEUTRAL };
    for (const [name, why] of Object.entries(FSDP_NEUTRAL)) own[`fsdp_${name}`] = why;
    ignoreRest(draft, from, own, 'FSDP');
  }
}

function setStrategy(draft: Draft, entry: Entry, { strategy, reshard }: { strategy: string; reshard: boolean }): void {
  const kind = draft.get('/parallel/data/kind');
  const words = reshard ? 'gathered weights are freed after forward (ZeRO-3)' : 'gathered weights stay until backward (ZeRO-2)';
  if (strategy === 'NO_SHARD') return draft.understood(entry, 'nothing is cut: DDP', { '/parallel/data/kind': 'ddp' });
  if (kind === 'fsdp2') return draft.understood(entry, words, { '/parallel/data/reshard_after_forward': reshard });
  draft.understood(entry, words, { '/parallel/data/strategy': strategy });
}

export function setFsdpOffload(draft: Draft, entry: Entry, on: boolean): void {
  if (!on) return draft.understood(entry, 'everything stays on the GPU');
  draft.understood(entry, 'parameters, gradients and optimizer states live in the host’s memory', {
    '/parallel/offload/parameters': 'cpu',
    '/parallel/offload/optimizer': 'cpu',
  });
}

/** The Trainer's and axolotl's `fsdp: full_shard auto_wrap offload`. */
export function readFsdpWords(draft: Draft, entry: Entry, words: string[]): void {
  let said = '';
  for (const word of words) {
    const name = word.toLowerCase();
    if (name === 'offload') {
      draft.set('/parallel/offload/parameters', 'cpu');
      draft.set('/parallel/offload/optimizer', 'cpu');
      said += ', in the host’s memory';
    } else if (['full_shard', 'shard_grad_op', 'no_shard', 'hybrid_shard', 'hybrid_shard_zero2'].includes(name)) {
      const row = STRATEGIES[name.toUpperCase()];
      if (!row) continue;
      if (row.strategy === 'NO_SHARD') draft.set('/parallel/data/kind', 'ddp');
      else if (draft.get('/parallel/data/kind') === 'fsdp2') draft.set('/parallel/data/reshard_after_forward', row.reshard);
      else draft.set('/parallel/data/strategy', row.strategy);
      said += `, ${name.replaceAll('_', ' ')}`;
    } else if (!['auto_wrap', 'true', 'false'].includes(name)) {
      draft.faults.push({
        line: entry.value.line,
        key: entry.key,
        value: shorten(word),
        message: 'must be words of full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, offload, auto_wrap',
      });
    }
  }
  const at = ['kind', 'strategy', 'reshard_after_forward'].flatMap((key) =>
    draft.has(`/parallel/data/${key}`) ? [`/parallel/data/${key}`] : [],
  );
  draft.understood(entry, `FSDP${said}`, Object.fromEntries(at.map((one) => [one, draft.get(one) ?? null])));
}

// DeepSpeed

const BYTES_NEUTRAL: Record<string, string> = {
  overlap_comm: 'a second bucket while one is on its way',
  contiguous_gradients: 'gradients lie in one buffer while they are reduced, as is played',
  reduce_scatter: 'how gradients are reduced, not what is held',
  allgather_partitions: 'how parameters are gathered, not what is held',
  round_robin_gradients: 'which rank reduces what first',
  ignore_unused_parameters: 'every parameter is used in the step',
  sub_group_size: 'how many parameters one step of the optimizer takes at once, with offload',
  load_from_fp32_weights: 'how it is loaded',
  elastic_checkpoint: 'how it is saved',
  memory_efficient_linear: 'DeepSpeed’s own linear: not played',
  stage3_max_reuse_distance: 'when a gathered parameter is freed: played as DeepSpeed does by itself',
  max_reuse_distance: 'when a gathered parameter is freed: played as DeepSpeed does by itself',
  zero_hpz_partition_size: 'ZeRO++: not played',
  zero_quantized_weights: 'ZeRO++: not played',
  zero_quantized_gradients: 'ZeRO++: not played',
  leaf_module: 'whole modules gathered at once: not played',
};
const SIZES = [
  'reduce_bucket_size',
  'allgather_bucket_size',
  'stage3_prefetch_bucket_size',
  'prefetch_bucket_size',
  'stage3_param_persistence_threshold',
  'param_persistence_threshold',
  'stage3_max_live_parameters',
  'max_live_parameters',
  'model_persistence_threshold',
  'stage3_model_persistence_threshold',
];

/** The stage, with what it cuts. */
export function setZeroStage(draft: Draft, entry: Entry, stage: number, inferred = false): void {
  const say = inferred ? draft.inferred.bind(draft) : draft.understood.bind(draft);
  if (stage === 0) return say(entry, 'ZeRO off: plain data parallelism', { '/parallel/data/kind': 'ddp' });
  const cut = [
    '',
    'optimizer states are cut',
    'optimizer states and gradients are cut',
    'optimizer states, gradients and parameters are cut',
  ][stage];
  say(entry, `ZeRO-${stage}: ${cut}${inferred ? ' (read off the name of the file)' : ''}`, { '/parallel/data/kind': `zero${stage}` });
}

/** A file that is only named: what its name says. */
export function readDeepspeedPath(draft: Draft, entry: Entry, path: string): void {
  const name = path.toLowerCase().split(/[\\/]/).at(-1) ?? '';
  const stage = /(?:z|zero|stage)[_-]?([0-3])(?!\d)/.exec(name)?.[1];
  if (stage === undefined) {
    draft.ignored(entry, 'a DeepSpeed file that is not here and whose name says no stage: drop it, too');
    draft.asked('ZeRO stage', `The DeepSpeed settings are in “${shorten(path, 60)}”: drop that file, too.`, '/parallel/data/kind');
    return;
  }
  setZeroStage(draft, entry, Number(stage), true);
  if (!name.includes('offload')) return;
  const params = Number(stage) === 3 && !/offload_(opt|optim)/.test(name);
  const optimizer = !/offload_param/.test(name);
  if (params) draft.set('/parallel/offload/parameters', 'cpu');
  if (optimizer) draft.set('/parallel/offload/optimizer', 'cpu');
  draft.assumed(
    'offload',
    `its name says offload: ${[params && 'parameters', optimizer && 'optimizer states'].filter(Boolean).join(' and ')} in the host’s memory`,
  );
}

/** offload_optimizer, offload_param: cpu or nvme are the same to the GPU. Parameters are offloaded by stage 3 alone. */
export function setZeroOffload(
  draft: Draft,
  entry: Entry,
  what: 'optimizer' | 'parameters',
  device: string,
  stage: number | undefined,
): void {
  const name = device.toLowerCase();
  if (name === 'none' || name === 'null')
    return draft.understood(entry, `${what === 'optimizer' ? 'optimizer states' : 'parameters'} stay on the GPU`);
  if (name !== 'cpu' && name !== 'nvme') return draft.wrong(entry, 'cpu, nvme or none');
  if (what === 'parameters' && stage !== undefined && stage < 3) {
    return draft.ignored(
      entry,
      `offload of parameters works with ZeRO-3 only; under ZeRO-${stage} every rank holds all of them on its GPU, and DeepSpeed ignores this`,
    );
  }
  const words = name === 'nvme' ? 'on NVMe, by way of the host: to the GPU the same as in its memory' : 'in the host’s memory';
  draft.understood(entry, `${what === 'optimizer' ? 'optimizer states' : 'parameters'} ${words}`, { [`/parallel/offload/${what}`]: 'cpu' });
}

/** DeepSpeed's own JSON, at the top or inside another file. */
export function readDeepspeed(draft: Draft, from: Section): { mixed: Dtype | null | undefined } {
  const auto = (key: string, what: string, read: (entry: Entry) => void, at: Section = from) => {
    const entry = at.entry(key);
    if (!entry) return;
    if (asText(entry.value) === 'auto')
      draft.ignored(entry, `auto: ${what} comes from the trainer’s own arguments; what is chosen here stays`);
    else read(entry);
  };
  const whole = (entry: Entry, use: (value: number) => void) => {
    const number = entry.value.kind === 'scalar' ? Number(entry.value.value) : NaN;
    if (Number.isInteger(number) && number >= 1) use(number);
    else draft.wrong(entry, 'a whole number from 1, or auto');
  };

  const zero = from.section('zero_optimization');
  let stage: number | undefined;
  zero?.integer(
    'stage',
    (value, entry) => {
      if (value > 3) return draft.wrong(entry, '0, 1, 2 or 3');
      stage = value;
      setZeroStage(draft, entry, value);
    },
    0,
  );
  if (!zero) {
    draft.assumed('zero_optimization', 'not there: ZeRO off, plain data parallelism', { '/parallel/data/kind': 'ddp' });
  } else if (stage === undefined && !draft.has('/parallel/data/kind')) {
    stage = 0;
    draft.assumed('zero_optimization.stage', 'not said: 0, plain data parallelism', { '/parallel/data/kind': 'ddp' });
  }

  auto('train_micro_batch_size_per_gpu', 'the batch', (entry) =>
    whole(entry, (value) => draft.understood(entry, 'rows that one GPU works on at once', { '/training/micro_batch': value })),
  );
  auto('gradient_accumulation_steps', 'the accumulation', (entry) =>
    whole(entry, (value) => draft.understood(entry, 'micro-batches before each step', { '/training/accumulation': value })),
  );
  auto('train_batch_size', 'the batch', (entry) =>
    whole(entry, (value) => {
      const micro = Number(draft.get('/training/micro_batch') ?? 0);
      const accumulation = Number(draft.get('/training/accumulation') ?? 0);
      const ranks = value / (micro * accumulation);
      if (Number.isInteger(ranks) && ranks >= 1)
        draft.understood(entry, `${value} = ${micro} × ${accumulation} × ${ranks} ranks`, { '/parallel/data/degree': ranks });
      else draft.ignored(entry, 'rows of all ranks in a step; how they are divided it does not say');
    }),
  );
  auto('gradient_clipping', 'the norm', (entry) => {
    const norm = entry.value.kind === 'scalar' ? Number(entry.value.value) : NaN;
    if (!(norm >= 0)) return draft.wrong(entry, 'a number from 0, or auto');
    draft.understood(entry, norm > 0 ? 'clipped to this norm, inside DeepSpeed’s step' : 'not clipped', {
      '/training/max_grad_norm': norm > 0 ? norm : null,
    });
  });

  let mixed: Dtype | null | undefined;
  for (const [key, dtype] of [
    ['bf16', 'bfloat16'],
    ['bfloat16', 'bfloat16'],
    ['fp16', 'float16'],
  ] as const) {
    const section = from.section(key);
    if (!section) continue;
    auto(
      'enabled',
      'the precision',
      (entry) => {
        const on = asFlag(entry.value);
        if (on === undefined) return draft.wrong(entry, 'true, false or auto');
        if (on) mixed = dtype;
        else mixed ??= null;
        draft.understood(entry, on ? `weights and gradients in ${brief(dtype)}, master weights in fp32` : `${brief(dtype)} off`);
      },
      section,
    );
    ignoreRest(draft, section, { auto_cast: 'how inputs are cast' }, 'DeepSpeed');
  }

  if (zero) {
    for (const [key, what] of [
      ['offload_optimizer', 'optimizer'],
      ['offload_param', 'parameters'],
    ] as const) {
      const section = zero.section(key);
      if (!section) continue;
      section.text('device', (device, entry) => setZeroOffload(draft, entry, what, device, stage));
      section.flag('pin_memory', (on, entry) => {
        if (draft.has(`/parallel/offload/${what}`))
          draft.understood(entry, 'pinned pages of the host', { '/parallel/data/pin_memory': on });
        else draft.ignored(entry, 'nothing is offloaded');
      });
      ignoreRest(
        draft,
        section,
        {
          nvme_path: 'where on disk',
          ratio: 'a share of the states only: played as all of them',
          buffer_count: 'buffers of the host',
          buffer_size: 'buffers of the host',
          max_in_cpu: 'the host’s memory',
        },
        'DeepSpeed',
      );
    }
    for (const [key, what] of [
      ['cpu_offload', 'optimizer'],
      ['cpu_offload_params', 'parameters'],
      ['cpu_offload_param', 'parameters'],
    ] as const) {
      zero.flag(key, (on, entry) => setZeroOffload(draft, entry, what, on ? 'cpu' : 'none', stage));
    }
    let automatic = false;
    for (const key of SIZES) {
      const entry = zero.entry(key);
      if (!entry) continue;
      if (asText(entry.value) === 'auto') {
        automatic = true;
        draft.understood(entry, 'auto: Transformers’ own size, from the hidden size', { '/parallel/data/auto_buckets': true });
      } else {
        const elements = entry.value.kind === 'scalar' ? Number(entry.value.value) : NaN;
        if (!(elements >= 0)) draft.wrong(entry, 'a number of elements, or auto');
        else if (key === 'reduce_bucket_size')
          draft.understood(entry, 'elements in a bucket', { '/parallel/data/zero_optimization/reduce_bucket_size': Math.round(elements) });
        else draft.ignored(entry, 'a size in elements that is played as DeepSpeed’s default');
      }
    }
    if (!automatic && stage !== 0) draft.set('/parallel/data/auto_buckets', false);
    ignoreRest(draft, zero, BYTES_NEUTRAL, 'DeepSpeed');
  }

  const optimizer = from.section('optimizer');
  if (optimizer) {
    optimizer.text('type', (type, entry) => {
      const name = { adam: 'adamw', adamw: 'adamw', onebitadam: 'adamw', adagrad: 'adagrad', lion: 'lion', sgd: 'sgd', muon: 'muon' }[
        type.toLowerCase()
      ];
      if (name)
        draft.understood(entry, `the optimizer: ${name}`, {
          '/training/optimizer/name': name,
          '/training/optimizer/implementation': 'fused',
        });
      else draft.ignored(entry, 'this optimizer is not played; the one chosen before stays');
    });
    ignoreRest(
      draft,
      optimizer,
      { params: 'how far a step goes, not what it holds', legacy_fusion: 'how the kernel is called' },
      'DeepSpeed',
    );
  }
  const checkpointing = from.section('activation_checkpointing');
  if (checkpointing) {
    checkpointing.flag('cpu_checkpointing', (on, entry) =>
      draft.understood(
        entry,
        on ? 'kept inputs go to the host' : 'kept inputs stay on the GPU',
        on ? { '/parallel/offload/activations': 'cpu' } : {},
      ),
    );
    ignoreRest(
      draft,
      checkpointing,
      {
        partition_activations: 'among tensor-parallel ranks: not played',
        contiguous_memory_optimization: 'where copies lie',
        number_checkpoints: 'where copies lie',
        synchronize_checkpoint_boundary: 'when it waits',
        profile: 'timing',
      },
      'DeepSpeed',
    );
  }
  const tensor = from.section('tensor_parallel');
  if (tensor) {
    tensor.integer('autotp_size', (value, entry) => draft.understood(entry, 'tensor-parallel ranks', { '/parallel/tensor/degree': value }));
    ignoreRest(draft, tensor, {}, 'DeepSpeed');
  }
  return { mixed };
}

export const DEEPSPEED_NEUTRAL: Record<string, string> = {
  data_types: 'dtype of the sums while accumulating: not played',
  amp: 'Apex: not played',
  torch_autocast: 'not played',
  compression_training: 'not played',
  data_efficiency: 'which rows are taken',
  checkpoint: 'how it is saved',
};
