import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

export const root = new URL('../../', import.meta.url).pathname;
/** The native command. */
export const nativeCommand = `${root}build/native-release/llmem`;
const door = `${root}build/wasm/llmem`;

/** The door's files, as the page is served them: glue, first module, the rest. */
export const doorFiles = [`${door}.mjs`, `${door}.wasm`, `${door}.rest.wasm`];

/** What `llmem estimate` answers to these specs, one a line. */
export function nativeAnswers(specs) {
  const run = spawnSync(nativeCommand, ['estimate'], { input: specs.map((spec) => spec + '\n').join(''), maxBuffer: 2 ** 30 });
  if (run.error) throw run.error;
  if (run.status === null) throw new Error(`llmem died: ${run.signal}\n${run.stderr}`);
  return run.stdout.toString().split('\n').slice(0, -1);
}

export async function loadWasm() {
  const { default: create } = await import(pathToFileURL(`${door}.mjs`));
  return create({ wasmBinary: readFileSync(`${door}.wasm`), restBinary: readFileSync(`${door}.rest.wasm`) });
}

/**
 * The spec as the page would send it: a preset's id becomes its name and config, for the door carries no presets.
 * The rest stays text: a trip through JavaScript's numbers would change what an odd spec says.
 */
export function withInlineConfig(spec) {
  const asked = spec.match(/"model":\s*"([^"\\]+)"/);
  if (!asked) return spec;
  const file = `${root}presets/models/${asked[1].replaceAll('/', '__')}.json`;
  if (!existsSync(file)) return spec;
  const config = JSON.stringify(JSON.parse(readFileSync(file, 'utf8')).config);
  return spec.replace(asked[0], () => `"model": {"name": "${asked[1]}", "config": ${config}}`);
}

/** Specs of a .jsonl file of vectors. */
export function vectorSpecs(file) {
  return readFileSync(file, 'utf8').trimEnd().split('\n').map((line) => {
    const { id, spec } = JSON.parse(line);
    return { id, spec: JSON.stringify(spec) };
  });
}
