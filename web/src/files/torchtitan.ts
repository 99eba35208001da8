import type { JsonObject } from '../choice/choice';
import { asText, Draft, Section, type Import } from './draft';
import { presetFor, type Known } from './models';
import { ignoreRest } from './neutral';
import { dtypeNamed } from './parallel';
import type { Table, Value } from './tree';

// torchtitan's TOML (job_config.py, up to its move to Python configurations) and the same settings as --section.key arguments.

const FLAVORS: Record<string, Record<string, string>> = {
  llama3: {
    '8B': 'meta-llama/Llama-3.1-8B',
    '70B': 'meta-llama/Llama-3.1-70B',
    '405B': 'meta-llama/Llama-3.1-405B',
    '1B': 'meta-llama/Llama-3.2-1B',
    '3B': 'meta-llama/Llama-3.2-3B',
  },
  llama2: { '7B': 'meta-llama/Llama-2-7b-hf', '13B': 'meta-llama/Llama-2-13b-hf', '70B': 'meta-llama/Llama-2-70b-hf' },
  llama4: { '17bx16e': 'meta-llama/Llama-4-Scout-17B-16E-Instruct', '17bx128e': 'meta-llama/Llama-4-Maverick-17B-128E-Instruct' },
  deepseek_v3: { '16B': 'deepseek-ai/DeepSeek-V2-Lite', '671B': 'deepseek-ai/DeepSeek-V3' },
  qwen3: {
    '0.6B': 'Qwen/Qwen3-0.6B',
    '1.7B': 'Qwen/Qwen3-1.7B',
    '4B': 'Qwen/Qwen3-4B',
    '8B': 'Qwen/Qwen3-8B',
    '14B': 'Qwen/Qwen3-14B',
    '32B': 'Qwen/Qwen3-32B',
    '30B-A3B': 'Qwen/Qwen3-30B-A3B',
    '235B-A22B': 'Qwen/Qwen3-235B-A22B',
  },
  gpt_oss: { '20b': 'openai/gpt-oss-20b', '120b': 'openai/gpt-oss-120b' },
};
const SECTIONS = [
  'job',
  'profiling',
  'metrics',
  'model',
  'optimizer',
  'lr_scheduler',
  'training',
  'parallelism',
  'checkpoint',
  'activation_checkpoint',
  'activation_offload',
  'compile',
  'float8',
  'quantize',
  'mx',
  'comm',
  'memory_estimation',
  'fault_tolerance',
  'experimental',
  'validation',
  'debug',
  'model_converters',
];

export function looksLikeTorchtitan(table: Table): boolean {
  const keys = [...table.entries.keys()];
  return (
    keys.filter((key) => SECTIONS.includes(key)).length >= 2 &&
    (keys.includes('parallelism') || keys.includes('training') || keys.includes('model'))
  );
}

/** Until 2024 the degrees stood under [training] and [experimental]. */
function withParallelism(root: Table): Table {
  const moved = new Map<string, Value>();
  const entries = new Map(root.entries);
  for (const name of ['training', 'experimental']) {
    const section = entries.get(name);
    if (section?.kind !== 'table') continue;
    const kept = new Map<string, Value>();
    for (const [key, value] of section.entries) {
      if (/^(data|tensor|pipeline|context|expert)_parallel_|^enable_(loss_parallel|async_tensor_parallel)$/.test(key))
        moved.set(key === 'data_parallel_degree' ? 'data_parallel_shard_degree' : key, value);
      else kept.set(key, value);
    }
    entries.set(name, { ...section, entries: kept });
  }
  if (moved.size === 0) return root;
  const own = entries.get('parallelism');
  entries.set('parallelism', {
    kind: 'table',
    entries: new Map([...moved, ...(own?.kind === 'table' ? own.entries : [])]),
    line: own?.line ?? 1,
  });
  return { ...root, entries };
}

