// Every setting that a link can carry besides the model: its key, its place in the wire format, its default, how its text reads,
// and what has to hold for it to matter. Links, specs, controls and the reading of specs all follow from this one table; the words
// are in ../text.
//
// The defaults are those of link version 1, and of the wire format. They are FROZEN: a link says only what differs from them,
// so changing one would change what published links mean. What the page shows on arrival is in choice.ts.
import type { Json } from './choice';
import type { Method } from './methods';

export interface Field<T> {
  at: string; // its place in the wire format, as a JSON pointer
  fallback: T;
  expected: string; // in words, for a text that does not read
  values?: readonly string[]; // all there are
  read(text: string): T | undefined;
  write(value: T): string;
  toWire(value: T): Json;
  fromWire(json: Json): T | undefined;
}

/** Whether a setting matters, and to which methods; where it does not, it is not sent, and `needs` says what it takes. */
interface Matter {
  needs?: Need;
  methods?: readonly Method[];
}

type Need = 'full' | 'lora' | 'quantised' | 'bits4' | 'bits8' | 'adam' | 'sgd' | 'momentum' | 'rmsprop' | 'every' | 'chunked' | 'trainer' | 'evaluation' | 'described' | 'megatron' | 'megatron_full' | 'megatron_selective';

function oneOf<const T extends string>(at: string, values: readonly T[], fallback: NoInfer<T>): Field<T> {
  const read = (text: string) => values.find((value) => value === text);
  return {
    at,
    fallback,
    values,
    expected: `one of ${values.join(', ')}`,
    read,
    write: String,
    toWire: (value) => (value === 'none' && NULLS.has(at) ? null : value),
    fromWire: (json) => (json === null ? read('none') : typeof json === 'string' ? read(json) : undefined),
  };
}

/** Where the wire format says null for "none". */
const NULLS = new Set(['/training/autocast', '/training/evaluation/preprocess', '/parallel/data/param_dtype', '/parallel/data/reduce_dtype', '/training/megatron/moe_router_dtype']);

function wholeNumber(at: string, fallback: number, least = 1): Field<number> {
  const sound = (value: number) => Number.isSafeInteger(value) && value >= least;
  return {
    at,
    fallback,
    expected: `a whole number from ${least}`,
    read: (text) => {
      const digits = /^\d{1,3}(,\d{3})+$/.test(text) ? text.replaceAll(',', '') : text; // as the page writes it
      return /^\d{1,15}$/.test(digits) && sound(Number(digits)) ? Number(digits) : undefined;
    },
    write: String,
    toWire: (value) => value,
    fromWire: (json) => (typeof json === 'number' && sound(json) ? json : undefined),
  };
}

function flag(at: string, fallback = false): Field<boolean> {
  return {
    at,
    fallback,
    values: ['true', 'false'],
    expected: 'true or false',
    read: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
    write: String,
    toWire: (value) => value,
    fromWire: (json) => (typeof json === 'boolean' ? json : undefined),
  };
}

function number(at: string, fallback: number): Field<number> {
  return {
    at,
    fallback,
    expected: 'a number from 0',
    read: (text) => (DECIMAL.test(text) && Number.isFinite(Number(text)) ? Number(text) : undefined),
    write: String,
    toWire: (value) => value,
    fromWire: (json) => (typeof json === 'number' && Number.isFinite(json) && json >= 0 ? json : undefined),
  };
}

const DECIMAL = /^\d+(\.\d+)?(e[+-]?\d{1,3})?$/i;

/** A number or nothing; 0 is nothing, too. */
function optionalNumber(at: string): Field<number | null> {
  const inner = number(at, 0);
  return {
    at,
    fallback: null,
    expected: 'a number above 0, or none',
    read: (text) => (text === 'none' ? null : inner.read(text) || undefined),
    write: (value) => (value === null ? 'none' : String(value)),
    toWire: (value) => value,
    fromWire: (json) => (json === null || json === 0 ? null : inner.fromWire(json)),
  };
}

