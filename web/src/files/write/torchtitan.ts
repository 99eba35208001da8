import type { JsonObject } from '../../choice/choice';
import { allocator, toml, torchrun, View, type Export } from './written';

/** torchtitan's families and flavors of presets. Source: the __init__.py of each of torchtitan/models. */
const FLAVORS: Record<string, readonly [string, string]> = {
  'meta-llama/Llama-3.1-8B': ['llama3', '8B'],
  'meta-llama/Llama-3.1-70B': ['llama3', '70B'],
  'meta-llama/Llama-3.1-405B': ['llama3', '405B'],
  'deepseek-ai/DeepSeek-V3': ['deepseek_v3', '671B'],
  'meta-llama/Llama-4-Scout-17B-16E-Instruct': ['llama4', '17bx16e'],
  'meta-llama/Llama-4-Maverick-17B-128E-Instruct': ['llama4', '17bx128e'],
  'Qwen/Qwen3-0.6B': ['qwen3', '0.6B'],
  'Qwen/Qwen3-1.7B': ['qwen3', '1.7B'],
  'Qwen/Qwen3-4B': ['qwen3', '4B'],
  'Qwen/Qwen3-8B': ['qwen3', '8B'],
  'Qwen/Qwen3-14B': ['qwen3', '14B'],
  'Qwen/Qwen3-32B': ['qwen3', '32B'],
  'Qwen/Qwen3-30B-A3B': ['qwen3', '30B-A3B'],
  'Qwen/Qwen3-235B-A22B': ['qwen3', '235B-A22B'],
};