export function readTorchtitan(table: Table, source: string, known: Known, world?: number): Import {
  const draft = new Draft('torchtitan', source);
  const from = new Section(withParallelism(table), draft);
  draft.assumed(
    'software',
    'torchtitan’s own modules and checkpointing are played, not compiled',
    { '/software/stack': 'torchtitan' },
  );

  readModel(draft, from.section('model'), known);
  const local = readTraining(draft, from.section('training'));
  readParallelism(draft, from.section('parallelism'), world, local);

  const optimizer = from.section('optimizer');
  optimizer?.text('name', (text, entry) => {
    const names: Record<string, string> = { adamw: 'adamw', adam: 'adam', muon: 'muon', sgd: 'sgd' };
    const name = Object.hasOwn(names, text.toLowerCase()) ? names[text.toLowerCase()] : undefined;
    if (name) draft.understood(entry, `the optimizer: ${name}`, { '/training/optimizer/name': name });
    else draft.ignored(entry, 'not played: the one chosen before stays');
  });
  optimizer?.text('implementation', (text, entry) => {
    const names: Record<string, string> = { fused: 'fused', foreach: 'foreach', 'for-loop': 'loop', fused_opt_states_bf16: 'fused' };
    const name = Object.hasOwn(names, text) ? names[text] : undefined;
    if (!name) return draft.wrong(entry, 'fused, foreach or for-loop');
    draft.understood(entry, 'how the step is run', { '/training/optimizer/implementation': name });
  });
  for (const key of ['fused', 'foreach'])
    optimizer?.flag(key, (on, entry) =>
      draft.understood(entry, on ? 'how the step is run' : 'no', on ? { '/training/optimizer/implementation': key } : {}),
    );
  if (!draft.has('/training/optimizer/implementation'))
    draft.assumed('optimizer.implementation', 'not said: fused, torchtitan’s default', { '/training/optimizer/implementation': 'fused' });
  for (const key of ['early_step_in_backward', 'optimizer_in_backward']) {
    optimizer?.flag(key, (on, entry) =>
      on
        ? draft.ignored(entry, 'each parameter is stepped as its gradient is made: not played yet, the estimate has the gradients too much')
        : draft.understood(entry, 'the step comes after backward'),
    );
  }
  if (optimizer) ignoreRest(draft, optimizer, { weight_decay: 'no tensor of its own in a fused step' }, 'torchtitan');

  readCheckpointing(draft, from.section('activation_checkpoint'));
  const offload = from.section('activation_offload');
  offload?.text('mode', (text, entry) =>
    draft.understood(
      entry,
      text === 'none' ? 'activations stay' : 'kept activations go to the host',
      text === 'none' ? {} : { '/parallel/offload/activations': 'cpu' },
    ),
  );
  const compile = from.section('compile');
  compile?.flag('enable', (on, entry) =>
    on ? draft.ignored(entry, 'torch.compile is not played: the step without it is') : draft.understood(entry, 'not compiled'),
  );
  if (compile) ignoreRest(draft, compile, { components: 'what is compiled', backend: 'how it is compiled' }, 'torchtitan');
  for (const key of ['float8', 'quantize', 'mx']) {
    for (const entry of from.section(key)?.rest() ?? [])
      draft.ignored(entry, 'fp8 is not played yet: bf16 is, and only a converter switches it on');
  }
  for (const key of [
    'job',
    'profiling',
    'metrics',
    'lr_scheduler',
    'checkpoint',
    'comm',
    'memory_estimation',
    'fault_tolerance',
    'validation',
    'debug',
    'experimental',
  ]) {
    const why: Record<string, string> = {
      job: 'where it writes',
      profiling: 'profiling',
      metrics: 'logging',
      lr_scheduler: 'how far a step goes',
      checkpoint: 'when and where it is saved',
      comm: 'how long it waits',
      memory_estimation: 'its own estimate',
      fault_tolerance: 'how it is restarted',
      validation: 'between steps',
      debug: 'how it is run',
      experimental: 'not played',
    };
    for (const entry of from.section(key)?.rest() ?? []) draft.ignored(entry, why[key] ?? '');
  }
  ignoreRest(draft, from, {}, 'torchtitan');
  return draft.done();
}

