import type { Choice, Json, JsonObject, Model } from '../choice/choice';
import { field, fieldKeys, type Settings } from '../choice/fields';
import type { Method } from '../choice/methods';
import { settingsOf, specOf } from '../choice/spec';
import type { Kind } from './draft';

// An import over what is chosen → a new choice. A trainer's file says the whole recipe: what it leaves out is at its default, but
// for what it leaves open. A launcher's file (accelerate, DeepSpeed) says how the model is spread, and leaves the recipe alone.

export interface Applied {
  choice: Choice;
  complaints: { at: string; text: string }[]; // what the page has no control for, or cannot take
}

const LAUNCHERS: readonly Kind[] = ['accelerate', 'deepspeed'];
/** What a recipe may leave open: then what is chosen stays. */
const OPEN = ['micro_batch', 'sequence', 'accumulation', 'optimizer', 'attention', 'weights', 'autocast'] as const;

export function apply(choice: Choice, method: Method, spec: JsonObject, kinds: readonly Kind[]): Applied {
  const now = specOf(choice, {}, method);
  const whole = kinds.some((kind) => !LAUNCHERS.includes(kind));
  const training = whole
    ? { ...open(object(now.training)), ...object(spec.training) }
    : merged(object(now.training), object(spec.training));
  const given = object(spec.parallel);
  const data = object(given.data);
  const spread =
    data.kind !== undefined ||
    data.degree !== undefined ||
    ['tensor', 'pipeline', 'context', 'expert'].some((key) => given[key] !== undefined);
  // How the model is spread stays as it is then, and what it computes in is the recipe's.
  const parallel = spread ? spreadOver(choice.settings, given, data) : { offload: merged(object(object(now.parallel).offload), object(given.offload)) };
  const next: JsonObject = {
    version: 1,
    training,
    parallel,
    cluster: clusterOf(choice.settings, object(now.cluster), object(spec.cluster), parallel),
    allocator: merged(object(now.allocator), object(spec.allocator)),
  };
  const read = settingsOf(next);
  const settings = spread ? read.settings : { ...read.settings, ...kept(choice.settings) };
  // A named optimizer without a word of its implementation runs as it does unasked.
  return {
    choice: { model: modelOf(spec.model) ?? choice.model, settings },
    complaints: read.complaints.filter(({ at }) => within(spec, at)),
  };
}

function open(training: JsonObject): JsonObject {
  return Object.fromEntries(OPEN.flatMap((key) => (training[key] === undefined ? [] : [[key, training[key]]])));
}

/** Where the file says nothing of it, everything about how the model is spread stays. */
function kept(settings: Settings): Partial<Settings> {
  const keys = fieldKeys.filter(
    (key) => (field(key).at.startsWith('/parallel/') && !field(key).at.startsWith('/parallel/offload')) || key === 'data' || key === 'gpus',
  );
  return Object.fromEntries(keys.map((key) => [key, settings[key]]));
}

/** A file without a number of GPUs runs on those that are chosen. */
function spreadOver(settings: Settings, given: JsonObject, data: JsonObject): JsonObject {
  const splits = ['tensor', 'pipeline', 'context'].reduce((product, key) => product * degree(object(given[key])), 1);
  const ranks = typeof data.degree === 'number' ? data.degree : Math.max(1, Math.floor(settings.gpus / splits));
  // Several ranks and no word of how: the Trainer's own way is DDP.
  const kind = typeof data.kind === 'string' ? data.kind : ranks > 1 ? 'ddp' : 'none';
  return { ...given, data: { ...data, kind, degree: kind === 'none' ? 1 : ranks } };
}

function clusterOf(settings: Settings, now: JsonObject, given: JsonObject, parallel: JsonObject): JsonObject {
  const world = ['data', 'tensor', 'pipeline', 'context'].reduce((product, key) => product * degree(object(parallel[key])), 1);
  const perNode = typeof given.gpus_per_node === 'number' ? given.gpus_per_node : settings.gpus_per_node;
  const nodes = typeof given.nodes === 'number' && given.nodes * perNode >= world ? given.nodes : Math.ceil(world / perNode);
  return { ...merged(now, given), gpus_per_node: perNode, nodes };
}

function degree(part: JsonObject): number {
  return typeof part.degree === 'number' && part.degree >= 1 ? part.degree : 1;
}

function modelOf(model: Json | undefined): Model | undefined {
  if (typeof model === 'string') return { kind: 'preset', id: model };
  const { name, config } = object(model);
  return typeof name === 'string' && typeof config === 'object' && config !== null && !Array.isArray(config)
    ? { kind: 'pasted', name, config }
    : undefined;
}

function within(spec: JsonObject, at: string): boolean {
  let value: Json | undefined = spec;
  for (const key of at.slice(1).split('/')) value = object(value)[key];
  return value !== undefined;
}

function merged(a: JsonObject, b: JsonObject): JsonObject {
  const out: JsonObject = { ...a };
  for (const [key, value] of Object.entries(b)) out[key] = isObject(out[key]) && isObject(value) ? merged(object(out[key]), value) : value;
  return out;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function object(value: Json | undefined): JsonObject {
  return isObject(value) ? value : {};
}
