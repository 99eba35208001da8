import type { Json, JsonObject } from '../choice/choice';
import { readAccelerate } from './accelerate';
import { readAxolotl } from './axolotl';
import { readDeepspeedFile } from './deepspeed';
import { kindNames, type Import, type Kind } from './draft';
import { readLlamafactory } from './llamafactory';
import { readMegatron } from './megatron';
import type { Known } from './models';
import { looksLikePython, readPython, type Call } from './python';
import { readLaunch, type Launch } from './shell';
import { looksLikeTorchtitan, readTorchtitan } from './torchtitan';
import { readTorchtune } from './torchtune';
import { readTrainer } from './trainer';
import { parseJson, parseToml, parseYaml, refusal, scalar, table, type Fault, type Parsed, type Table, type Value } from './tree';

export type { Import, Kind, Line, Status } from './draft';
export type { Fault } from './tree';

// Any training configuration → a part of a spec. What kind it is, is read off the text; its name helps only with its language.

export type Reading = { ok: true; import: Import } | { ok: false; faults: Fault[] };

/** The keys that only one tool has. The first kind with the most of its own wins. */
const MARKS: readonly (readonly [Kind, readonly string[]])[] = [
  [
    'axolotl',
    [
      'base_model',
      'sequence_len',
      'micro_batch_size',
      'sample_packing',
      'adapter',
      'lora_r',
      'lora_target_linear',
      'flash_attention',
      'val_set_size',
      'dataset_prepared_path',
      'load_in_4bit',
      'pad_to_sequence_len',
      'num_epochs',
      'optimizer',
    ],
  ],
  [
    'llamafactory',
    [
      'finetuning_type',
      'cutoff_len',
      'template',
      'stage',
      'lora_target',
      'lora_rank',
      'dataset_dir',
      'quantization_bit',
      'flash_attn',
      'enable_liger_kernel',
      'preprocessing_num_workers',
      'overwrite_cache',
      'pure_bf16',
      'plot_loss',
      'do_train',
    ],
  ],
  [
    'accelerate',
    [
      'compute_environment',
      'distributed_type',
      'num_processes',
      'num_machines',
      'mixed_precision',
      'machine_rank',
      'main_training_function',
      'downcast_bf16',
      'same_network',
      'use_cpu',
      'deepspeed_config',
      'rdzv_backend',
    ],
  ],
  [
    'deepspeed',
    [
      'zero_optimization',
      'train_micro_batch_size_per_gpu',
      'train_batch_size',
      'zero_allow_untested_optimizer',
      'gradient_clipping',
      'steps_per_print',
      'wall_clock_breakdown',
    ],
  ],
  [
    'trainer',
    [
      'per_device_train_batch_size',
      'per_device_eval_batch_size',
      'gradient_accumulation_steps',
      'output_dir',
      'optim',
      'fsdp',
      'deepspeed',
      'gradient_checkpointing',
      'fp16',
      'bf16',
      'learning_rate',
      'logging_steps',
      'save_steps',
      'warmup_steps',
      'model_name_or_path',
      'trust_remote_code',
      'use_liger_kernel',
      'max_steps',
      'num_train_epochs',
    ],
  ],
];
/** What TRL adds to the Trainer's arguments. */
const TRL_ONLY = [
  'torch_dtype',
  'dtype',
  'attn_implementation',
  'max_length',
  'max_seq_length',
  'packing',
  'packing_strategy',
  'padding_free',
  'use_peft',
  'lora_target_modules',
  'lora_r',
  'dataset_name',
  'dataset_mixture',
  'dataset_mixer',
  'loss_type',
  'beta',
  'model_init_kwargs',
  'assistant_only_loss',
  'num_generations',
  'max_prompt_length',
  'max_completion_length',
  'load_in_4bit',
];

export function kindOf(root: Table): Kind | undefined {
  const keys = new Set(root.entries.keys());
  const hasComponent = [...root.entries.values()].some((value) => value.kind === 'table' && value.entries.has('_component_'));
  if (hasComponent) return 'torchtune';
  if (looksLikeTorchtitan(root)) return 'torchtitan';
  if (keys.has('base_model') && ['sequence_len', 'micro_batch_size', 'datasets', 'adapter', 'num_epochs'].some((key) => keys.has(key)))
    return 'axolotl';
  if (keys.has('finetuning_type') || (keys.has('model_name_or_path') && keys.has('stage') && keys.has('template'))) return 'llamafactory';
  const scores = MARKS.map(([kind, marks]) => [kind, marks.filter((mark) => keys.has(mark)).length] as const);
  const [kind, score] = scores.reduce((best, one) => (one[1] > best[1] ? one : best));
  if (score < 1) return undefined;
  if (kind === 'trainer' && TRL_ONLY.some((mark) => keys.has(mark))) return 'trl';
  return kind;
}

