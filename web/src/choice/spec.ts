import { modelName, type Choice, type Json, type JsonObject } from './choice.ts';
import { DESCRIBED, defaultSettings, field, fieldKeys, unmet, type FieldKey, type Settings } from './fields.ts';
import { copies, fsdpParamDtype, isFsdp, isStaged, methods, microbatches, nodesOf, splits, tensorDegree, whyNot, type Method } from './methods.ts';

// A choice, under one method, in the wire format (version 1), and back.

export interface SpecJob {
  key: Method;
  spec: string;
}

/**
 * What a choice asks the core: for each method that makes sense, the spec's text, which is also what its answer is known by. Two
 * of a pipeline: its first stage and its last, one of which holds most.
 */
export function jobsOf(choice: Choice, config: JsonObject): SpecJob[] {
  return methods
    .filter((method) => !whyNot(method, choice.settings))
    .flatMap((key) => ranksOf(key, choice.settings).map((rank) => ({ key, spec: JSON.stringify(specOf(choice, config, key, rank)) })));
}

/** The ranks that are worth an estimate of their own; undefined: all do the same. */
function ranksOf(method: Method, settings: Settings): (number | undefined)[] {
  return isStaged(method, settings) && settings.rank === null ? [0, settings.gpus - 1] : [undefined];
}

/** With the model's config inline: the core carries no presets. Says only what differs from the wire format's defaults, and the usual. */
export function specOf({ model, settings }: Choice, config: JsonObject, method: Method, rank?: number): JsonObject {
  const spec: JsonObject = { version: 1, model: { name: modelName(model), config }, training: {}, parallel: {}, cluster: {}, allocator: {} };
  for (const key of fieldKeys) if (isSent(key, settings, method)) put(spec, field(key).at, field(key).toWire(settings[key]));
  const training = spec.training as JsonObject;
  if (isFsdp(method, settings)) training.autocast = null;
  if (settings.checkpointing === 'every') training.checkpointing = { every: settings.checkpoint_every };
  const quantisation = training.base_quantization;
  if (isObject(quantisation)) quantisation.bits = Number(settings.bits);
  if (!unmet('evaluation', settings) && settings.evaluation) {
    training.evaluation = { ...(isObject(training.evaluation) ? training.evaluation : {}), batches: settings.eval_batches };
  }
  const parallel = spec.parallel as JsonObject;
  Object.assign(parallel, merged(parallel, parallelOf(method, settings)));
  if (rank !== undefined) parallel.rank = rank;
  const nodes = nodesOf(settings);
  const gpu = settings.gpu === DESCRIBED ? { compute_capability: settings.compute_capability, sms: settings.sms } : settings.gpu;
  spec.cluster = { ...(spec.cluster as JsonObject), gpu, gpus_per_node: Math.min(settings.gpus, settings.gpus_per_node), nodes };
  return spec;
}

/** The settings that a spec always names, though they be the defaults: what every training has to say. */
const USUAL: readonly FieldKey[] = [
  'method',
  'weights',
  'autocast',
  'optimizer',
  'implementation',
  'micro_batch',
  'sequence',
  'accumulation',
  'checkpointing',
  'attention',
  'max_grad_norm',
  'expandable_segments',
];

/** Those that parallelOf and specOf put into the spec. */
const OWN: readonly FieldKey[] = [
  'data',
  'gpus',
  'gpus_per_node',
  'gpu',
  'nodes',
  'compute_capability',
  'sms',
  'checkpoint_every',
  'evaluation',
  'kind',
  'replicate',
  'param_dtype',
  'reduce_dtype',
  'tensor_degree',
  'pipeline_degree',
  'context_degree',
  'microbatches',
];

function isSent(key: FieldKey, settings: Settings, method: Method): boolean {
  if (OWN.includes(key)) return false;
  if (USUAL.includes(key)) return true;
  const { methods: only, fallback, at } = field(key);
  if (settings[key] === fallback || unmet(key, settings)) return false;
  if (key === 'rank' && method === 'none') return false;
  return !only || (only.includes(method) && (method !== 'custom' || !at.startsWith('/parallel/data/') || ofKind(key, settings)));
}

/** Whether an option of `data` is one of the own mix's kind: those of other kinds are not sent. */
function ofKind(key: FieldKey, { kind }: Settings): boolean {
  const only: readonly string[] | undefined = field(key).methods;
  if (key === 'instances' || key === 'overlap_grad_reduce') return kind === 'distributed_optimizer' || kind === 'ddp';
  return only?.includes(kind) ?? true;
}