function readModel(draft: Draft, model: Section | undefined, { presets }: Known): void {
  draft.set('/training/method', 'full');
  const name = model?.text('name', (_, entry) => draft.understood(entry, 'the family')) ?? 'llama3';
  let found = false;
  model?.text('flavor', (flavor, entry) => {
    const family = Object.hasOwn(FLAVORS, name) ? FLAVORS[name] : undefined;
    const key = Object.keys(family ?? {}).find((one) => one.toLowerCase() === flavor.toLowerCase());
    const id = (key && family?.[key]) ?? presetFor(`${name.replace('_', '-')}-${flavor}`, presets)?.id;
    if (id && presets.includes(id)) {
      found = true;
      const alike = name === 'deepseek_v3' && flavor === '16B';
      (alike ? draft.inferred : draft.understood).call(draft, entry, alike ? `read as ${id}, a model of that size` : id, { '/model': id });
    } else if (flavor === 'debugmodel' && name === 'llama3') {
      found = true;
      const config: JsonObject = {
        model_type: 'llama',
        hidden_size: 256,
        num_hidden_layers: 6,
        num_attention_heads: 16,
        num_key_value_heads: 16,
        intermediate_size: 768,
        vocab_size: 2048,
        max_position_embeddings: 131072,
        rms_norm_eps: 1e-5,
        tie_word_embeddings: false,
        torch_dtype: 'bfloat16',
      };
      draft.understood(entry, 'torchtitan’s small model for tests', { '/model': { name: 'torchtitan debugmodel', config } });
    } else draft.ignored(entry, 'no preset is known for it');
  });
  if (!found) {
    for (const key of ['hf_assets_path', 'tokenizer_path']) {
      const path = model?.peek(key);
      const id =
        typeof path === 'string'
          ? presetFor(path.replace(/\/original\/tokenizer\.model$|\/tokenizer\.model$/, ''), presets)?.id
          : undefined;
      if (id && !found) {
        found = true;
        draft.assumed('model', `${id}, by the name of its files`, { '/model': id });
      }
    }
  }
  if (!found) draft.asked('model', 'The file names no model that is a preset here: choose it, or paste its config.json.', '/model');
  model?.words('converters', (words, entry) =>
    words.length === 0 ? draft.understood(entry, 'none') : draft.ignored(entry, 'fp8 is not played yet: bf16 is'),
  );
  model?.text('norm_type', (_, entry) => draft.ignored(entry, 'the model’s own norm is played'));
  if (model)
    ignoreRest(
      draft,
      model,
      { hf_assets_path: 'which tokenizer', print_after_conversion: 'logging', tokenizer_path: 'which tokenizer' },
      'torchtitan',
    );
}

function readTraining(draft: Draft, training: Section | undefined): { batch: number; global: number | undefined } {
  let batch: number | undefined;
  for (const key of ['local_batch_size', 'batch_size']) {
    batch ??= training?.integer(key, (value, entry) =>
      draft.understood(entry, 'rows that one data rank works on in a step', { '/training/micro_batch': value }),
    );
  }
  if (!batch) draft.assumed('training.local_batch_size', 'not said: 8, torchtitan’s default', { '/training/micro_batch': 8 });
  const sequence = training?.integer('seq_len', (value, entry) =>
    draft.understood(entry, 'tokens in a row', { '/training/sequence': value }),
  );
  if (!sequence) draft.assumed('training.seq_len', 'not said: 2,048, torchtitan’s default', { '/training/sequence': 2048 });
  let global: number | undefined;
  const entry = training?.entry('global_batch_size');
  if (entry) {
    const value = Number(asText(entry.value));
    if (value === -1) draft.understood(entry, 'no accumulation');
    else if (Number.isInteger(value) && value >= 1) {
      global = value;
      draft.understood(entry, 'rows of all ranks in a step');
    } else draft.wrong(entry, 'a whole number from 1, or -1');
  } else draft.assumed('training.global_batch_size', 'not said: no accumulation', { '/training/accumulation': 1 });
  const norm = training?.number('max_norm', (value, one) =>
    draft.understood(one, value > 0 ? 'clipped to this norm' : 'not clipped', { '/training/max_grad_norm': value > 0 ? value : null }),
  );
  if (norm === undefined) draft.assumed('training.max_norm', 'not said: 1.0, torchtitan’s default', { '/training/max_grad_norm': 1 });
  let held: 'float32' | 'bfloat16' | 'float16' = 'float32';
  training?.text('dtype', (text, one) => {
    const named = dtypeNamed(text);
    if (!named) return draft.wrong(one, 'float32 or bfloat16');
    held = named;
    draft.understood(one, 'what the weights are held in');
  });
  let param: string | null = 'bfloat16';
  let reduce = 'float32';
  training?.text('mixed_precision_param', (text, one) => {
    const named = dtypeNamed(text);
    if (!named) return draft.wrong(one, 'bfloat16 or float32');
    param = named === 'float32' ? null : named;
    draft.understood(one, 'what weights are gathered and computed in');
  });
  training?.text('mixed_precision_reduce', (text, one) => {
    const named = dtypeNamed(text);
    if (!named) return draft.wrong(one, 'float32');
    reduce = named;
    draft.understood(one, 'what gradients are reduced in');
  });
  draft.assumed(
    'precision',
    `weights, gradients and optimizer states in ${held === 'float32' ? 'fp32' : held}; gathered and computed in ${param ?? 'the same'}, reduced in ${reduce}`,
    {
      '/training/weights': held,
      '/training/autocast': null,
      '/parallel/data/param_dtype': param,
      '/parallel/data/reduce_dtype': reduce,
    },
  );
  training?.flag('enable_cpu_offload', (on, one) =>
    draft.understood(
      one,
      on ? 'parameters, gradients and optimizer states live in the host’s memory' : 'everything stays on the GPU',
      on ? { '/parallel/offload/parameters': 'cpu', '/parallel/offload/optimizer': 'cpu' } : {},
    ),
  );
  training?.flag('compile', (on, one) =>
    on ? draft.ignored(one, 'torch.compile is not played: the step without it is') : draft.understood(one, 'not compiled'),
  );
  if (training)
    ignoreRest(
      draft,
      training,
      { gc_freq: 'the host’s garbage', gc_debug: 'the host’s garbage', dataset_path: 'which rows' },
      'torchtitan',
    );
  return { batch: batch ?? 8, global };
}

