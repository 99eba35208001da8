// A measured run, in the words of its source → a spec of the wire format. General rules only: nothing here knows a row.
import * as tables from './tables.mjs';
import { isFunctionalTest, megatronModel, megatronStages, useMegatron } from './megatron.mjs';
import { findModel } from './models.mjs';

const said = (value) => (value === null || value === undefined ? '' : String(value)).toLowerCase().trim();

// The first row of a table whose pattern is in the text, or null.
function look(table, text) {
  const found = table.find(([pattern]) => pattern.test(text));
  return found ? found[1] : null;
}

// A number from a field that may be text or missing.
function count(value) {
  const number = Number(value);
  return Number.isInteger(number) && number > 0 ? number : null;
}

class Unmappable extends Error {}

function refuse(why) {
  throw new Unmappable(why);
}

// The table's entry for a field's words; what it assumes goes to the notes. A field that says nothing gives `otherwise`.
function read(notes, name, table, text, otherwise, otherwiseSays) {
  const found = text ? look(table, text) : null;
  if (!found && text && otherwise === undefined) refuse(`${name}: "${text.slice(0, 60)}" means nothing here`);
  if (!found) {
    if (otherwiseSays) notes.push(`${name}: ${otherwiseSays}`);
    return otherwise ?? {};
  }
  if (found.refuse) refuse(found.refuse);
  if (found.instead) notes.push(found.instead);
  if (found.assumed) notes.push(found.assumed);
  return found;
}

const everything = (row) => [row.source, row.source_url_or_repo_path, row.software, row.note].map(said).join(' ');

function frameworkOf(row) {
  const text = everything(row);
  return tables.frameworks.find(({ match }) => match.test(text)) ?? { name: 'a plain loop' };
}

