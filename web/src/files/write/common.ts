import type { JsonObject } from '../../choice/choice';
import { View, yaml } from './written';

// What several tools write the same way.

/** The wire format's optimizers → the Trainer's `optim`. */
const OPTIM: Record<string, string> = {
  'adamw/fused': 'adamw_torch_fused',
  'adamw/foreach': 'adamw_torch',
  adamw_8bit: 'adamw_bnb_8bit',
  paged_adamw: 'paged_adamw_32bit',
  paged_adamw_8bit: 'paged_adamw_8bit',
  adafactor_hf: 'adafactor',
  'sgd/foreach': 'sgd',
  'adagrad/foreach': 'adagrad',
  'rmsprop/foreach': 'rmsprop',
  rmsprop_8bit: 'rmsprop_bnb_8bit',
  lion_8bit: 'lion_8bit',
  lion_bnb: 'lion_32bit',
  paged_lion: 'paged_lion_32bit',
  paged_lion_8bit: 'paged_lion_8bit',
  ademamix: 'ademamix',
  ademamix_8bit: 'ademamix_8bit',
  schedule_free_adamw: 'schedule_free_adamw',
  adamw_8bit_torchao: 'adamw_torch_8bit',
  adamw_4bit_torchao: 'adamw_torch_4bit',
};

const NAME = '/training/optimizer/name';
const IMPLEMENTATION = '/training/optimizer/implementation';

export function optim(view: View, more: Readonly<Record<string, string>> = {}): string | undefined {
  const name = view.text(NAME, 'adamw');
  const implementation = view.text(IMPLEMENTATION, 'foreach');
  const names = { ...OPTIM, ...more };
  const exact = names[`${name}/${implementation}`] ?? names[name];
  if (exact) {
    view.say(NAME);
    // Where one name has both, it says both; elsewhere the implementation is not a choice.
    if (names[`${name}/${implementation}`]) view.say(IMPLEMENTATION);
    else view.lose(IMPLEMENTATION, 'this optimizer has one implementation');
    return exact;
  }
  const other = names[`${name}/foreach`];
  view.lose(IMPLEMENTATION, 'the Trainer has the foreach and the fused form');
  if (other) {
    view.say(NAME);
    return other;
  }
  view.lose(NAME, 'the Trainer has no name for this optimizer');
  return undefined;
}

/** Clipping; the Trainer's 0 is none. */
export function clip(view: View): number {
  view.say('/training/max_grad_norm');
  return view.number('/training/max_grad_norm', 0);
}

/** full → {…use_reentrant: false}. Undefined where the kind cannot be said. */
export function checkpointing(view: View): { on: boolean; reentrant: boolean } {
  const at = '/training/checkpointing';
  const value = view.get(at) ?? 'none';
  if (value === 'none' || value === 'full' || value === 'full_reentrant') {
    view.say(at);
    return { on: value !== 'none', reentrant: value === 'full_reentrant' };
  }
  for (const one of [at, `${at}/every`]) view.lose(one, 'the Trainer checkpoints every layer or none');
  return { on: true, reentrant: false };
}

/** use_liger_kernel switches on all of Liger's kernels and its fused loss. */
export function liger(view: View, standard: 'standard' | 'trl_tiled'): boolean {
  const kernels = ['rms_norm', 'rope', 'swiglu'].map((key) => `/training/kernels/liger/${key}`);
  const all = kernels.every((at) => view.flag(at, false)) && view.text('/training/loss', 'standard') === 'liger_fused_linear';
  if (all) {
    view.say('/training/loss', ...kernels);
    return true;
  }
  for (const at of kernels) view.match(at, false, 'use_liger_kernel switches all of Liger’s kernels on, and its fused loss');
  if (standard === 'trl_tiled') view.match('/training/loss', 'trl_tiled', 'TRL has its tiled head, or Liger’s');
  return false;
}

export interface Precision {
  dtype: string; // what the model is loaded in
  bf16: boolean;
  fp16: boolean;
}

