import { Draft, Section, type Import } from './draft';
import { ignoreRest } from './neutral';
import { dtypeNamed, readDeepspeedPath, readFsdp, setZeroOffload, setZeroStage, settlePrecision, type Dtype } from './parallel';
import type { Table } from './tree';

// accelerate's default_config.yaml: who runs, and how the model is spread. Source: accelerate/commands/config, utils/dataclasses.py.

export function readAccelerate(table: Table, source: string): Import {
  const draft = new Draft('accelerate', source);
  const from = new Section(table, draft);

  let nodes: number | undefined;
  from.integer('num_machines', (value, entry) => {
    nodes = value;
    draft.understood(entry, value === 1 ? 'one machine' : `${value} machines`, { '/cluster/nodes': value });
  });
  const processes = from.integer('num_processes', (value, entry) => {
    draft.understood(entry, 'GPUs in all machines, a rank on each', { '/parallel/data/degree': value });
    if (nodes && value % nodes === 0) draft.set('/cluster/gpus_per_node', value / nodes);
  });

  const distributed = (
    from.text('distributed_type', (text, entry) => {
      const name = text.toUpperCase();
      if (name === 'MULTI_GPU') draft.understood(entry, 'DDP', { '/parallel/data/kind': 'ddp' });
      else if (name === 'NO') draft.understood(entry, 'one process', { '/parallel/data/kind': 'none' });
      else if (['FSDP', 'DEEPSPEED', 'MEGATRON_LM'].includes(name)) draft.understood(entry, 'see its own settings');
      else draft.ignored(entry, 'no NVIDIA GPUs by this');
    }) ?? ''
  ).toUpperCase();

  const mixed = readMixed(draft, from);
  const fsdp = from.section('fsdp_config');
  if (distributed === 'FSDP') readFsdp(draft, fsdp, { version: 1, versionWhy: 'accelerate’s default where fsdp_version is absent' });
  else if (fsdp) ignoreRest(draft, fsdp, {}, 'FSDP');

  const deepspeed = from.section('deepspeed_config');
  let file = false;
  if (deepspeed) file = readDeepspeedPart(draft, deepspeed);
  readParallelism(draft, from.section('parallelism_config'));
  const megatron = from.section('megatron_lm_config');
  if (megatron) readMegatronPart(draft, megatron, processes);
  from.integer('gradient_accumulation_steps', (value, entry) =>
    draft.understood(entry, 'micro-batches before each step', { '/training/accumulation': value }),
  );
  from
    .section('dynamo_config')
    ?.rest()
    .forEach((entry) => draft.ignored(entry, 'torch.compile is not played'));
  from
    .section('fp8_config')
    ?.rest()
    .forEach((entry) => draft.ignored(entry, 'fp8 is not played yet: bf16 is'));
  from.flag('use_cpu', (on, entry) =>
    on ? draft.ignored(entry, 'training on the CPU is not played: GPUs are') : draft.understood(entry, 'on GPUs'),
  );

  if (!file && mixed !== undefined)
    settlePrecision(draft, { mixed, held: undefined, why: ' (as the script loads it: fp32 unless it says otherwise)', lora: false });
  if (processes === undefined) draft.askGpus('num_processes is not in the file.');
  ignoreRest(draft, from, {}, 'accelerate');
  return draft.done();
}

function readMixed(draft: Draft, from: Section): Dtype | null | undefined {
  let mixed: Dtype | null | undefined;
  from.text('mixed_precision', (text, entry) => {
    const name = text.toLowerCase();
    if (name === 'no' || name === 'false') {
      mixed = null;
      draft.understood(entry, 'no mixed precision');
    } else if (name === 'fp8') {
      mixed = 'bfloat16';
      draft.inferred(entry, 'fp8 is not played yet: bf16 is');
    } else if (dtypeNamed(name) && dtypeNamed(name) !== 'float32') {
      mixed = dtypeNamed(name) ?? null;
      draft.understood(entry, `computed in ${name}`);
    } else draft.wrong(entry, 'no, fp16, bf16 or fp8');
  });
  return mixed;
}