function parallelOf(method: Method, settings: Settings): JsonObject {
  const { gpus } = settings;
  const data = (kind: string, degree: number): JsonObject => ({ kind, degree, ...dtypesOf(method, kind, settings) });
  switch (method) {
    case 'none':
      return { data: { kind: 'none', degree: 1 } };
    case 'hsdp':
      return { data: { ...data('fsdp2', gpus), replicate: copies(settings) } };
    case 'tensor':
      return { data: { kind: 'none', degree: 1 }, tensor: { degree: gpus } };
    case 'tensor_fsdp2':
      return { data: data('fsdp2', gpus / tensorDegree(settings)), tensor: { degree: tensorDegree(settings) } };
    case 'pipeline':
      return { data: { kind: 'none', degree: 1 }, pipeline: { degree: gpus, microbatches: microbatches(settings) } };
    case 'custom':
      return ownMix(settings, data);
    default:
      return { data: data(method, gpus) };
  }
}

function ownMix(settings: Settings, data: (kind: string, degree: number) => JsonObject): JsonObject {
  const { kind, gpus, replicate, tensor_degree, pipeline_degree, context_degree } = settings;
  const mix: JsonObject = { data: data(kind, gpus / splits(settings)) };
  if (kind === 'fsdp2' && replicate > 1) mix.data = { ...(mix.data as JsonObject), replicate };
  if (tensor_degree > 1) mix.tensor = { degree: tensor_degree };
  if (pipeline_degree > 1) mix.pipeline = { degree: pipeline_degree, microbatches: settings.microbatches };
  if (context_degree > 1) mix.context = { degree: context_degree };
  return mix;
}

function dtypesOf(method: Method, kind: string, settings: Settings): JsonObject {
  if (!isFsdp(method, settings)) return {};
  // accelerate's MixedPrecisionPolicy: both from the bf16 flag.
  if (kind === 'fsdp2' && settings.loop !== 'plain' && settings.param_dtype === 'auto') {
    const dtype = settings.autocast === 'none' ? null : settings.autocast;
    return { param_dtype: dtype, reduce_dtype: dtype };
  }
  const param_dtype = fsdpParamDtype(settings);
  const reduce_dtype = settings.reduce_dtype === 'none' ? null : settings.reduce_dtype;
  // FSDP1 has no null: what is not cast is said by its dtype.
  if (kind === 'fsdp1') return { param_dtype: param_dtype ?? settings.weights, ...(reduce_dtype ? { reduce_dtype } : {}) };
  return { param_dtype, reduce_dtype };
}

/** A choice that asks for what a spec says, and what of it could not be taken over. */
export interface ReadSpec {
  settings: Settings;
  complaints: { at: string; text: string }[];
}

/** The model is not read here: it may be a preset's id or a config. Never fails. */
export function settingsOf(spec: JsonObject): ReadSpec {
  const complaints: ReadSpec['complaints'] = [];
  let settings = defaultSettings();
  const known = new Set(['/version', '/model']);
  for (const key of fieldKeys) {
    const { at, expected, fromWire } = field(key);
    if (key === 'data' || key === 'gpus') continue;
    known.add(at);
    const json = get(spec, at);
    if (json === undefined || isSpecial(key, json)) continue;
    const value = fromWire(key === 'bits' && typeof json === 'number' ? String(json) : json);
    if (value === undefined) complaints.push({ at, text: `${JSON.stringify(json).slice(0, 80)} is not ${expected}.` });
    else settings = { ...settings, [key]: value };
  }
  if (isObject(get(spec, '/training/checkpointing'))) settings = { ...settings, checkpointing: 'every' };
  if (isObject(get(spec, '/training/evaluation'))) settings = { ...settings, evaluation: true };
  if (isObject(get(spec, '/cluster/gpu'))) settings = { ...settings, gpu: DESCRIBED };
  known.add('/parallel/data/degree');
  for (const at of leaves(spec, '', known)) complaints.push({ at, text: 'is not known here; it was left out.' });
  return { settings: withMethod(settings, spec), complaints };
}

/** Objects where a text is also possible: their parts are fields of their own. */
function isSpecial(key: FieldKey, json: Json): boolean {
  return (['checkpointing', 'evaluation', 'gpu'] as FieldKey[]).includes(key) && isObject(json);
}

