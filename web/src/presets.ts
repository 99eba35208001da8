import { signal } from '@preact/signals';
import type { JsonObject } from './choice/choice';

// The models that come with the site: an index to search in, and a file for each. tools/site-data.ts makes them.

export interface Preset {
  id: string;
  type: string; // config.model_type
  parameters: number | null; // null: not known
  unsupported?: string; // why the core cannot estimate it
}

export type PresetIndex = { state: 'idle' | 'loading' | 'failed' } | { state: 'ready'; presets: Preset[] };
export const presetIndex = signal<PresetIndex>({ state: 'idle' });

export class PresetError extends Error {}

/** Loads the index once, when someone is about to search it; tries again after a failure. */
export async function loadPresetIndex(): Promise<void> {
  if (presetIndex.value.state === 'ready') return;
  loading ??= fetchIndex().finally(() => (loading = undefined));
  await loading;
}

let loading: Promise<void> | undefined;

async function fetchIndex(): Promise<void> {
  presetIndex.value = { state: 'loading' };
  try {
    presetIndex.value = { state: 'ready', presets: (await fetchJson('presets/index.json')) as Preset[] };
  } catch {
    presetIndex.value = { state: 'failed' };
  }
}

const configs = new Map<string, JsonObject>();

/** The config.json of a preset. Throws PresetError, in words for the user. */
export async function presetConfig(id: string): Promise<JsonObject> {
  const known = configs.get(id);
  if (known) return known;
  try {
    const file = (await fetchJson(`presets/models/${encodeURIComponent(id.replaceAll('/', '__'))}.json`)) as { config: JsonObject };
    configs.set(id, file.config);
    return file.config;
  } catch {
    throw new PresetError(await whyNoConfig(id));
  }
}

async function whyNoConfig(id: string): Promise<string> {
  await loadPresetIndex();
  const index = presetIndex.value;
  if (index.state !== 'ready') return `The configuration of “${id}” could not be loaded.`;
  const preset = index.presets.find((one) => one.id === id);
  if (preset?.unsupported) return `${id} cannot be estimated yet: ${preset.unsupported}`;
  if (preset) return `The configuration of “${id}” could not be loaded.`;
  return `There is no preset “${id}”. Choose another, or paste its config.json.`;
}

async function fetchJson(path: string): Promise<unknown> {
  const response = await fetch(path);
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

/**
 * The presets that a query means: each of its words is a part of the id, or of the family, or a size such as "8b". Those whose id
 * says it all come first, those that cannot be estimated last.
 */
export function search(presets: readonly Preset[], query: string): Preset[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = (preset: Preset) => (preset.unsupported ? 2 : words.every((word) => named(preset, word)) ? 0 : 1);
  return presets
    .filter((preset) => words.every((word) => named(preset, word) || preset.type.toLowerCase().includes(word) || ofSize(preset, word)))
    .sort((a, b) => rank(a) - rank(b) || begins(b, words[0]) - begins(a, words[0]));
}

/** 1 if the model's own name begins so: "gpt2" is GPT-2 before what was made of it. */
function begins({ id }: Preset, word = ''): number {
  return id.slice(id.indexOf('/') + 1).toLowerCase().startsWith(word) ? 1 : 0;
}

function named({ id }: Preset, word: string): boolean {
  return id.toLowerCase().includes(word);
}

const SIZE_TOLERANCE = 0.08; // models are named by round numbers: "8b" means 8.03 billion, "1b" is 1.24 billion by name alone

function ofSize({ parameters }: Preset, word: string): boolean {
  const size = /^(\d+(?:\.\d+)?)([mb])$/.exec(word);
  if (!size) return false;
  const asked = Number(size[1]) * (size[2] === 'b' ? 1e9 : 1e6);
  return parameters !== null && Math.abs(parameters - asked) <= SIZE_TOLERANCE * asked;
}