/** accelerate's own short form of DeepSpeed's settings; true: they are in a file that is not here. */
function readDeepspeedPart(draft: Draft, from: Section): boolean {
  let file = false;
  from.text('deepspeed_config_file', (path, entry) => {
    file = true;
    readDeepspeedPath(draft, entry, path);
  });
  let stage: number | undefined;
  from.integer(
    'zero_stage',
    (value, entry) => {
      if (value > 3) return draft.wrong(entry, '0, 1, 2 or 3');
      stage = value;
      setZeroStage(draft, entry, value);
    },
    0,
  );
  if (stage === undefined && !file) {
    stage = 2;
    draft.assumed('deepspeed_config.zero_stage', 'not said: accelerate’s default is 2', { '/parallel/data/kind': 'zero2' });
  }
  from.text('offload_optimizer_device', (device, entry) => setZeroOffload(draft, entry, 'optimizer', device, stage));
  from.text('offload_param_device', (device, entry) => setZeroOffload(draft, entry, 'parameters', device, stage));
  from.integer('gradient_accumulation_steps', (value, entry) =>
    draft.understood(entry, 'micro-batches before each step', { '/training/accumulation': value }),
  );
  from.number('gradient_clipping', (norm, entry) =>
    draft.understood(entry, 'clipped to this norm', { '/training/max_grad_norm': norm > 0 ? norm : null }),
  );
  from.flag('zero3_init_flag', (_, entry) => draft.ignored(entry, 'how it is loaded, not what the step holds'));
  ignoreRest(
    draft,
    from,
    {
      deepspeed_moe_layer_cls_names: 'whole experts gathered at once: not played',
      offload_optimizer_nvme_path: 'where on disk',
      offload_param_nvme_path: 'where on disk',
    },
    'accelerate',
  );
  return file;
}

function readParallelism(draft: Draft, from: Section | undefined): void {
  if (!from) return;
  const key = (name: string) => (from.has(`parallelism_config_${name}`) ? `parallelism_config_${name}` : name);
  const replicate = from.integer(key('dp_replicate_size'), (value, entry) =>
    draft.understood(entry, 'copies of the sharded model', value > 1 ? { '/parallel/data/replicate': value } : {}),
  );
  from.integer(key('dp_shard_size'), (value, entry) =>
    draft.understood(entry, 'ranks that a copy is cut among', { '/parallel/data/degree': value * (replicate ?? 1) }),
  );
  from.integer(key('tp_size'), (value, entry) =>
    draft.understood(entry, 'tensor-parallel ranks', value > 1 ? { '/parallel/tensor/degree': value } : {}),
  );
  from.integer(key('cp_size'), (value, entry) =>
    draft.understood(entry, 'ranks that share a row', value > 1 ? { '/parallel/context/degree': value } : {}),
  );
  from.integer(key('sp_size'), (value, entry) =>
    draft.understood(
      entry,
      'ranks that share a row, by DeepSpeed’s sequence parallelism',
      value > 1 ? { '/parallel/context/degree': value, '/parallel/context/kind': 'ulysses' } : {},
    ),
  );
  from.text(key('cp_comm_strategy'), (text, entry) => {
    if (['allgather', 'alltoall'].includes(text))
      draft.understood(entry, 'how keys and values go round', { '/parallel/context/rotate': text });
    else draft.wrong(entry, 'allgather or alltoall');
  });
  ignoreRest(draft, from, {}, 'accelerate');
}

function readMegatronPart(draft: Draft, from: Section, processes: number | undefined): void {
  const degree = (key: string, at: string, what: string) =>
    from.integer(key, (value, entry) => draft.understood(entry, what, value > 1 ? { [at]: value } : {})) ?? 1;
  const tensor = degree('megatron_lm_tp_degree', '/parallel/tensor/degree', 'tensor-parallel ranks');
  const pipeline = degree('megatron_lm_pp_degree', '/parallel/pipeline/degree', 'pipeline stages');
  from.integer('megatron_lm_num_micro_batches', (value, entry) =>
    draft.understood(
      entry,
      'micro-batches of a step',
      pipeline > 1 ? { '/parallel/pipeline/microbatches': value } : { '/training/accumulation': value },
    ),
  );
  from.flag('megatron_lm_sequence_parallelism', (on, entry) =>
    draft.understood(entry, 'norms on a part of the sequence each', tensor > 1 ? { '/parallel/tensor/sequence': on } : {}),
  );
  from.flag('megatron_lm_use_distributed_optimizer', (on, entry) =>
    draft.understood(entry, 'optimizer states cut among data ranks', { '/parallel/data/kind': on ? 'zero1' : 'ddp' }),
  );
  from.flag('megatron_lm_recompute_activations', (on, entry) =>
    draft.understood(entry, 'the attention core again in backward', on ? { '/training/checkpointing': 'selective' } : {}),
  );
  from.number('megatron_lm_gradient_clipping', (norm, entry) =>
    draft.understood(entry, 'clipped to this norm', { '/training/max_grad_norm': norm > 0 ? norm : null }),
  );
  if (processes && processes % (tensor * pipeline) === 0) draft.set('/parallel/data/degree', processes / (tensor * pipeline));
  ignoreRest(draft, from, {}, 'accelerate');
}
