// llmem.js: the core as an ES module for other pages, `import { estimate } from '…/llmem.js'`. Its types are llmem.d.ts beside it
// (tools/module-types.ts). The engine comes with the first call; models that are named come from this site's own files.
import createCore from 'llmem-core';
import binary from 'llmem-core-binary?url';
import rest from 'llmem-core-rest?url';
import type { Envelope } from './core/answer';

type Core = Awaited<ReturnType<typeof createCore>>;
const here = import.meta.url; // where this file lies, and the site's files beside it
let core: Promise<Core> | undefined;
const configs = new Map<string, Promise<unknown>>();

/** Both files at once: outside a worker the second cannot be waited for when it is needed. */
async function create(): Promise<Core> {
  const response = await fetch(new URL(rest, here));
  if (!response.ok) throw new Error(`the estimator: ${response.status} ${response.statusText}`);
  const restBinary = new Uint8Array(await response.arrayBuffer());
  return createCore({ locateFile: () => new URL(binary, here).href, restBinary });
}

function load(): Promise<Core> {
  core ??= create().catch((error: unknown) => {
    core = undefined; // what could not be had now may be there later
    throw error;
  });
  return core;
}

/** A spec, or its JSON text → the core's answer. Rejects only if the engine cannot be loaded; what is wrong with a spec is in the answer. */
export async function estimate(spec: unknown): Promise<Envelope> {
  const engine = await load();
  const text = typeof spec === 'string' ? spec : JSON.stringify(spec);
  return JSON.parse(engine.estimate(await withConfig(text))) as Envelope;
}

/** The models that can be named. */
export async function models(): Promise<{ id: string; type: string; parameters: number; unsupported?: string }[]> {
  const response = await fetch(new URL('presets/index.json', here));
  if (!response.ok) throw new Error(`the list of models: ${response.status} ${response.statusText}`);
  return (await response.json()) as { id: string; type: string; parameters: number }[];
}

/** A preset's id → its config.json; whatever else stands there is the core's to judge. */
async function withConfig(text: string): Promise<string> {
  let spec: unknown;
  try {
    spec = JSON.parse(text);
  } catch {
    return text;
  }
  if (typeof spec !== 'object' || spec === null || !('model' in spec) || typeof spec.model !== 'string') return text;
  const { model: id } = spec;
  const known = configs.get(id) ?? preset(id);
  configs.set(id, known);
  const config = await known;
  if (config === undefined) {
    configs.delete(id);
    return text; // the core says which models are like it
  }
  return JSON.stringify({ ...spec, model: { name: id, config } });
}

async function preset(id: string): Promise<unknown> {
  try {
    const response = await fetch(new URL(`presets/models/${encodeURIComponent(id.replaceAll('/', '__'))}.json`, here));
    return response.ok ? ((await response.json()) as { config: unknown }).config : undefined;
  } catch {
    return undefined;
  }
}