/** The Trainer's flags; they mean other things under DeepSpeed and FSDP (../parallel.ts, settlePrecision). */
export function precision(view: View): Precision {
  const { kind, weights, autocast, lora } = view;
  const flags = (dtype: string, mixed: string | null): Precision => ({ dtype, bf16: mixed === 'bfloat16', fp16: mixed === 'float16' });
  view.match(
    '/training/grad_scaler',
    autocast === 'float16' && !kind.startsWith('zero') && !kind.startsWith('fsdp'),
    'a loss scaler goes with fp16 alone',
  );
  if (/^zero\d/.test(kind)) {
    view.say('/training/weights');
    view.match('/training/autocast', null, 'DeepSpeed holds the model in what it trains in');
    return flags(weights, weights === 'float32' ? null : weights);
  }
  if (kind.startsWith('fsdp')) {
    view.match('/training/autocast', null, 'FSDP’s own mixed precision takes its place');
    // What FSDP2 leaves out is bf16; FSDP1, as held.
    const said = view.get('/parallel/data/param_dtype');
    const param = typeof said === 'string' ? said : said === null || kind === 'fsdp1' ? null : 'bfloat16';
    const own = weights === 'float32' ? null : weights;
    const mixed = lora ? param : weights === 'float32' ? param : null;
    const computed = mixed ?? own;
    view.say('/training/weights');
    if (param === 'float32' || (param ?? own) !== computed)
      view.lose('/parallel/data/param_dtype', 'the Trainer computes in bf16 or fp16, or in what is held');
    else if (said === null && own !== null) view.lose('/parallel/data/param_dtype', 'the same as what is held');
    else view.say('/parallel/data/param_dtype');
    if (mixed && mixed !== 'float32')
      view.match('/parallel/data/reduce_dtype', mixed, 'accelerate reduces gradients in what it computes in');
    else view.lose('/parallel/data/reduce_dtype', 'without mixed precision gradients are reduced as they are');
    view.lose('/parallel/data/buffer_dtype', 'accelerate takes what it computes in');
    return flags(weights, mixed === 'float32' ? null : mixed);
  }
  view.say('/training/weights', '/training/autocast');
  return flags(weights, autocast);
}

export const DPO_PAIR = 2;

/** Rows of a batch as the Trainer counts them: DPO's are pairs. */
export function batch(view: View): number {
  const rows = view.number('/training/micro_batch', 1);
  const dpo = view.text('/training/objective', 'sft') === 'dpo';
  view.say('/training/micro_batch', '/training/objective');
  if (!dpo) return rows;
  if (rows % DPO_PAIR !== 0) view.lose('/training/micro_batch', 'DPO’s rows come in pairs');
  return Math.max(1, Math.floor(rows / DPO_PAIR));
}

const TARGETS = '/training/adapter/targets';

export function targets(view: View): string | string[] {
  const value = view.get(TARGETS);
  if (Array.isArray(value) && value.length === 0) {
    view.lose(TARGETS, 'adapters on no module are none');
    return 'all-linear';
  }
  view.say(TARGETS);
  if (value === 'all-linear') return 'all-linear';
  return Array.isArray(value) ? value.map(String) : ['q_proj', 'v_proj'];
}

/** DeepSpeed's JSON for a ZeRO method, as text. */
export const deepspeedText = (view: View): string => `${JSON.stringify(deepspeed(view), null, 2)}\n`;

