import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Plugin } from 'vite';
import type { JsonObject } from '../src/choice/choice';
import { kindOf } from '../src/choice/kind.ts';
import { loadCore } from './site-data.ts';

// How sure an answer is: of the recorded PyTorch runs of its kind (../tests/vectors), how many this very core answers, and how many
// of those to the byte in every peak. Counted when the site is built, and kept until the core or the runs change.

/** By kind: equal to the byte, answered. */
export type Certainty = Record<string, [number, number]>;

interface Vector {
  spec: JsonObject;
  expected: { points: { at: string; peak_allocated: number }[] };
}

export function certainty({ vectors, core, presets, cache }: { vectors: string; core: string; presets: string; cache: string }): Plugin {
  const id = '\0virtual:certainty';
  return {
    name: 'certainty',
    resolveId: (source) => (source === 'virtual:certainty' ? id : undefined),
    async load(source) {
      if (source !== id) return undefined;
      return `export default ${JSON.stringify(await counted(vectors, core, presets, cache))}`;
    },
  };
}

async function counted(vectors: string, core: string, presets: string, cache: string): Promise<Certainty> {
  const names = (await readdir(vectors)).filter((name) => name.endsWith('.jsonl')).sort();
  const texts = await Promise.all(names.map((name) => readFile(join(vectors, name), 'utf8')));
  const hash = createHash('sha256');
  for (const file of ['llmem.wasm', 'llmem.rest.wasm']) hash.update(await readFile(join(core, file)));
  for (const text of texts) hash.update(text);
  const kept = join(cache, `certainty-${hash.digest('hex').slice(0, 16)}.json`);
  try {
    return JSON.parse(await readFile(kept, 'utf8')) as Certainty;
  } catch {
    // Not counted yet.
  }
  const estimate = await loadCore(core);
  const counts: Certainty = {};
  for (const line of texts.flatMap((text) => text.trimEnd().split('\n'))) {
    const { spec, expected } = JSON.parse(line) as Vector;
    const envelope = estimate(JSON.stringify(await withConfig(spec, presets)));
    if (!envelope.ok) continue;
    const points = envelope.value.ranks[0]?.points ?? [];
    const equal = expected.points.every(({ peak_allocated }, index) => points[index]?.peak_allocated === peak_allocated);
    const [same, all] = counts[kindOf(spec)] ?? [0, 0];
    counts[kindOf(spec)] = [same + (equal ? 1 : 0), all + 1];
  }
  await mkdir(cache, { recursive: true });
  await writeFile(kept, JSON.stringify(counts));
  return counts;
}

/** A preset's id becomes its name and config: the door carries no presets. */
async function withConfig(spec: JsonObject, presets: string): Promise<JsonObject> {
  if (typeof spec.model !== 'string') return spec;
  const file = JSON.parse(await readFile(join(presets, 'models', `${spec.model.replaceAll('/', '__')}.json`), 'utf8')) as JsonObject;
  return { ...spec, model: { name: spec.model, config: file.config ?? {} } };
}
