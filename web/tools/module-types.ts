import { readFile } from 'node:fs/promises';
import type { Plugin } from 'vite';

// llmem.d.ts, beside llmem.js: the answer's types as the page has them (src/core/answer.ts), and those of the module itself.

export function moduleTypes(answer: string): Plugin {
  return {
    name: 'module-types',
    apply: 'build',
    enforce: 'post', // the pages are in the bundle then
    async generateBundle(_options, bundle) {
      if (!Object.keys(bundle).includes('index.html')) return;
      const text = await readFile(answer, 'utf8');
      // Types alone: functions end the part that is data.
      const types = text.slice(0, /^\/\*\*[^\n]*\n(?:export )?(?:async )?function |^export function /m.exec(text)?.index ?? text.length);
      this.emitFile({ type: 'asset', fileName: 'llmem.d.ts', source: `${types.trim()}\n\n${OWN}` });
    },
  };
}

const OWN = `/** What to estimate: the wire format, version 1 (core/spec/README.md). Everything but the model has a default. */
export interface Spec {
  version?: 1;
  /** A preset's id, or any model by its Hugging Face config.json. */
  model: string | { name: string; config: Record<string, unknown> };
  training?: Record<string, unknown>;
  parallel?: Record<string, unknown>;
  cluster?: Record<string, unknown>;
  allocator?: Record<string, unknown>;
  software?: Record<string, unknown>;
}

/** Rejects only if the engine cannot be loaded; what is wrong with a spec is in the answer. */
export function estimate(spec: Spec | string): Promise<Envelope>;

/** The models that can be named. \`unsupported\`: why one cannot be estimated. */
export function models(): Promise<{ id: string; type: string; parameters: number; unsupported?: string }[]>;
`;