function deepspeed(view: View): JsonObject {
  const stage = Number(view.kind.slice(-1));
  const device = (what: 'optimizer' | 'parameters') => view.text(`/parallel/offload/${what}`, 'none');
  const pin = view.flag('/parallel/data/pin_memory', true);
  const bucket = view.get('/parallel/data/zero_optimization/reduce_bucket_size');
  const auto = view.flag('/parallel/data/auto_buckets', true) && bucket === undefined;
  const offloads = device('optimizer') === 'cpu' || (stage === 3 && device('parameters') === 'cpu');
  const offload = (what: 'optimizer' | 'parameters') => (device(what) === 'cpu' ? { device: 'cpu', pin_memory: pin } : undefined);
  view.say(
    '/parallel/data/kind',
    '/parallel/offload/optimizer',
    '/parallel/data/zero_optimization/reduce_bucket_size',
    '/training/weights',
  );
  if (offloads) view.say('/parallel/data/pin_memory');
  else view.lose('/parallel/data/pin_memory', 'nothing is offloaded');
  if (stage === 3) view.say('/parallel/offload/parameters');
  else view.match('/parallel/offload/parameters', 'none', 'only ZeRO-3 offloads parameters');
  view.match('/parallel/data/auto_buckets', auto, 'a bucket of a size is not automatic');
  const clipping = view.number('/training/max_grad_norm', 0);
  view.say('/training/max_grad_norm', '/training/accumulation');
  const rows = view.number('/training/micro_batch', 1) / (view.text('/training/objective', 'sft') === 'dpo' ? DPO_PAIR : 1);
  return {
    train_batch_size: rows * view.number('/training/accumulation', 1) * view.degree,
    train_micro_batch_size_per_gpu: rows,
    gradient_accumulation_steps: view.number('/training/accumulation', 1),
    gradient_clipping: clipping,
    bf16: { enabled: view.weights === 'bfloat16' },
    fp16: { enabled: view.weights === 'float16' },
    zero_optimization: {
      stage,
      ...(offload('optimizer') ? { offload_optimizer: { device: 'cpu', pin_memory: pin } } : {}),
      ...(stage === 3 && offload('parameters') ? { offload_param: { device: 'cpu', pin_memory: pin } } : {}),
      contiguous_gradients: true,
      ...(typeof bucket === 'number' ? { reduce_bucket_size: bucket } : auto ? { reduce_bucket_size: 'auto' } : {}),
      // What the estimate reckons with: DeepSpeed's own sizes are other ones.
      ...(auto && stage === 3 ? { stage3_prefetch_bucket_size: 'auto', stage3_param_persistence_threshold: 'auto' } : {}),
    },
    zero_allow_untested_optimizer: true,
  };
}

/** A name that says the stage, as the tools' own files do. */
export function deepspeedName(view: View): string {
  const optimizer = view.text('/parallel/offload/optimizer', 'none') === 'cpu';
  const parameters = view.kind === 'zero3' && view.text('/parallel/offload/parameters', 'none') === 'cpu';
  return `${view.kind}${optimizer && parameters ? '_offload' : optimizer ? '_offload_optimizer' : parameters ? '_offload_params' : ''}.json`;
}

/** fsdp_config; `prefix`: accelerate's. */
export function fsdp(view: View, prefix: '' | 'fsdp_'): JsonObject {
  const one = view.kind === 'fsdp1';
  const offload = view.text('/parallel/offload/parameters', 'none') === 'cpu';
  const data = '/parallel/data/';
  view.say(`${data}kind`);
  if (offload === (view.text('/parallel/offload/optimizer', 'none') === 'cpu'))
    view.say('/parallel/offload/parameters', '/parallel/offload/optimizer');
  else for (const at of ['/parallel/offload/parameters', '/parallel/offload/optimizer']) view.lose(at, 'FSDP offloads both or neither');
  const entries: Record<string, string | boolean | number> = { [prefix === '' ? 'version' : 'fsdp_version']: one ? 1 : 2 };
  const put = (key: string, value: string | boolean) => (entries[prefix + key] = value);
  if (one) {
    const strategy = view.text(`${data}strategy`, 'FULL_SHARD').replace(/^_/, '');
    put('sharding_strategy', strategy);
    view.say(`${data}strategy`);
    put('use_orig_params', view.flag(`${data}use_orig_params`, true));
    put('backward_prefetch', view.text(`${data}backward_prefetch`, 'BACKWARD_PRE'));
    put('forward_prefetch', view.flag(`${data}forward_prefetch`, false));
    put('limit_all_gathers', view.flag(`${data}limit_all_gathers`, true));
    view.say(`${data}use_orig_params`, `${data}backward_prefetch`, `${data}forward_prefetch`, `${data}limit_all_gathers`);
  } else {
    put('reshard_after_forward', view.flag(`${data}reshard_after_forward`, true));
    view.say(`${data}reshard_after_forward`);
  }
  put('auto_wrap_policy', 'TRANSFORMER_BASED_WRAP');
  put('offload_params', offload);
  put('cpu_ram_efficient_loading', view.flag(`${data}cpu_ram_efficient_loading`, true));
  view.say(`${data}cpu_ram_efficient_loading`);
  put('state_dict_type', 'SHARDED_STATE_DICT');
  return entries;
}