function readParallelism(
  draft: Draft,
  from: Section | undefined,
  world: number | undefined,
  { batch, global }: { batch: number; global: number | undefined },
): void {
  const degree = (key: string, at: string, text: string) =>
    from?.integer(key, (value, entry) => draft.understood(entry, value > 1 ? text : 'none', value > 1 ? { [at]: value } : {})) ?? 1;
  const replicate = from?.integer('data_parallel_replicate_degree', (value, entry) => draft.understood(entry, value > 1 ? 'copies of the model' : 'none')) ?? 1;
  const tensor = degree('tensor_parallel_degree', '/parallel/tensor/degree', 'tensor-parallel ranks');
  const pipeline = degree('pipeline_parallel_degree', '/parallel/pipeline/degree', 'pipeline stages');
  const context = degree('context_parallel_degree', '/parallel/context/degree', 'ranks that share a row');
  degree('expert_parallel_degree', '/parallel/expert/degree', 'ranks that share the experts');
  let shard = -1;
  const entry = from?.entry('data_parallel_shard_degree');
  if (entry) {
    const value = Number(asText(entry.value));
    if (value === -1 || (Number.isInteger(value) && value >= 1)) {
      shard = value;
      draft.understood(
        entry,
        value === -1 ? `all ranks that are left: GPUs ÷ ${replicate * tensor * pipeline * context}` : 'ranks that a copy is cut among',
      );
    } else draft.wrong(entry, 'a whole number from 1, or -1');
  }
  if (shard === -1 && world) shard = world / (replicate * tensor * pipeline * context);
  const sequence =
    from?.flag('enable_sequence_parallel', (on, one) => draft.understood(one, on ? 'norms on a part of the sequence each' : 'no')) ?? true;
  const noLoss =
    from?.flag('disable_loss_parallel', (on, one) => draft.understood(one, on ? 'every rank has all logits' : 'logits stay cut')) ?? false;
  if (tensor > 1) {
    draft.assumed(
      'tensor parallelism',
      `${sequence ? 'with' : 'without'} sequence parallelism; logits ${noLoss ? 'whole on every rank' : 'cut among the ranks (loss parallel)'}`,
      {
        '/parallel/tensor/sequence': sequence,
        '/parallel/tensor/loss': !noLoss,
      },
    );
  }
  if (shard >= 1 && Number.isInteger(shard)) {
    const ranks = shard * replicate;
    const kind = shard > 1 || context > 1 ? 'fsdp2' : replicate > 1 ? 'ddp' : 'none';
    if (kind === 'fsdp2' && replicate > 1) draft.set('/parallel/data/replicate', replicate);
    draft.assumed('data parallelism', `${kind === 'none' ? 'one data rank' : `${ranks} data ranks`}${kind === 'fsdp2' ? ', FSDP2' : ''}`, {
      '/parallel/data/kind': kind,
      '/parallel/data/degree': ranks,
    });
    if (global) {
      const count = global / (batch * ranks);
      if (Number.isInteger(count))
        draft.assumed('accumulation', `${global} rows ÷ (${batch} × ${ranks} ranks) = ${count}`, { '/training/accumulation': count });
      else
        draft.faults.push({
          line: 0,
          key: 'training.global_batch_size',
          value: String(global),
          message: `must be a multiple of ${batch} rows × ${ranks} ranks`,
        });
    }
  } else if (shard === -1) {
    draft.set('/parallel/data/kind', 'fsdp2');
    draft.askGpus(
      `The file does not say on how many GPUs it runs; each ${replicate * tensor * pipeline * context} of them are one data rank.`,
    );
    if (global)
      draft.asked(
        'accumulation',
        `${global} rows a step: how many micro-batches that is depends on the number of GPUs.`,
        '/training/accumulation',
      );
  } else {
    draft.faults.push({
      line: 0,
      key: 'world size',
      value: String(world ?? ''),
      message: `must be a multiple of ${replicate * tensor * pipeline * context}`,
    });
  }
  from?.text('fsdp_reshard_after_forward', (text, one) => {
    if (!['default', 'always', 'never'].includes(text)) return draft.wrong(one, 'default, always or never');
    draft.understood(one, text === 'never' ? 'gathered weights stay until backward' : 'gathered weights are freed after forward', {
      '/parallel/data/reshard_after_forward': text === 'never' || (text === 'default' && pipeline > 1) ? false : true,
    });
  });
  from?.text('context_parallel_rotate_method', (text, one) => {
    if (!['allgather', 'alltoall'].includes(text)) return draft.wrong(one, 'allgather or alltoall');
    draft.understood(one, 'how keys and values go round', context > 1 ? { '/parallel/context/rotate': text } : {});
  });
  from?.text('pipeline_parallel_schedule', (text, one) => {
    const names: Record<string, string> = { '1f1b': '1f1b', gpipe: 'gpipe', interleaved1f1b: 'interleaved_1f1b' };
    const name = Object.hasOwn(names, text.toLowerCase()) ? names[text.toLowerCase()] : undefined;
    if (pipeline === 1) draft.ignored(one, 'there is one stage');
    else if (name)
      draft.understood(one, 'in which order micro-batches pass', {
        '/parallel/pipeline/schedule': name,
        ...(name === 'interleaved_1f1b' ? { '/parallel/pipeline/virtual': 2 } : {}),
      });
    else draft.ignored(one, 'this schedule is not played: 1F1B is');
  });
  const micro = from?.integer('pipeline_parallel_microbatch_size', (_, one) => draft.understood(one, 'rows of a micro-batch'));
  if (pipeline > 1) {
    const rows = micro ?? 1;
    draft.assumed('micro-batches', `${batch} rows in micro-batches of ${rows}`, {
      '/training/micro_batch': rows,
      '/parallel/pipeline/microbatches': Math.max(1, Math.floor(batch / rows)),
    });
  }
  if (from)
    ignoreRest(
      draft,
      from,
      {
        enable_async_tensor_parallel: 'when it waits',
        enable_compiled_autograd: 'torch.compile is not played',
        pipeline_parallel_layers_per_stage: 'stages are cut evenly',
        pipeline_parallel_split_points: 'stages are cut evenly',
        module_fqns_per_model_part: 'stages are cut evenly',
        pipeline_parallel_first_stage_less_layers: 'stages are cut evenly',
        pipeline_parallel_last_stage_less_layers: 'stages are cut evenly',
        expert_tensor_parallel_degree: 'not played apart from tensor parallelism',
      },
      'torchtitan',
    );
}