function optionalWhole(at: string, least = 1): Field<number | null> {
  const inner = wholeNumber(at, least, least);
  return {
    at,
    fallback: null,
    expected: `${inner.expected}, or none`,
    read: (text) => (text === 'none' ? null : inner.read(text)),
    write: (value) => (value === null ? 'none' : String(value)),
    toWire: (value) => value,
    fromWire: (json) => (json === null ? null : inner.fromWire(json)),
  };
}

/** Bytes; "40 GiB" and "512 MiB" are understood. */
function optionalBytes(at: string): Field<number | null> {
  const units: Record<string, number> = { '': 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30 };
  return {
    ...optionalWhole(at),
    expected: 'bytes, such as 40 GiB or 42949672960, or none',
    read: (text) => {
      if (text === 'none') return null;
      const [, amount = '', unit = ''] = /^(\d+(?:\.\d+)?) ?([KMG]iB)?$/i.exec(text) ?? [];
      const bytes = Math.round(Number(amount) * (units[unit.toLowerCase()] ?? 1));
      return bytes >= 1 && Number.isSafeInteger(bytes) ? bytes : undefined;
    },
    write: (bytes) => {
      if (bytes === null) return 'none';
      const [unit = '', size = 1] = [['GiB', 2 ** 30] as const, ['MiB', 2 ** 20] as const].find(([, of]) => bytes % of === 0) ?? [];
      return `${bytes / size}${unit}`;
    },
  };
}

function identifier(at: string, fallback: string): Field<string> {
  const read = (text: string) => (/^[\w.-]{1,64}$/.test(text) ? text : undefined);
  return { at, fallback, expected: 'an id', read, write: String, toWire: (value) => value, fromWire: (json) => (typeof json === 'string' ? read(json) : undefined) };
}

/** Names with commas between them. Equal lists are the same string, so that settings compare with ===. */
function names(at: string, fallback: string, alone: readonly string[] = []): Field<string> {
  const read = (text: string) => {
    if (text === 'none') return '';
    const list = text.split(',').map((name) => name.trim());
    return text.length <= 2000 && list.every((name) => /^[\w.*-]+$/.test(name)) ? list.join(',') : undefined;
  };
  return {
    at,
    fallback,
    expected: 'names with commas between them',
    read,
    write: (value) => value || 'none',
    toWire: (value) => (alone.includes(value) ? value : value === '' ? [] : value.split(',')),
    fromWire: (json) => {
      if (typeof json === 'string') return alone.includes(json) ? json : undefined;
      return Array.isArray(json) && json.every((name) => typeof name === 'string') ? read(json.join(',') || 'none') : undefined;
    },
  };
}

function numbers(at: string, least: number, most: number): Field<string> {
  const read = (text: string) => {
    if (text === 'none') return '';
    const list = text.split(',').map((one) => one.trim());
    return list.length >= least && list.length <= most && list.every((one) => DECIMAL.test(one)) ? list.map(Number).join(',') : undefined;
  };
  return {
    at,
    fallback: '',
    expected: `${least === most ? least : `${least} to ${most}`} numbers with commas between them, or none`,
    read,
    write: (value) => value || 'none',
    toWire: (value) => value.split(',').map(Number),
    fromWire: (json) => (json === null ? '' : Array.isArray(json) && json.every((one) => typeof one === 'number') ? read(json.join(',')) : undefined),
  };
}

/** An object as JSON text; '' is none. */
function object(at: string): Field<string> {
  const read = (text: string) => {
    if (text === 'none') return '';
    try {
      const value: unknown = JSON.parse(text);
      const sound = typeof value === 'object' && value !== null && !Array.isArray(value) && text.length <= 20_000;
      return sound ? (Object.keys(value).length === 0 ? '' : JSON.stringify(value)) : undefined;
    } catch {
      return undefined;
    }
  };
  return {
    at,
    fallback: '',
    expected: 'a JSON object, or none',
    read,
    write: (value) => value || 'none',
    toWire: (value) => JSON.parse(value || '{}') as Json,
    fromWire: (json) => (json === null ? '' : read(JSON.stringify(json))),
  };
}