/** accelerate's file: who runs, and how the model is spread. */
export function accelerate(view: View, { bf16, fp16 }: Precision): string {
  const { kind, degree } = view;
  const replicate = view.number('/parallel/data/replicate', 1);
  const tensor = view.degreeOf('tensor');
  const context = view.degreeOf('context');
  view.say('/parallel/data/kind', '/parallel/data/degree', '/cluster/nodes', '/cluster/gpus_per_node');
  if (view.world % view.nodes !== 0 || view.world / view.nodes !== view.number('/cluster/gpus_per_node', view.world / view.nodes)) {
    view.lose('/cluster/gpus_per_node', 'accelerate counts processes and machines');
  }
  if (view.number('/cluster/nodes', view.nodes) !== view.nodes) view.lose('/cluster/nodes', 'machines that do not train are not named');
  const meshed = kind === 'fsdp2' && (replicate > 1 || tensor > 1 || context > 1);
  if (meshed) {
    view.say(
      ...(replicate > 1 ? ['/parallel/data/replicate'] : []),
      ...(tensor > 1 ? ['/parallel/tensor/degree'] : []),
      ...(context > 1 ? ['/parallel/context/degree'] : []),
    );
  }
  const mixed = bf16 ? 'bf16' : fp16 ? 'fp16' : 'no';
  const type = /^zero\d/.test(kind) ? 'DEEPSPEED' : kind.startsWith('fsdp') ? 'FSDP' : view.world > 1 ? 'MULTI_GPU' : 'NO';
  return yaml({
    compute_environment: 'LOCAL_MACHINE',
    distributed_type: type,
    ...(type === 'DEEPSPEED' ? {} : { mixed_precision: mixed }), // DeepSpeed's file says it, and accelerate wants it said once
    num_machines: view.nodes,
    num_processes: view.world,
    machine_rank: 0,
    ...(view.nodes > 1 ? { main_process_ip: 'HEAD_NODE', main_process_port: 29500 } : {}),
    ...(type === 'FSDP' ? { fsdp_config: fsdp(view, 'fsdp_') } : {}),
    ...(type === 'DEEPSPEED' ? { deepspeed_config: { deepspeed_config_file: deepspeedName(view), zero3_init_flag: kind === 'zero3' } } : {}),
    ...(meshed
      ? {
          parallelism_config: {
            parallelism_config_dp_replicate_size: replicate,
            parallelism_config_dp_shard_size: degree / replicate,
            parallelism_config_tp_size: tensor,
            parallelism_config_cp_size: context,
          },
        }
      : {}),
    main_training_function: 'main',
    use_cpu: false,
  });
}

/** DDP's own settings, by the Trainer's names. */
export function ddp(view: View): JsonObject {
  const data = '/parallel/data/';
  if (view.kind !== 'ddp') return {};
  view.say(`${data}bucket_cap_mb`, `${data}find_unused_parameters`, `${data}static_graph`);
  return {
    ...(view.get(`${data}bucket_cap_mb`) === undefined ? {} : { ddp_bucket_cap_mb: view.number(`${data}bucket_cap_mb`, 25) }),
    ...(view.get(`${data}find_unused_parameters`) === undefined
      ? {}
      : { ddp_find_unused_parameters: view.flag(`${data}find_unused_parameters`, false) }),
    ...(view.get(`${data}static_graph`) === undefined ? {} : { ddp_static_graph: view.flag(`${data}static_graph`, false) }),
  };
}