/** The named method that a spec's degrees are, or the own mix. */
function withMethod(read: Settings, spec: JsonObject): Settings {
  const degree = whole(get(spec, '/parallel/data/degree')) ?? 1;
  const kind = get(spec, '/parallel/data/kind') === undefined ? 'none' : read.kind;
  const alone = degree * splits(read);
  // One GPU of a cluster works alone, the others idle.
  const given = get(spec, '/cluster/gpus_per_node') !== undefined && read.nodes !== null;
  const gpus = given && alone === 1 ? read.gpus_per_node * (read.nodes ?? 1) : alone;
  const settings: Settings = { ...read, kind, gpus, data: 'custom', ...reduceDtypeOf(read, spec), ...paramDtypeOf(read, spec) };
  for (const data of methods) {
    if (data === 'custom') continue;
    const named: Settings = { ...settings, data };
    if (!whyNot(data, named) && same(parallelSpec(data, named), parallelSpec('custom', { ...settings, gpus: alone }))) return tidy(named);
  }
  return tidy({ ...settings, gpus: alone });
}

/** What FSDP computes in, where that is not what the recipe says anyhow. */
function paramDtypeOf(settings: Settings, spec: JsonObject): Partial<Settings> {
  const said = get(spec, '/parallel/data/param_dtype');
  // Under FSDP a recipe computes in param_dtype; with weights in fp32 that is what other methods do by autocast.
  const computed = said === undefined ? 'bfloat16' : said;
  const { autocast, weights } = settings;
  if (!settings.kind.startsWith('fsdp') || get(spec, '/parallel/data/kind') === undefined) return { param_dtype: 'auto' };
  if (autocast === 'none' && weights === 'float32' && computed === 'bfloat16') return { autocast: 'bfloat16', param_dtype: 'auto' };
  if (fsdpParamDtype({ ...settings, param_dtype: 'auto' }) === computed) return { param_dtype: 'auto' };
  return { param_dtype: computed === null ? 'none' : (settings.param_dtype as 'bfloat16' | 'float16' | 'float32') };
}

/** What FSDP1 does not name it reduces as it is. */
function reduceDtypeOf({ kind }: Settings, spec: JsonObject): Partial<Settings> {
  return kind === 'fsdp1' && (get(spec, '/parallel/data/reduce_dtype') ?? null) === null ? { reduce_dtype: 'none' } : {};
}

/** GPUs of a node as many as there are, so that nodes need not be named where that is what they come to. */
function tidy(settings: Settings): Settings {
  const nodes = settings.nodes === Math.ceil(settings.gpus / settings.gpus_per_node) ? null : settings.nodes;
  const kind = settings.data === 'custom' ? settings.kind : 'fsdp2';
  const degrees = settings.data === 'custom' ? {} : { pipeline_degree: 1, tensor_degree: settings.data === 'tensor_fsdp2' ? settings.tensor_degree : 1 };
  return { ...settings, nodes, kind, ...degrees };
}

function parallelSpec(method: Method, settings: Settings): Json {
  const { parallel } = specOf({ model: { kind: 'preset', id: '' }, settings }, {}, method);
  return parallel ?? {};
}

function same(a: Json, b: Json): boolean {
  if (!isObject(a) || !isObject(b)) return JSON.stringify(a) === JSON.stringify(b);
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...keys].every((key) => same(a[key] ?? null, b[key] ?? null));
}

function* leaves(json: Json | undefined, at: string, known: Set<string>): Generator<string> {
  if (known.has(at) && !(isObject(json) && [...known].some((one) => one.startsWith(`${at}/`)))) return;
  if (isObject(json)) for (const key of Object.keys(json)) yield* leaves(json[key], `${at}/${key}`, known);
  else if (at !== '') yield at;
}

function merged(a: JsonObject, b: JsonObject): JsonObject {
  const out: JsonObject = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const before = out[key];
    out[key] = isObject(before) && isObject(value) ? merged(before, value) : value;
  }
  return out;
}

function put(spec: JsonObject, at: string, value: Json): void {
  const path = at.slice(1).split('/');
  const last = path.pop() ?? '';
  let object = spec;
  for (const key of path) {
    const inner = object[key];
    object = isObject(inner) ? inner : ((object[key] = {}) as JsonObject);
  }
  object[last] = value;
}

function get(spec: JsonObject, at: string): Json | undefined {
  let json: Json | undefined = spec;
  for (const key of at.slice(1).split('/')) json = isObject(json) && Object.hasOwn(json, key) ? json[key] : undefined;
  return json;
}

function whole(json: Json | undefined): number | undefined {
  return typeof json === 'number' && Number.isSafeInteger(json) && json >= 1 ? json : undefined;
}

function isObject(json: Json | undefined): json is JsonObject {
  return typeof json === 'object' && json !== null && !Array.isArray(json);
}