function when<T>(matter: Matter, field: Field<T>): Field<T> & Matter {
  return { ...field, ...matter };
}

const DTYPES = ['bfloat16', 'float32', 'float16'] as const;
const AUTO_DTYPES = ['auto', 'none', 'bfloat16', 'float16', 'float32'] as const;
export const OPTIMIZERS = [
  'adamw',
  'adam',
  'sgd',
  'adafactor',
  'rmsprop',
  'adagrad',
  'nadam',
  'adamax',
  'radam',
  'muon',
  'adafactor_hf',
  'lion',
  'schedule_free_adamw',
  'adamw_8bit',
  'paged_adamw',
  'paged_adamw_8bit',
  'adamw_bnb',
  'lion_8bit',
  'lion_bnb',
  'paged_lion',
  'paged_lion_8bit',
  'ademamix',
  'ademamix_8bit',
  'rmsprop_8bit',
  'sgd_8bit',
  'adamw_8bit_torchao',
  'adamw_4bit_torchao',
  'adamw_fp8_torchao',
  'adamw_torchao',
] as const;

const DDP: readonly Method[] = ['ddp', 'zero_redundancy', 'custom'];
const DEEPSPEED: readonly Method[] = ['zero1', 'zero2', 'zero3', 'custom'];
const FSDP1: readonly Method[] = ['fsdp1', 'custom'];
const FSDP2: readonly Method[] = ['fsdp2', 'hsdp', 'tensor_fsdp2', 'custom'];
const TENSOR: readonly Method[] = ['tensor', 'tensor_fsdp2', 'custom'];
const PIPELINE: readonly Method[] = ['pipeline', 'custom'];
const CUSTOM: readonly Method[] = ['custom'];
const MEGATRON = { needs: 'megatron' } as const;

