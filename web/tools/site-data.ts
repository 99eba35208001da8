import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Plugin } from 'vite';
import { arrival, modelName, type JsonObject } from '../src/choice/choice.ts';
import { jobsOf } from '../src/choice/spec.ts';
import type { Envelope } from '../src/core/answer';
import type { Preset } from '../src/presets';

// What the site takes from ../presets: the GPUs, small, inside the page; each model as a file; and an index of the models, in
// which the core itself has said which of them it can estimate. So a model is offered exactly when there is an answer for it.
// And the answers that the page shows on arrival, which the core gives here, so that nobody waits for it to read them.

interface PresetFile {
  id: string;
  parameters: number | null;
  config: JsonObject & { model_type?: string };
}

interface GpuRow {
  id: string;
  name: string;
  compute_capability: number;
}

export function siteData({ presets, core }: { presets: string; core: string }): Plugin {
  const gpus = '\0virtual:gpus';
  const first = '\0virtual:arrival';
  let served = false;
  return {
    name: 'site-data',
    configResolved: ({ command }) => void (served = command === 'serve'),
    resolveId: (id) => ({ 'virtual:gpus': gpus, 'virtual:arrival': first })[id],
    async load(id) {
      if (id === gpus) return `export default ${JSON.stringify(await readGpus(presets))}`;
      if (id !== first) return undefined;
      if (served) return `export default '${ARRIVAL}'`;
      // Its name changes with what is in it, so that a page of one version never reads the answers of another.
      const file = this.emitFile({ type: 'asset', name: 'arrival.json', source: await arrivalFile(presets, core) });
      return `export default import.meta.ROLLUP_FILE_URL_${file}`;
    },
    async generateBundle() {
      // One look at the models is enough for all outputs; workers are bundled on their own, without this plugin.
      for (const [fileName, source] of await siteFiles(presets, core)) this.emitFile({ type: 'asset', fileName, source });
    },
    // While developing, Vite puts styles into the page itself.
    transformIndexHtml: (html, { server }) => (server ? html.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'") : html),
    configureServer(server) {
      let files: Promise<Map<string, string>> | undefined;
      server.middlewares.use(async (request, response, next) => {
        const path = decodeURIComponent((request.url ?? '').replace(/[?#].*$/, '')).slice(1);
        if (!path.startsWith('presets/')) return next();
        files ??= servedFiles(presets, core);
        const text = (await files).get(path);
        response.statusCode = text === undefined ? 404 : 200;
        response.setHeader('Content-Type', 'application/json');
        response.end(text);
      });
    },
  };
}

async function readGpus(presets: string): Promise<{ id: string; name: string; unsupported: boolean }[]> {
  const rows = JSON.parse(await readFile(join(presets, 'gpus.json'), 'utf8')) as GpuRow[];
  // core/spec: older cards run other kernels, with other memory.
  return rows.map(({ id, name, compute_capability }) => ({ id, name, unsupported: compute_capability < 80 }));
}

const ARRIVAL = 'presets/arrival.json'; // its name while developing

async function servedFiles(presets: string, core: string): Promise<Map<string, string>> {
  return (await siteFiles(presets, core)).set(ARRIVAL, await arrivalFile(presets, core));
}

/** The envelopes of the specs that the page would send on arrival, by the text of the spec: src/arrival.ts reads them. */
async function arrivalFile(presets: string, core: string): Promise<string> {
  const choice = arrival();
  const name = `${modelName(choice.model).replaceAll('/', '__')}.json`;
  const { config } = JSON.parse(await readFile(join(presets, 'models', name), 'utf8')) as PresetFile;
  const estimate = await loadCore(core);
  return JSON.stringify(Object.fromEntries(jobsOf(choice, config).map(({ spec }) => [spec, estimate(spec)])));
}

/** File name in the site → text. */
async function siteFiles(presets: string, core: string): Promise<Map<string, string>> {
  const folder = join(presets, 'models');
  const estimate = await loadCore(core);
  const files = new Map<string, string>();
  const index: Preset[] = [];
  for (const name of (await readdir(folder)).filter((file) => file.endsWith('.json')).sort()) {
    const preset = JSON.parse(await readFile(join(folder, name), 'utf8')) as PresetFile;
    const entry = indexEntry(preset, estimate);
    index.push(entry);
    if (!entry.unsupported) files.set(`presets/models/${name}`, JSON.stringify({ id: preset.id, config: preset.config }));
  }
  return files.set('presets/index.json', JSON.stringify(index));
}

type Estimate = (spec: string) => Envelope;

/** The core of this build, for what the site is to know of it beforehand. */
export async function loadCore(core: string): Promise<Estimate> {
  const glue = (await import(pathToFileURL(join(core, 'llmem.mjs')).href)) as typeof import('llmem-core');
  const { estimate } = await glue.default({
    wasmBinary: await readFile(join(core, 'llmem.wasm')),
    restBinary: await readFile(join(core, 'llmem.rest.wasm')),
  });
  return (spec) => JSON.parse(estimate(spec)) as Envelope;
}

function indexEntry({ id, parameters, config }: PresetFile, estimate: Estimate): Preset {
  // The shortest step there is: only whether there is an answer matters here. Some models have eager attention only, which a control says.
  const asked = (training: JsonObject) =>
    estimate(JSON.stringify({ version: 1, model: { name: id, config }, training: { micro_batch: 1, sequence: 1, ...training } }));
  const envelope = asked({});
  const known = { id, type: config.model_type ?? '', parameters };
  if (envelope.ok || asked({ attention: 'eager' }).ok) return known;
  return { ...known, unsupported: envelope.problems.map(({ message }) => message).join(' ') };
}