function modelOf(row, framework, method, presets, notes) {
  const own = framework.stack === 'megatron' ? megatronModel(row) : null;
  if (own?.refuse) refuse(own.refuse);
  if (own) {
    if (own.says) notes.push(own.says);
    return { name: row.model, config: own.config };
  }
  const layers = truncatedTo(row);
  const found = findModel(layers ? said(row.model).replace(/[ (]*truncated to.*$/, '').replace(/-l\d+$/, '') : row.model, layers ? null : count(row.n_params), presets);
  if (found.refuse) refuse(found.refuse);
  if (found.assumed) notes.push(found.assumed);
  if (framework.expertsOnItsOwn && method.base && hasExperts(found.config)) refuse(framework.expertsOnItsOwn);
  const changes = { ...(layers ? cutTo(layers, found.config) : {}), ...(layers ? shapeOf(row, found.config) : {}) };
  if (framework.padToken && lacksPadToken(found.config)) {
    changes.vocab_size = found.config.vocab_size + 1;
    notes.push(framework.says);
  }
  if (found.config.model_type === 'mistral' && callsItsOwnCrossEntropy(row)) {
    Object.assign(changes, { model_type: 'llama', architectures: ['LlamaForCausalLM'], sliding_window: null });
    notes.push('Mistral\'s layers as Llama\'s, whose cross-entropy Liger replaces as this program\'s kernel replaced Mistral\'s');
  }
  if (method.head) changes.architectures = [found.config.architectures[0].replace(/For\w+$/, method.head)];
  if (found.key && Object.keys(changes).length === 0) return found.id;  // a preset as it is
  return { name: found.id, config: { ...found.config, ...changes } };
}

// A fused cross-entropy of the program's own. Liger's, which is played for it, replaces nothing in Mistral.
const callsItsOwnCrossEntropy = (row) => /fast_loss|fused ce/.test(said(row.loss_impl));

const hasExperts = (config) => [config, config.text_config ?? {}].some((c) => c.num_experts || c.num_local_experts || c.n_routed_experts);

// "llama3-70b truncated to 12 layers": so many of the model's.
function truncatedTo(row) {
  const label = /truncated to (\d+) layers/.exec(said(row.model));
  return label ? Number(label[1]) : null;
}

// What says something of each layer is cut to as many.
function cutTo(layers, config) {
  const changes = { num_hidden_layers: layers };
  for (const [key, value] of Object.entries(config)) if (Array.isArray(value) && value.length === config.num_hidden_layers) changes[key] = value.slice(0, layers);
  return changes;
}

const shapes = { hidden: 'hidden_size', ffn: 'intermediate_size', heads: 'num_attention_heads', kv_heads: 'num_key_value_heads', vocab: 'vocab_size' };

// Sizes that the row says of a model that was changed.
function shapeOf(row, config) {
  const changes = {};
  for (const [key, name] of Object.entries(shapes)) if (count(row.arch?.[key]) && name in config) changes[name] = row.arch[key];
  return changes;
}

// SentencePiece tokenizers of Llama 2's time come without a pad token.
const lacksPadToken = ({ model_type: type, vocab_size: words }) => ['llama', 'mistral', 'mixtral'].includes(type) && words === 32000;

function gpuOf(row, notes) {
  const name = said(row.gpu), gb = Number(row.gpu_capacity_gb) || 0;
  const found = tables.gpus.find(([pattern, entry]) => pattern.test(name) && (!entry.gb || gb >= entry.gb));
  if (found?.[1].refuse) refuse(found[1].refuse);
  if (found) {
    if (found[1].assumed) notes.push(found[1].assumed);
    return { gpu: found[1].id ?? found[1].described, known: true };
  }
  if (gb > 0) {
    const [, id] = tables.gpusBySize.reduce((best, each) => (Math.abs(each[0] - gb) < Math.abs(best[0] - gb) ? each : best));
    notes.push(`GPU: ${id}, the usual one of ${gb} GB`);
    return { gpu: id, known: true };
  }
  notes.push('GPU: not stated, an A100 80GB');
  return { gpu: 'a100-sxm-80gb', known: false };
}

function targetsOf(row, framework, notes) {
  const targets = row.lora?.targets;
  if (framework.stack === 'litgpt') return targets ?? ['query', 'value'];  // its own words
  if (targets === null || targets === undefined) {
    notes.push('LoRA: on q_proj and v_proj, PEFT\'s default');
    return ['q_proj', 'v_proj'];
  }
  if (typeof targets === 'string') {
    if (/^all.?linear$/i.test(targets)) return 'all-linear';
    return [...new Set(tables.modulePaths.filter(([, path]) => matches(targets, path)).map(([name]) => name))];
  }
  const names = [];
  for (const target of targets) {
    const last = String(target).split('.').pop();
    for (const name of tables.moduleNames[last] ?? [last]) if (!names.includes(name)) names.push(name);
  }
  return names.filter((name) => name !== 'experts');
}

function matches(pattern, path) {
  try {
    return new RegExp(pattern).test(path);
  } catch {
    return false;
  }
}

function adapterOf(row, framework, method, notes) {
  const lora = row.lora ?? {};
  const adapter = { rank: count(lora.r) ?? count(lora.rank) ?? 8, targets: targetsOf(row, framework, notes), dropout: Number(lora.dropout ?? framework.loraDropout) || 0 };
  if (lora.dropout === null && framework.loraDropout) notes.push(`LoRA: dropout ${framework.loraDropout}, ${framework.name}'s default`);
  if (!count(lora.r) && !count(lora.rank)) notes.push('LoRA: rank 8, PEFT\'s default');
  if (adapter.targets.length === 0) refuse('none of LoRA\'s modules is known');
  const words = `${said(row.precision)} ${said(row.master_weights)}`;
  if (framework.upcast === false || /adapters (in )?bf16|incl\. adapters/.test(words)) adapter.upcast = false;
  if (method.dora) adapter.dora = true;
  const saved = lora.modules_to_save ?? (method.saved ? ['embed_tokens', 'lm_head'] : []);
  if (saved.length > 0) adapter.modules_to_save = saved;
  return adapter;
}

function trainingOf(row, framework, method, notes) {
  const precision = read(notes, 'precision', tables.precisions, `${said(row.precision)} ${said(row.master_weights)}`.trim(), { weights: 'bfloat16' }, 'not stated, bfloat16');
  const training = { method: method.method, weights: precision.weights };
  if (method.objective) training.objective = method.objective;
  if (method.method === 'lora') training.adapter = adapterOf(row, framework, method, notes);
  if (method.base) addBase(row, framework, method, precision, training);
  training.optimizer = optimizerOf(row, framework, notes);
  Object.assign(training, batchOf(row));
  addCheckpointing(row, framework, training, notes);
  training.attention = read(notes, 'attention', tables.attentions, said(row.attention), { attention: 'sdpa' }, 'not stated, SDPA').attention;
  if (framework.stack !== 'litgpt') addLoss(row, training, notes);  // which has a loss of its own
  training.loop = loopOf(row, framework, notes);
  if (framework.clip && training.loop === 'plain') training.max_grad_norm = framework.clip;
  if (/true|aot|yes/.test(said(row.compile))) training.compile = true;
  if (isPadded(row) && training.loop !== 'plain' && training.micro_batch > 1) training.mask = 'padded';
  return { training, precision };
}

// TRL's own loss came with version 1; before, its SFTTrainer trained as HF's Trainer does.
function loopOf(row, framework, notes) {
  const words = Object.values(row).filter((value) => typeof value === 'string').map(said).join(' ');
  const loop = framework.loop ?? (framework.match ? 'plain' : look(tables.loops, words) ?? 'plain');
  const trl = /\btrl (\d+)\./.exec(words);
  if (loop !== 'sft_trainer' || (trl ? Number(trl[1]) >= 1 : !isOldTransformers(row))) return loop;
  notes.push('SFTTrainer of TRL before 1: as HF\'s Trainer');
  return 'trainer';
}

const isTrainer = (row, framework) => loopOf(row, framework, []) !== 'plain';

const isPadded = (row) => /padded|unpacked/.test(said(row.packing));

function addBase(row, framework, method, precision, training) {
  training.base_quantization = { ...method.base };
  if (framework.doubleQuant && /nf4|fp4/.test(method.base.type)) training.base_quantization.double_quant = true;
  if (/nf4|fp4/.test(method.base.type)) training.base_quantization.compute_dtype = precision.compute ?? precision.weights;
  const note = said(row.note);
  training.prepare_kbit = framework.prepareKbit ?? !/no fp32 upcast/.test(note);
}

function optimizerOf(row, framework, notes) {
  const text = said(row.optimizer);
  const { name, implementation, momentum } = read(notes, 'optimizer', tables.optimizers, text, { name: 'adamw' }, 'not stated, AdamW');
  const optimizer = { name };
  const fused = framework.fused && dateOf(row) >= (framework.fusedFrom ?? '');
  const how = implementation ?? look(tables.implementations, text) ?? (fused && /^adamw?$/.test(name) ? 'fused' : null);
  if (how) optimizer.implementation = how;
  if (momentum) optimizer.momentum = momentum;
  if (/in_bwd|in.?backward/.test(text)) optimizer.in_backward = true;
  return optimizer;
}

// What was measured before any step, and says nothing of one.
const isLoaded = (row) => look(tables.metrics, said(row.metric))?.metric === 'loaded';

function batchOf(row) {
  const least = isLoaded(row) ? 1 : null;
  const micro_batch = count(row.micro_batch) ?? least, sequence = count(row.seq_len) ?? least;
  if (!micro_batch) refuse('the batch is not given');
  if (!sequence) refuse('the length of the sequences is not given');
  return { micro_batch, sequence, accumulation: count(row.grad_accum) ?? 1 };
}

// Transformers checkpointed reentrantly by itself before version 5.
function addCheckpointing(row, framework, training, notes) {
  const text = said(row.gradient_checkpointing);
  const { checkpointing } = read(notes, 'checkpointing', tables.checkpointings, text, { checkpointing: 'none' }, `${text ? `"${text}"` : 'not stated'}, none`);
  training.checkpointing = checkpointing;
  if (checkpointing === 'full' && !/reentrant/.test(text)) training.checkpointing = framework.checkpointing ?? (isOldTransformers(row) ? 'full_reentrant' : 'full');
  if (checkpointing === 'every') training.checkpointing = { every: count(/every (\d+)/.exec(text)[1]) ?? 2 };
}

function addLoss(row, training, notes) {
  const text = said(row.loss_impl);
  const { loss } = read(notes, 'loss', tables.losses, text, { loss: 'standard' }, text ? `"${text}", the standard one` : 'not stated, the standard one');
  training.loss = loss;
  const { instead, ...liger } = look(tables.kernels, `${said(row.note)} ${text} ${said(row.software)}`) ?? {};
  if (Object.keys(liger).length > 0) training.kernels = { liger };
  if (instead) notes.push(instead);
  const chunk = /chunk (\d+)/.exec(text);
  if (loss === 'chunked' && chunk) training.loss_chunk = Number(chunk[1]);
}

function seriesOf(version, notes) {
  const [major, minor = 0] = version.split('.').map(Number);
  const [, , series] = tables.transformersSeries.find(([most, least]) => major < most || (major === most && minor <= least));
  if (series !== '5' && version !== series && !version.startsWith(`${series}.`)) notes.push(`Transformers ${version}, played as ${series}`);
  return series;
}

// "2025-02-27", "2024-12"; without one, the newest
const dateOf = (row) => /\b20\d\d(-\d\d)*/.exec(said(row.date_or_version))?.[0] ?? '9999';

function softwareOf(row, framework, notes) {
  const software = {};
  for (const [name, spellings] of Object.entries(tables.packages)) {
    const version = new RegExp(`\\b(?:${spellings}) (\\d+(?:\\.\\d+)+)`).exec(`${said(row.software)} ${said(row.date_or_version)}`);
    if (version) software[name] = version[1];
  }
  if (framework.bitsandbytes && !software.bitsandbytes) software.bitsandbytes = framework.bitsandbytes;
  if (software.transformers) software.transformers = seriesOf(software.transformers, notes);
  if (framework.stack) software.stack = framework.stack;
  if (framework.stack === 'torchtitan' && dateOf(row) < '2025-07-28') software.torchtitan = '0.1';  // before its #1094
  return software;
}

function isOldTransformers(row) {
  const version = /transformers (\d+)\./.exec(said(row.software));
  return version !== null && Number(version[1]) < 5;
}

function dataOf(row, framework, degrees, precision, notes) {
  const found = read(notes, 'strategy', tables.strategies, said(row.strategy), { data: degrees.data > 1 ? 'ddp' : 'none' });
  const data = { kind: found.data };
  if (data.kind === 'none') return degrees.data > 1 ? { kind: 'ddp', degree: degrees.data } : data;
  data.degree = degrees.data;
  if (found.strategy) data.strategy = found.strategy;
  if (data.kind === 'distributed_optimizer' && count(row.parallel?.num_dist_opt_instances)) data.instances = count(row.parallel.num_dist_opt_instances);
  if (/^zero/.test(data.kind) && !isTrainer(row, framework)) data.auto_buckets = false;  // "auto" is what Transformers fills in
  if (data.kind === 'fsdp1') addFsdp1(row, framework, precision, data);
  if (data.kind === 'fsdp2') addFsdp2(row, precision, data);
  return data;
}

function addFsdp1(row, framework, precision, data) {
  if (framework.autoWrap) data.auto_wrap = framework.autoWrap;
  const sharding = said(row.parallel?.sharding).toUpperCase();
  if (sharding) data.strategy = sharding;
  data.param_dtype = precision.compute ?? null;
  if (/fp32 reduce|reduce.{0,12}fp32/.test(said(row.precision))) data.reduce_dtype = 'float32';
  if (row.parallel?.forward_prefetch === true) data.forward_prefetch = true;
  if (row.parallel?.backward_prefetch) data.backward_prefetch = said(row.parallel.backward_prefetch).toUpperCase();
}

function addFsdp2(row, precision, data) {
  data.param_dtype = precision.compute ?? null;
  if (precision.weights !== 'float32') data.reduce_dtype = null;
  const reshard = said(row.parallel?.reshard_after_forward);
  if (/never|false/.test(reshard)) data.reshard_after_forward = false;
  const replicas = count(row.parallel?.dp_replicate) ?? count(row.parallel?.replicate);
  if (replicas > 1) data.replicate = replicas;
}

function degreesOf(row, notes) {
  const p = row.parallel ?? {};
  const tensor = count(p.tp) ?? 1, pipeline = count(p.pp) ?? 1, context = count(p.cp) ?? 1, expert = count(p.ep) ?? 1;
  const gpus = count(row.num_gpus);
  if (!gpus) refuse('the number of GPUs is not given');
  const split = tensor * pipeline * context;
  let data = count(p.dp) ?? (count(p.dp_shard) ? count(p.dp_shard) * (count(p.dp_replicate) ?? 1) : null);
  if (data && data * split !== gpus) notes.push(`parallel: ${gpus} GPUs are not data ${data} × tensor ${tensor} × pipeline ${pipeline} × context ${context}`);
  if (!data) data = Math.max(1, Math.floor(gpus / split));
  return { data, tensor, pipeline, context, expert };
}

function pipelineOf(row, degrees, training, framework, notes) {
  const p = row.parallel ?? {}, degree = degrees.pipeline;
  if (framework.stack === 'torchtitan') return titanPipeline(row, degree, training, notes);
  const microbatches = count(p.microbatches) ?? (count(p.gbs) ? Math.max(1, Math.floor(p.gbs / (degrees.data * training.micro_batch))) : count(row.grad_accum));
  const pipeline = { degree, schedule: look(tables.schedules, said(p.schedule)) ?? '1f1b', microbatches: microbatches ?? degree };
  if (!microbatches) notes.push(`pipeline: ${degree} microbatches, one a stage`);
  const stages = count(p.vpp) ?? (count(p.stages) ? Math.floor(p.stages / degree) : null);
  if (stages > 1) Object.assign(pipeline, { virtual: stages, schedule: 'interleaved_1f1b' });
  training.accumulation = 1;
  if (count(p.microbatches) && training.micro_batch % p.microbatches === 0) training.micro_batch /= p.microbatches;
  return pipeline;
}

// torchtitan cuts the batch of a rank: into microbatches of one row or, up to 2024, into as many as there are stages. Two stages a rank where the
// schedule has several (distributed/pipeline_parallel.py).
function titanPipeline(row, degree, training, notes) {
  const p = row.parallel ?? {}, schedule = look(tables.schedules, said(p.schedule)) ?? '1f1b', single = /^(1f1b|gpipe)$/.test(schedule);
  const virtual = count(p.stages) ? Math.floor(p.stages / degree) : single ? 1 : 2;
  let microbatches = count(p.microbatches);
  if (!microbatches) {
    microbatches = dateOf(row) < '2025' ? Math.min(degree * virtual, training.micro_batch) : training.micro_batch;
    notes.push(`pipeline: ${microbatches} microbatches, torchtitan's default`);
  }
  training.accumulation = 1;
  training.micro_batch = Math.max(1, Math.floor(training.micro_batch / microbatches));
  return { degree, schedule, microbatches, ...(virtual > 1 ? { virtual } : {}) };
}

function parallelOf(row, framework, training, precision, notes) {
  const degrees = degreesOf(row, notes);
  const parallel = { data: dataOf(row, framework, degrees, precision, notes) };
  if (degrees.tensor > 1) parallel.tensor = { degree: degrees.tensor, sequence: row.parallel?.sp ?? true, loss: framework.lossParallel ?? /loss.?parallel|vocab-parallel/.test(said(row.loss_impl)) };
  if (degrees.pipeline > 1) parallel.pipeline = pipelineOf(row, degrees, training, framework, notes);
  if (degrees.pipeline > 1 && framework.stack === 'megatron') megatronStages(row, parallel.pipeline);
  if (degrees.context > 1) parallel.context = { degree: degrees.context, ...(/a2a/.test(said(row.strategy)) ? { rotate: 'a2a' } : {}) };
  if (degrees.expert > 1) parallel.expert = { degree: degrees.expert };
  if (degrees.expert > 1 && framework.stack === 'megatron' && !isFunctionalTest(row)) parallel.expert.tensor = 1;  // as Megatron-Bridge's recipes
  if (count(row.parallel?.etp)) parallel.expert = { ...parallel.expert, tensor: count(row.parallel.etp) };
  const offload = offloadOf(row, parallel.data.kind);
  if (Object.keys(offload).length > 0) parallel.offload = offload;
  const rank = rankOf(row, degrees);
  if (rank > 0) parallel.rank = rank;
  return parallel;
}

function offloadOf(row, kind) {
  const text = said(row.offload), offload = { ...(look(tables.offloads, text) ?? {}) };
  if (/^zero[12]$/.test(kind)) delete offload.parameters;
  if (/^fsdp/.test(kind) && (offload.optimizer || offload.parameters)) Object.assign(offload, { optimizer: 'cpu', parameters: 'cpu' });
  if (/activation|checkpoint/.test(text)) offload.activations = 'cpu';
  return offload;
}

// Which rank was read: the metric says so.
function rankOf(row, { data, tensor, pipeline, context }) {
  if (Number.isInteger(row.parallel?.rank_shown)) return row.parallel.rank_shown;
  return /last rank|last pp/.test(said(row.metric)) ? data * tensor * pipeline * context - 1 : 0;
}

function useMixedPrecision(training, parallel, precision, framework) {
  const { kind } = parallel.data;
  if (/^zero[123]$/.test(kind)) {  // DeepSpeed holds parameters in what it computes in and keeps its own fp32 copies
    training.weights = precision.compute ?? precision.weights;
    return;
  }
  // FSDP1 flattens packed values with the rest of a layer.
  if (kind === 'fsdp1' && /nf4|fp4/.test(training.base_quantization?.type)) training.base_quantization.quant_storage = training.weights;
  if (kind === 'fsdp1' && training.loop !== 'plain' && precision.compute) training.autocast = precision.compute;  // the flag that becomes FSDP's mixed precision
  if (framework.stack === 'megatron') training.weights = precision.compute ?? precision.weights;
  if (/^fsdp|megatron/.test(kind) || framework.stack === 'megatron') return;
  if (precision.compute && (precision.autocast || precision.compute !== precision.weights)) training.autocast = precision.compute;
  if (precision.scaler && training.autocast) training.grad_scaler = true;
}

function allocatorOf(row, framework) {
  const text = `${said(row.id)} ${said(row.metric)} ${said(row.note)} ${said(row.software)}`;
  return framework.expandable || /expandable/.test(text) ? { expandable_segments: true } : null;
}

function specOf(row, presets, notes) {
  const framework = frameworkOf(row);
  if (framework.differs) notes.push(framework.differs);
  if (framework.before && dateOf(row) < framework.before.date) notes.push(framework.before.says);
  if (/simple.?fsdp/.test(everything(row))) notes.push('SimpleFSDP, whose gathers and reductions the compiler places and merges, played as FSDP2');
  const method = read(notes, 'method', tables.methods, isLoaded(row) ? said(row.method).replace(/\(.*\)/, '') : said(row.method), { method: 'full' }, 'not stated, full');
  const { training, precision } = trainingOf(row, framework, method, notes);
  const parallel = parallelOf(row, framework, training, precision, notes);
  useMixedPrecision(training, parallel, precision, framework);
  if (framework.stack === 'megatron') useMegatron(row, training, notes);
  const { gpu, known } = gpuOf(row, notes);
  const spec = { model: modelOf(row, framework, method, presets, notes), training, parallel, cluster: { gpu }, software: softwareOf(row, framework, notes) };
  const allocator = allocatorOf(row, framework);
  if (allocator) spec.allocator = allocator;
  const anyRank = !Number.isInteger(row.parallel?.rank_shown) && !/last rank|last pp|rank.?\d/.test(said(row.metric));
  return { spec, gpuKnown: known, anyRank };
}

// {spec, notes, gpuKnown, anyRank} or {refused: why, notes}; anyRank: the row does not say whose memory was read
export function mapRow(row, presets) {
  const notes = [];
  try {
    if (typeof row !== 'object' || row === null) refuse('not an object');
    if (row.scope === 'kernel') refuse('one operator, no training run');
    return { ...specOf(row, presets, notes), notes };
  } catch (error) {
    if (error instanceof Unmappable) return { refused: error.message, notes };
    return { refused: `the row cannot be read: ${error.message}`, notes };
  }
}