const ACCEPTED = `Read are: ${Object.values(kindNames).join(', ')}; a launch command or script; Python source with TrainingArguments(…).`;

/** Never fails: what cannot be read says where and why. */
export async function readFile(text: string, known: Known, fileName = ''): Promise<Reading> {
  const no = refusal(text);
  if (no) return failed([{ line: 0, key: '', value: '', message: no }]);
  try {
    return await read(text, known, fileName.toLowerCase());
  } catch (error) {
    // A fault of this page, not of the file; the page goes on.
    return failed([
      {
        line: 0,
        key: '',
        value: '',
        message: `This could not be read (${error instanceof Error ? error.message.slice(0, 200) : 'unknown'}).`,
      },
    ]);
  }
}

export interface Given {
  name: string;
  text: string;
}

/**
 * Files that belong together. Those that say how a model is spread (accelerate, DeepSpeed) are read first, since a trainer's flags
 * mean other things under them; where both speak of it, theirs counts.
 */
export async function readFiles(
  files: readonly Given[],
  known: Known,
): Promise<{ readings: (Reading & { name: string })[]; spec: JsonObject }> {
  const first = await Promise.all(files.map(async ({ name, text }) => ({ name, ...(await readFile(text, known, name)) })));
  const spreads = first.filter((one) => one.ok && SPREADS.includes(one.import.kind));
  const around = spreads.map((one) => (one.ok ? dataKind(one.import.spec) : undefined)).find((kind) => kind !== undefined) ?? known.around;
  const readings = await Promise.all(
    first.map(async (one, index) => {
      const given = files[index];
      return one.ok && !SPREADS.includes(one.import.kind) && given
        ? { name: one.name, ...(await readFile(given.text, { ...known, around }, given.name)) }
        : one;
    }),
  );
  let spread: JsonObject = {};
  let rest: JsonObject = {};
  for (const one of readings) {
    if (!one.ok) continue;
    if (SPREADS.includes(one.import.kind)) spread = merge(spread, one.import.spec);
    else rest = merge(rest, one.import.spec);
  }
  const spec = merge(spread, rest);
  const parallel = merge(object(rest.parallel), object(spread.parallel));
  // The launcher says how a model is cut; in what it computes, the trainer knows.
  const dtypes = Object.entries(object(object(rest.parallel).data)).filter(([key]) => key.endsWith('_dtype'));
  if (dtypes.length > 0) parallel.data = { ...object(parallel.data), ...Object.fromEntries(dtypes) };
  if (Object.keys(parallel).length > 0) spec.parallel = parallel;
  return { readings, spec };
}

const SPREADS: readonly Kind[] = ['accelerate', 'deepspeed'];

function object(value: Json | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}

function dataKind(spec: JsonObject): string | undefined {
  const kind = object(object(spec.parallel).data).kind;
  return typeof kind === 'string' ? kind : undefined;
}

/** The second over the first; a model is one thing, and so is {"every": n}. */
function merge(a: JsonObject, b: JsonObject): JsonObject {
  const out: JsonObject = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const before = out[key];
    const both =
      key !== 'model' &&
      key !== 'checkpointing' &&
      typeof value === 'object' &&
      value !== null &&
      !Array.isArray(value) &&
      typeof before === 'object' &&
      before !== null &&
      !Array.isArray(before);
    out[key] = both ? merge(before, value) : value;
  }
  return out;
}

async function read(text: string, known: Known, name: string): Promise<Reading> {
  const start = text.trimStart();
  if (name.endsWith('.json') || start.startsWith('{')) return readTable(await parseJson(text), text, known);
  if (name.endsWith('.toml') || looksLikeToml(text)) return readTable(await parseToml(text), text, known);
  if (name.endsWith('.py') || (!/\.ya?ml$/.test(name) && looksLikePython(text) && !looksLikeShell(text))) return readSource(text, known);
  if (name.endsWith('.sh') || (!/\.ya?ml$/.test(name) && looksLikeShell(text))) {
    const launch = readLaunch(text);
    if (launch) return readArguments(launch, text, known);
    return failed([{ line: 0, key: '', value: '', message: `No arguments of a trainer are in this script. ${ACCEPTED}` }]);
  }
  return readTable(await parseYaml(text), text, known);
}