function readCheckpointing(draft: Draft, from: Section | undefined): void {
  const option = from?.text('selective_ac_option', (_, entry) => draft.understood(entry, 'which layers or operations'));
  const mode = from?.text('mode', (text, entry) => {
    if (text === 'full') draft.understood(entry, 'each layer again in backward', { '/training/checkpointing': 'full' });
    else if (text === 'none') draft.understood(entry, 'everything is kept for backward', { '/training/checkpointing': 'none' });
    else if (text === 'selective') {
      const every = Number(option);
      draft.understood(
        entry,
        Number.isInteger(every) && every > 0 ? `each ${every}th layer` : 'every second matrix product again, and what is cheap',
        { '/training/checkpointing': Number.isInteger(every) && every > 0 ? { every } : 'selective' },
      );
    } else if (text === 'memory_budget') draft.ignored(entry, 'a budget of the compiler: not played');
    else draft.wrong(entry, 'full, selective, memory_budget or none');
  });
  if (!mode)
    draft.assumed('activation_checkpoint.mode', 'not said: selective, torchtitan’s default', { '/training/checkpointing': 'selective' });
  if (from)
    ignoreRest(
      draft,
      from,
      {
        per_op_sac_force_recompute_mm_shapes_by_fqns: 'which products',
        early_stop: 'where it stops',
        preserve_rng_state: 'a few bytes',
        determinism_check: 'a check',
        debug: 'a check',
      },
      'torchtitan',
    );
}