export const fields = {
  method: oneOf('/training/method', ['full', 'lora'], 'full'),
  weights: oneOf('/training/weights', DTYPES, 'bfloat16'),
  autocast: oneOf('/training/autocast', ['none', 'bfloat16', 'float16'], 'none'),
  optimizer: oneOf('/training/optimizer/name', OPTIMIZERS, 'adamw'),
  implementation: oneOf('/training/optimizer/implementation', ['foreach', 'fused', 'loop'], 'foreach'),
  micro_batch: wholeNumber('/training/micro_batch', 1),
  sequence: wholeNumber('/training/sequence', 2048),
  target_sequence: optionalWhole('/training/target_sequence'),
  images: optionalWhole('/training/images/per_sample'),
  accumulation: wholeNumber('/training/accumulation', 1),
  checkpointing: oneOf('/training/checkpointing', ['none', 'full', 'full_reentrant', 'selective', 'every'], 'none'),
  attention: oneOf('/training/attention', ['sdpa', 'eager', 'flash_attention_2', 'fused', 'flex'], 'sdpa'),
  max_grad_norm: optionalNumber('/training/max_grad_norm'),
  gpu: identifier('/cluster/gpu', 'a100-sxm-80gb'),
  gpus: wholeNumber('/parallel/data/degree', 1),
  gpus_per_node: wholeNumber('/cluster/gpus_per_node', 8),
  expandable_segments: flag('/allocator/expandable_segments'),
  // Whose details are open; the wire format has its kind and degrees.
  data: oneOf(
    '/parallel/data/kind',
    ['best', 'none', 'ddp', 'zero_redundancy', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2', 'hsdp', 'tensor', 'tensor_fsdp2', 'pipeline', 'custom'],
    'best',
  ),

  objective: oneOf('/training/objective', ['sft', 'dpo'], 'sft'),
  lora_rank: when({ needs: 'lora' }, wholeNumber('/training/adapter/rank', 16)),
  targets: when({ needs: 'lora' }, names('/training/adapter/targets', 'q_proj,v_proj', ['all-linear'])),
  lora_dropout: when({ needs: 'lora' }, number('/training/adapter/dropout', 0)),
  dora: when({ needs: 'lora' }, flag('/training/adapter/dora')),
  modules_to_save: when({ needs: 'lora' }, names('/training/adapter/modules_to_save', '')),
  upcast: when({ needs: 'lora' }, flag('/training/adapter/upcast', true)),
  bits: when({ needs: 'lora' }, oneOf('/training/base_quantization/bits', ['none', '4', '8'], 'none')),
  quant_type: when({ needs: 'bits4' }, oneOf('/training/base_quantization/type', ['nf4', 'fp4'], 'nf4')),
  double_quant: when({ needs: 'bits4' }, flag('/training/base_quantization/double_quant')),
  compute_dtype: when({ needs: 'bits4' }, oneOf('/training/base_quantization/compute_dtype', DTYPES, 'float32')),
  quant_storage: when({ needs: 'bits4' }, oneOf('/training/base_quantization/quant_storage', ['uint8', 'bfloat16', 'float16', 'float32'], 'uint8')),
  threshold: when({ needs: 'bits8' }, number('/training/base_quantization/threshold', 6)),
  skip: when({ needs: 'quantised' }, names('/training/base_quantization/skip', '')),
  prepare_kbit: when({ needs: 'quantised' }, flag('/training/prepare_kbit', true)),
  grad_scaler: flag('/training/grad_scaler'),

  trained: when({ needs: 'full' }, names('/training/trained', '')),
  frozen: when({ needs: 'full' }, names('/training/frozen', '')),
  in_backward: flag('/training/optimizer/in_backward'),
  weight_decay: number('/training/optimizer/weight_decay', 0),
  momentum: when({ needs: 'momentum' }, number('/training/optimizer/momentum', 0)),
  nesterov: when({ needs: 'sgd' }, flag('/training/optimizer/nesterov')),
  amsgrad: when({ needs: 'adam' }, flag('/training/optimizer/amsgrad')),
  centered: when({ needs: 'rmsprop' }, flag('/training/optimizer/centered')),
  betas: numbers('/training/optimizer/betas', 2, 3),
  eps: optionalNumber('/training/optimizer/eps'),
  maximize: flag('/training/optimizer/maximize'),
  capturable: flag('/training/optimizer/capturable'),
  differentiable: flag('/training/optimizer/differentiable'),

  mask: oneOf('/training/mask', ['none', 'padded'], 'none'),
  loss: oneOf('/training/loss', ['standard', 'chunked', 'liger_fused_linear', 'liger_cross_entropy', 'trl_tiled'], 'standard'),
  loss_chunk: when({ needs: 'chunked' }, wholeNumber('/training/loss_chunk', 1024)),
  keep_loss: flag('/training/keep_loss'),
  checkpoint_every: when({ needs: 'every' }, wholeNumber('/training/checkpointing/every', 2)),
  liger_rms_norm: flag('/training/kernels/liger/rms_norm'),
  liger_rope: flag('/training/kernels/liger/rope'),
  liger_swiglu: flag('/training/kernels/liger/swiglu'),

  loop: oneOf('/training/loop', ['plain', 'trainer', 'sft_trainer'], 'plain'),
  label_smoothing: when({ needs: 'trainer' }, number('/training/label_smoothing', 0)),
  trainer_weight_decay: when({ needs: 'trainer' }, number('/training/weight_decay', 0)),
  logging_steps: when({ needs: 'trainer' }, optionalWhole('/training/logging_steps')),
  evaluation: when({ needs: 'trainer' }, flag('/training/evaluation')),
  eval_batches: when({ needs: 'evaluation' }, wholeNumber('/training/evaluation/batches', 4)),
  eval_batch: when({ needs: 'evaluation' }, wholeNumber('/training/evaluation/batch', 8)),
  eval_accumulation_steps: when({ needs: 'evaluation' }, optionalWhole('/training/evaluation/accumulation_steps')),
  compute_metrics: when({ needs: 'evaluation' }, flag('/training/evaluation/compute_metrics')),
  eval_preprocess: when({ needs: 'evaluation' }, oneOf('/training/evaluation/preprocess', ['none', 'argmax'], 'none')),

  bucket_cap_mb: when({ methods: DDP }, wholeNumber('/parallel/data/bucket_cap_mb', 25)),
  gradient_as_bucket_view: when({ methods: DDP }, flag('/parallel/data/gradient_as_bucket_view')),
  static_graph: when({ methods: DDP }, flag('/parallel/data/static_graph')),
  find_unused_parameters: when({ methods: DDP }, flag('/parallel/data/find_unused_parameters')),
  parameters_as_bucket_view: when({ methods: ['zero_redundancy', 'custom'] }, flag('/parallel/data/parameters_as_bucket_view')),
  auto_buckets: when({ methods: DEEPSPEED }, flag('/parallel/data/auto_buckets', true)),
  reduce_bucket_size: when({ methods: DEEPSPEED }, optionalWhole('/parallel/data/zero_optimization/reduce_bucket_size')),
  deepspeed_config: when({ methods: DEEPSPEED }, object('/parallel/data/config')),
  param_dtype: when({ methods: [...FSDP2, 'fsdp1'] }, oneOf('/parallel/data/param_dtype', AUTO_DTYPES, 'auto')),
  reduce_dtype: when({ methods: [...FSDP2, 'fsdp1'] }, oneOf('/parallel/data/reduce_dtype', ['none', 'bfloat16', 'float16', 'float32'], 'float32')),
  buffer_dtype: when({ methods: FSDP1 }, oneOf('/parallel/data/buffer_dtype', ['none', 'bfloat16', 'float16', 'float32'], 'none')),
  reshard_after_forward: when({ methods: FSDP2 }, flag('/parallel/data/reshard_after_forward', true)),
  cpu_ram_efficient_loading: when({ methods: [...FSDP2, 'fsdp1'] }, flag('/parallel/data/cpu_ram_efficient_loading', true)),
  replicate: when({ methods: ['hsdp', 'custom'] }, wholeNumber('/parallel/data/replicate', 1)),
  strategy: when(
    { methods: FSDP1 },
    oneOf('/parallel/data/strategy', ['FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD', 'HYBRID_SHARD', '_HYBRID_SHARD_ZERO2'], 'FULL_SHARD'),
  ),
  auto_wrap: when({ methods: FSDP1 }, oneOf('/parallel/data/auto_wrap', ['transformer', 'peft'], 'transformer')),
  use_orig_params: when({ methods: FSDP1 }, flag('/parallel/data/use_orig_params', true)),
  forward_prefetch: when({ methods: FSDP1 }, flag('/parallel/data/forward_prefetch')),
  limit_all_gathers: when({ methods: FSDP1 }, flag('/parallel/data/limit_all_gathers', true)),
  backward_prefetch: when({ methods: FSDP1 }, oneOf('/parallel/data/backward_prefetch', ['BACKWARD_PRE', 'BACKWARD_POST'], 'BACKWARD_PRE')),
  shard: when({ methods: FSDP1 }, optionalWhole('/parallel/data/shard')),
  pin_memory: when({ methods: [...DEEPSPEED, ...FSDP2] }, flag('/parallel/data/pin_memory')),

  offload_optimizer: oneOf('/parallel/offload/optimizer', ['none', 'cpu'], 'none'),
  offload_parameters: oneOf('/parallel/offload/parameters', ['none', 'cpu'], 'none'),
  offload_activations: oneOf('/parallel/offload/activations', ['none', 'cpu'], 'none'),

  tensor_degree: when({ methods: ['tensor_fsdp2', 'custom'] }, wholeNumber('/parallel/tensor/degree', 1)),
  tensor_sequence: when({ methods: TENSOR }, flag('/parallel/tensor/sequence')),
  tensor_loss: when({ methods: TENSOR }, flag('/parallel/tensor/loss')),
  tensor_plan: when({ methods: TENSOR }, oneOf('/parallel/tensor/plan', ['torch', 'hf'], 'torch')),
  pipeline_degree: when({ methods: CUSTOM }, wholeNumber('/parallel/pipeline/degree', 1)),
  schedule: when({ methods: PIPELINE }, oneOf('/parallel/pipeline/schedule', ['1f1b', 'gpipe', 'interleaved_1f1b', 'looped_bfs', 'interleaved_zero_bubble', 'zbv', 'dualpipev'], '1f1b')),
  virtual: when({ methods: PIPELINE }, wholeNumber('/parallel/pipeline/virtual', 1)),
  microbatches: when({ methods: PIPELINE }, wholeNumber('/parallel/pipeline/microbatches', 1)),
  context_degree: when({ methods: CUSTOM }, wholeNumber('/parallel/context/degree', 1)),
  context_kind: when({ methods: CUSTOM }, oneOf('/parallel/context/kind', ['ring', 'ulysses'], 'ring')),
  rotate: when({ methods: CUSTOM }, oneOf('/parallel/context/rotate', ['allgather', 'alltoall', 'p2p', 'a2a'], 'allgather')),
  load_balance: when({ methods: CUSTOM }, flag('/parallel/context/load_balance', true)),
  expert_degree: when({ methods: CUSTOM }, wholeNumber('/parallel/expert/degree', 1)),
  expert_tensor: when({ needs: 'megatron', methods: CUSTOM }, optionalWhole('/parallel/expert/tensor')),
  account_for_embedding: when({ needs: 'megatron', methods: PIPELINE }, flag('/parallel/pipeline/account_for_embedding')),
  account_for_loss: when({ needs: 'megatron', methods: PIPELINE }, flag('/parallel/pipeline/account_for_loss')),
  kind: when({ methods: CUSTOM }, oneOf('/parallel/data/kind', ['none', 'ddp', 'zero_redundancy', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2', 'distributed_optimizer'], 'fsdp2')),
  overlap_grad_reduce: when({ needs: 'megatron', methods: ['ddp', 'custom'] }, flag('/parallel/data/overlap_grad_reduce')),
  instances: when({ needs: 'megatron', methods: CUSTOM }, wholeNumber('/parallel/data/instances', 1)),
  rank: optionalWhole('/parallel/rank', 0),

  nodes: optionalWhole('/cluster/nodes'),
  memory: optionalBytes('/cluster/memory'),
  host_memory: optionalBytes('/cluster/host_memory'),
  compute_capability: when({ needs: 'described' }, wholeNumber('/cluster/gpu/compute_capability', 90)),
  sms: when({ needs: 'described' }, wholeNumber('/cluster/gpu/sms', 132)),
  max_split_size_mb: optionalWhole('/allocator/max_split_size_mb', 21),
  roundup_power2_divisions: optionalWhole('/allocator/roundup_power2_divisions'),
  garbage_collection_threshold: optionalNumber('/allocator/garbage_collection_threshold'),
  torch: identifier('/software/torch', '2.14'),
  transformers: identifier('/software/transformers', '5.24'),
  trl: identifier('/software/trl', '1'),
  torchtitan: identifier('/software/torchtitan', '0.2'),
  stack: oneOf('/software/stack', ['transformers', 'megatron', 'torchtitan', 'litgpt', 'deepspeed'], 'transformers'),
  config_use_cache: flag('/software/config_use_cache'),
  transformer_impl: when(MEGATRON, oneOf('/training/megatron/transformer_impl', ['transformer_engine', 'local'], 'transformer_engine')),
  gradient_accumulation_fusion: when(MEGATRON, flag('/training/megatron/gradient_accumulation_fusion', true)),
  cross_entropy_loss_fusion: when(MEGATRON, flag('/training/megatron/cross_entropy_loss_fusion')),
  cross_entropy_fusion_impl: when(MEGATRON, oneOf('/training/megatron/cross_entropy_fusion_impl', ['native', 'te'], 'native')),
  accumulate_allreduce_grads_in_fp32: when(MEGATRON, flag('/training/megatron/accumulate_allreduce_grads_in_fp32', true)),
  exp_avg_dtype: when(MEGATRON, oneOf('/training/megatron/exp_avg_dtype', ['float32', 'bfloat16'], 'float32')),
  deterministic_mode: when(MEGATRON, flag('/training/megatron/deterministic_mode')),
  make_vocab_size_divisible_by: when(MEGATRON, wholeNumber('/training/megatron/make_vocab_size_divisible_by', 128)),
  recompute_num_layers: when({ needs: 'megatron_full' }, wholeNumber('/training/megatron/recompute_num_layers', 1)),
  recompute_modules: when({ needs: 'megatron_selective' }, names('/training/megatron/recompute_modules', 'core_attn')),
  moe_token_dispatcher_type: when(MEGATRON, oneOf('/training/megatron/moe_token_dispatcher_type', ['allgather', 'alltoall'], 'allgather')),
  moe_grouped_gemm: when(MEGATRON, flag('/training/megatron/moe_grouped_gemm')),
  moe_router_dtype: when(MEGATRON, oneOf('/training/megatron/moe_router_dtype', ['none', 'fp32'], 'none')),
};

export type Fields = typeof fields;
export type FieldKey = keyof Fields;
export type Settings = { [K in FieldKey]: Fields[K]['fallback'] };

export const fieldKeys = Object.keys(fields) as FieldKey[];

/** Any field, where its type does not matter. */
export function field(key: FieldKey): Field<Settings[FieldKey]> & Matter {
  return fields[key] as unknown as Field<Settings[FieldKey]> & Matter;
}

export function defaultSettings(): Settings {
  return Object.fromEntries(fieldKeys.map((key) => [key, fields[key].fallback])) as Settings;
}

/** The text of a setting as a link writes it. */
export function settingText(settings: Settings, key: FieldKey): string {
  return field(key).write(settings[key]);
}

/** The settings with one of them read from text; undefined if the text does not read. */
export function withSetting(settings: Settings, key: FieldKey, text: string): Settings | undefined {
  const value = field(key).read(text);
  return value === undefined ? undefined : { ...settings, [key]: value };
}

const met: Record<Need, (settings: Settings) => boolean> = {
  full: ({ method }) => method === 'full',
  lora: ({ method }) => method === 'lora',
  quantised: ({ method, bits }) => method === 'lora' && bits !== 'none',
  bits4: ({ method, bits }) => method === 'lora' && bits === '4',
  bits8: ({ method, bits }) => method === 'lora' && bits === '8',
  adam: ({ optimizer }) => optimizer === 'adamw' || optimizer === 'adam',
  sgd: ({ optimizer }) => optimizer === 'sgd',
  momentum: ({ optimizer }) => optimizer === 'sgd' || optimizer === 'rmsprop',
  rmsprop: ({ optimizer }) => optimizer === 'rmsprop',
  every: ({ checkpointing }) => checkpointing === 'every',
  chunked: ({ loss }) => loss === 'chunked',
  trainer: ({ loop }) => loop !== 'plain',
  evaluation: ({ loop, evaluation }) => loop !== 'plain' && evaluation,
  described: ({ gpu }) => gpu === DESCRIBED,
  megatron: ({ stack }) => stack === 'megatron',
  megatron_full: ({ stack, checkpointing }) => stack === 'megatron' && checkpointing === 'full',
  megatron_selective: ({ stack, checkpointing }) => stack === 'megatron' && checkpointing === 'selective',
};

/** The `gpu` that has no name but a compute capability and SMs. */
export const DESCRIBED = 'described';

/** What has to be chosen for a setting to matter; undefined where it does matter. */
export function unmet(key: FieldKey, settings: Settings): Need | undefined {
  const { needs } = field(key);
  return needs && !met[needs](settings) ? needs : undefined;
}

export type { Need };