const failed = (faults: Fault[]): Reading => ({ ok: false, faults });

function looksLikeToml(text: string): boolean {
  return /^\s*\[[A-Za-z_][\w.]*\]\s*(#.*)?$/m.test(text) && /^\s*[\w-]+\s*=\s*\S/m.test(text);
}

function looksLikeShell(text: string): boolean {
  return /^#!.*\b(ba|z|da)?sh\b/.test(text) || /(^|\s)--[a-z][\w-]+(\s|=)/.test(text.replace(/^\s*#.*$/gm, ''));
}

function readTable(parsed: Parsed, text: string, known: Known): Reading {
  if (!parsed.ok) return failed(parsed.faults);
  const kind = kindOf(parsed.table);
  if (!kind) {
    const keys = [...parsed.table.entries.keys()]
      .slice(0, 5)
      .map((key) => key.slice(0, 40))
      .join(', ');
    return failed([
      ...parsed.faults,
      { line: 0, key: '', value: keys, message: `No tool that is known here has these settings. ${ACCEPTED}` },
    ]);
  }
  const made = readKind(kind, parsed.table, text, known);
  made.faults.unshift(...parsed.faults);
  return { ok: true, import: made };
}

function readKind(kind: Kind, root: Table, text: string, known: Known, objective = ''): Import {
  switch (kind) {
    case 'axolotl':
      return readAxolotl(root, text, known);
    case 'llamafactory':
      return readLlamafactory(root, text, known);
    case 'accelerate':
      return readAccelerate(root, text);
    case 'deepspeed':
      return readDeepspeedFile(root, text);
    case 'torchtune':
      return readTorchtune(root, text, known);
    case 'torchtitan':
      return readTorchtitan(root, text, known);
    case 'megatron':
      return readMegatron({ launcher: new Map(), program: '', options: root, faults: [] }, text, known);
    case 'trl':
    case 'trainer':
      return readTrainer(root, text, known, kind, [], objective);
  }
}

const MEGATRON = [
  'num_layers',
  'hidden_size',
  'num_attention_heads',
  'tensor_model_parallel_size',
  'pipeline_model_parallel_size',
  'seq_length',
  'global_batch_size',
  'use_mcore_models',
  'use_distributed_optimizer',
];

function readArguments(launch: Launch, text: string, known: Known): Reading {
  const { options, launcher, faults } = launch;
  const keys = [...options.entries.keys()];
  if (keys.filter((key) => MEGATRON.includes(key)).length >= 2) return { ok: true, import: readMegatron(launch, text, known) };
  const gpus = worldOf(launch);
  if (keys.some((key) => /^(training|parallelism|model|activation_checkpoint)\./.test(key))) {
    return { ok: true, import: readTorchtitan(nested(options), text, known, gpus?.count) };
  }
  const withLaunch = new Map(options.entries);
  // accelerate launch and deepspeed say how it is spread; the trainer's arguments come after its script.
  if (gpus) withLaunch.set('world_size', scalar(gpus.count, gpus.line));
  const deepspeed = launcher.get('deepspeed_config_file');
  if (deepspeed && !withLaunch.has('deepspeed')) withLaunch.set('deepspeed', scalar(deepspeed.text, deepspeed.line));
  const root = table(withLaunch, options.line);
  const kind = kindOf(root);
  if (!kind || kind === 'accelerate' || kind === 'deepspeed') {
    return failed([
      ...faults,
      { line: 0, key: '', value: keys.slice(0, 5).join(', '), message: `No trainer that is known here has these arguments. ${ACCEPTED}` },
    ]);
  }
  // trl dpo …, python dpo.py …
  const objective =
    /(?:^|[\W_])(sft|dpo|grpo|kto|orpo|cpo|rloo|ppo|reward)(?:[\W_]|$)/.exec(launch.program.split('/').at(-1) ?? '')?.[1] ?? '';
  const made = readKind(kind, root, text, known, objective);
  made.faults.unshift(...faults);
  return { ok: true, import: made };
}

function worldOf({ launcher }: Launch): { count: number; line: number } | undefined {
  const number = (...keys: string[]) => {
    for (const key of keys) {
      const word = launcher.get(key);
      if (word && /^\d{1,6}$/.test(word.text) && Number(word.text) > 0) return { count: Number(word.text), line: word.line };
    }
    return undefined;
  };
  const all = number('num_processes');
  if (all) return all;
  const perNode = number('nproc_per_node', 'num_gpus', 'gpus_per_node', 'ntasks_per_node');
  const nodes = number('nnodes', 'num_nodes', 'nodes', 'N');
  return perNode ? { count: perNode.count * (nodes?.count ?? 1), line: perNode.line } : undefined;
}

/** "training.seq_len" → training: {seq_len}. */
function nested(flat: Table): Table {
  const root = new Map<string, Value>();
  for (const [key, value] of flat.entries) {
    const [section = '', ...rest] = key.split('.');
    if (rest.length === 0) {
      root.set(key, value);
      continue;
    }
    const inner = root.get(section);
    const entries = inner?.kind === 'table' ? inner.entries : new Map<string, Value>();
    entries.set(rest.join('.'), value);
    root.set(section, { kind: 'table', entries, line: inner?.line ?? value.line });
  }
  return { kind: 'table', entries: root, line: flat.line };
}

const ADAPTER: Record<string, string> = { r: 'lora_r', target_modules: 'lora_target_modules', modules_to_save: 'lora_modules_to_save' };
const SKIPPED = [
  'train_dataset',
  'eval_dataset',
  'tokenizer',
  'processing_class',
  'data_collator',
  'callbacks',
  'compute_metrics',
  'formatting_func',
  'args',
  'peft_config',
  'quantization_config',
  'task_type',
  'bias',
  'lora_alpha',
  'inference_mode',
];

/** Python source: the arguments of all calls that say something, as one. */
function readSource(text: string, known: Known): Reading {
  const { calls, faults } = readPython(text);
  const told = calls.filter((call) => call.arguments.entries.size > 0 || call.first);
  const main = told.filter((call) => call.name !== 'dict');
  const command = /^[\s#>]*((?:\w+=\S+ +)*(?:accelerate|torchrun|deepspeed|python3?|trl|uv) [\s\S]*?)(?:\n\s*#?\s*\n|```|"""|''')/m.exec(
    text,
  )?.[1];
  const configured = main.some(
    (call) =>
      call.name === '' ||
      (/(Arguments|SFTConfig|DPOConfig|\w{3,4}Config)$/.test(call.name) && !/^(Lora|Peft|BitsAndBytes|Model)/.test(call.name)),
  );
  const launch = !configured && command ? readLaunch(command.replace(/^#/gm, '')) : undefined;
  // A script that parses its arguments often says in its head how it is run.
  if (launch) return readArguments(launch, text, known);
  if (main.length === 0)
    return failed([{ line: 0, key: '', value: '', message: `No TrainingArguments(…) or the like is in this source. ${ACCEPTED}` }]);
  const merged = new Map<string, Value>();
  for (const call of main) mergeCall(merged, call);
  const names = main.map((call) => call.name);
  const keys = [...merged.keys()];
  const trl =
    names.some((name) => /(SFT|DPO|GRPO|KTO|ORPO|CPO|RLOO|PPO|Reward|BCO|XPO|GKD|OnlineDPO)(Config|Trainer)$/.test(name)) ||
    (names.every((name) => name === '') &&
      keys.some((key) => ['max_length', 'max_seq_length', 'packing', 'dataset_text_field'].includes(key)));
  const made = readTrainer(table(merged, 1), text, known, trl ? 'trl' : 'trainer', names.filter(Boolean));
  made.faults.unshift(...faults);
  return { ok: true, import: made };
}

function mergeCall(into: Map<string, Value>, call: Call): void {
  const adapter = /^(Lora|Peft)Config$|get_peft_model/.test(call.name);
  if (call.name === 'from_pretrained' && call.first?.kind === 'scalar' && !into.has('model_name_or_path'))
    into.set('model_name_or_path', { ...call.first, line: call.line });
  for (const [key, value] of call.arguments.entries) {
    if (SKIPPED.includes(key)) continue;
    if (/Trainer$/.test(call.name) && key !== 'model' && !['max_seq_length', 'packing', 'dataset_text_field', 'beta'].includes(key))
      continue;
    if (/Trainer$/.test(call.name) && key === 'model' && value.kind !== 'scalar') continue;
    if (
      call.name === 'from_pretrained' &&
      ['device_map', 'use_cache', 'revision', 'cache_dir', 'token', 'padding_side', 'use_fast'].includes(key)
    )
      continue;
    if (call.name === 'from_pretrained' && key === 'quantization_config') continue;
    const name = key === 'model_name' ? 'model_name_or_path' : adapter && Object.hasOwn(ADAPTER, key) ? (ADAPTER[key] ?? key) : key;
    into.set(name, value);
  }
}