export function toTorchtitan(spec: JsonObject): Export {
  const view = new View(spec);
  const { kind, weights, autocast } = view;
  if (view.lora) return { ok: false, why: 'torchtitan trains whole models, no adapters.' };
  if (view.text('/training/objective', 'sft') === 'dpo') return { ok: false, why: 'torchtitan has no preference training.' };
  if (!['none', 'ddp', 'fsdp2'].includes(kind)) return { ok: false, why: 'torchtitan has FSDP2 and DDP, with tensor, pipeline and context parallelism.' };
  const flavor = Object.hasOwn(FLAVORS, view.model) ? FLAVORS[view.model] : undefined;
  if (!flavor) return { ok: false, why: `torchtitan has no flavor of ${view.model}: it trains the models of its own list.` };
  if (weights === 'float16') return { ok: false, why: 'torchtitan holds weights in fp32 or bf16.' };

  if (kind === 'ddp' && view.degreeOf('context') > 1) return { ok: false, why: 'torchtitan has context parallelism over FSDP2, not over DDP.' };

  const data = '/parallel/data/';
  const tensor = view.degreeOf('tensor');
  const pipeline = view.degreeOf('pipeline');
  const context = view.degreeOf('context');
  const replicate = kind === 'ddp' ? view.degree : view.number(`${data}replicate`, 1);
  const shard = kind === 'fsdp2' ? view.degree / replicate : 1;
  view.say('/training/method', '/training/sequence', '/training/max_grad_norm', '/training/weights');
  view.lose('/training/objective', 'next-token training is what torchtitan does');
  view.match('/training/autocast', null, 'torchtitan’s mixed precision is FSDP’s own');
  view.lose('/training/grad_scaler', 'torchtitan has no fp16');
  const ranks = kind === 'none' ? 1 : view.degree;
  const named = kind === 'none' && context > 1 ? 'fsdp2' : kind === 'fsdp2' && shard === 1 && context === 1 ? (replicate > 1 ? 'ddp' : 'none') : kind;
  view.match(`${data}kind`, named, 'one rank is no data parallelism, and context parallelism runs over FSDP2');
  view.say(`${data}degree`);
  if (kind === 'fsdp2' && replicate > 1 && named === 'fsdp2') view.say(`${data}replicate`);
  const said = view.get(`${data}param_dtype`);
  const wanted = said === null ? 'float32' : typeof said === 'string' ? said : kind === 'fsdp2' ? 'bfloat16' : (autocast ?? 'float32');
  const param = wanted === 'float32' ? 'float32' : 'bfloat16';
  const reduce = 'float32';
  view.match(`${data}param_dtype`, param === 'float32' ? null : param, 'torchtitan computes in bf16 or fp32, and says fp32 for what is not cast');
  view.match(`${data}reduce_dtype`, reduce, 'torchtitan reduces in fp32');
  const reshard = view.flag(`${data}reshard_after_forward`, true);
  view.say(`${data}reshard_after_forward`);

  const micro = view.number('/training/micro_batch', 1);
  const microbatches = pipeline > 1 ? view.number('/parallel/pipeline/microbatches', 1) : 1;
  const batch = micro * microbatches;
  const accumulation = view.number('/training/accumulation', 1);
  view.say('/training/micro_batch', '/training/accumulation');
  if (tensor > 1) view.say('/parallel/tensor/degree', '/parallel/tensor/sequence', '/parallel/tensor/loss');
  if (context > 1) {
    view.say('/parallel/context/degree', '/parallel/context/rotate');
  }
  const schedules: Record<string, string> = { '1f1b': '1F1B', gpipe: 'GPipe', interleaved_1f1b: 'Interleaved1F1B' };
  const schedule = view.text('/parallel/pipeline/schedule', '1f1b');
  if (pipeline > 1) {
    view.say('/parallel/pipeline/degree', '/parallel/pipeline/microbatches', '/parallel/pipeline/schedule');
    if (schedule === 'interleaved_1f1b') view.match('/parallel/pipeline/virtual', 2, 'torchtitan cuts two stages a rank by itself');
    else view.lose('/parallel/pipeline/virtual', 'one stage a rank');
  }
  if (view.degreeOf('expert') > 1) view.say('/parallel/expert/degree');
  const offload = view.text('/parallel/offload/parameters', 'none') === 'cpu' && view.text('/parallel/offload/optimizer', 'none') === 'cpu';
  for (const what of ['parameters', 'optimizer']) {
    if (offload) view.say(`/parallel/offload/${what}`);
    else view.lose(`/parallel/offload/${what}`, 'torchtitan offloads both or neither');
  }

  const checkpointing = view.get('/training/checkpointing') ?? 'none';
  const every = view.number('/training/checkpointing/every', 0);
  const mode = every > 0 ? 'selective' : checkpointing === 'full_reentrant' ? 'full' : String(checkpointing);
  if (every > 0) view.say('/training/checkpointing/every');
  else view.match('/training/checkpointing', mode, 'torchtitan checkpoints without re-entrance');
  const optimizer: Record<string, string> = { adamw: 'AdamW', adam: 'Adam' };
  const name = view.text('/training/optimizer/name', 'adamw');
  if (!Object.hasOwn(optimizer, name)) return { ok: false, why: 'torchtitan has Adam and AdamW.' };
  const implementation = view.text('/training/optimizer/implementation', 'foreach');
  view.say('/training/optimizer/name', '/training/optimizer/implementation');
  view.lose('/training/attention', 'torchtitan’s models have SDPA');
  view.lose('/training/loss', 'torchtitan has torch’s loss');
  for (const at of ['/cluster/nodes', '/cluster/gpus_per_node']) view.lose(at, 'torchrun says it, not the file');

  const text = toml({
    model: { name: flavor[0], flavor: flavor[1], hf_assets_path: `./assets/hf/${view.model.split('/').at(-1) ?? ''}` },
    optimizer: { name: optimizer[name], implementation: implementation === 'loop' ? 'for-loop' : implementation },
    training: {
      local_batch_size: batch,
      global_batch_size: accumulation > 1 ? batch * ranks * accumulation : undefined,
      seq_len: view.number('/training/sequence', 2048),
      max_norm: view.number('/training/max_grad_norm', 0),
      steps: 1000,
      dtype: weights,
      mixed_precision_param: param,
      mixed_precision_reduce: reduce,
      enable_cpu_offload: offload,
    },
    parallelism: {
      data_parallel_replicate_degree: replicate,
      data_parallel_shard_degree: shard,
      fsdp_reshard_after_forward: reshard ? 'always' : 'never',
      tensor_parallel_degree: tensor,
      enable_sequence_parallel: tensor > 1 ? view.flag('/parallel/tensor/sequence', false) : undefined,
      disable_loss_parallel: tensor > 1 ? !view.flag('/parallel/tensor/loss', false) : undefined,
      context_parallel_degree: context,
      context_parallel_rotate_method: context > 1 ? view.text('/parallel/context/rotate', 'allgather') : undefined,
      pipeline_parallel_degree: pipeline,
      pipeline_parallel_schedule: pipeline > 1 ? schedules[schedule] : undefined,
      pipeline_parallel_microbatch_size: pipeline > 1 ? micro : undefined,
      expert_parallel_degree: view.degreeOf('expert'),
    },
    activation_checkpoint: { mode, selective_ac_option: every > 0 ? String(every) : undefined },
    compile: { enable: false },
  });
  const command = `${allocator(view)}${torchrun(view)} -m torchtitan.train --job.config_file torchtitan.toml`;
  return { ok: true, written: view.done([{ name: 'torchtitan.toml', text }], command, 'torchtitan') };
}
