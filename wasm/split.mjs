// Splits the core's module in two: node split.mjs FOLDER. Of FOLDER/llmem.wasm it makes llmem.wasm, with the functions that the
// questions of ordinary.json run, and llmem.rest.wasm with all others (binaryen's wasm-split, guided by a profile of those questions).
import { execFileSync } from 'node:child_process';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2];
const file = (name) => join(folder, name);
const features = ['--mvp-features', '--enable-bulk-memory', '--enable-mutable-globals'];  // no others than the compiler's
const split = (...args) => execFileSync('wasm-split', [...features, ...args], { stdio: ['ignore', 'ignore', 'inherit'] });

// `model` by its preset, as the page sends it.
function question({ model, ...rest }) {
  const preset = JSON.parse(readFileSync(join(here, '../presets/models', `${model.replaceAll('/', '__')}.json`), 'utf8'));
  return JSON.stringify({ model: { name: model, config: preset.config }, ...rest });
}

async function profileOf(instrumented) {
  const { default: create } = await import(pathToFileURL(file('llmem.mjs')).href);
  const core = await create({ wasmBinary: readFileSync(instrumented) });
  for (const spec of JSON.parse(readFileSync(join(here, 'ordinary.json'), 'utf8')))
    if (!core.estimate(question(spec)).startsWith('{"ok":true')) throw new Error(`ordinary.json: ${JSON.stringify(spec)} is not answered`);
  const { __write_profile: write, ...others } = core.asm;
  const memory = Object.values(others).find((value) => value instanceof WebAssembly.Memory);
  const size = write(0, 0), at = memory.buffer.byteLength;
  memory.grow(Math.ceil(size / 65536));
  write(at, size);
  return new Uint8Array(memory.buffer, at, size);
}

renameSync(file('llmem.wasm'), file('llmem.whole.wasm'));
split('--instrument', file('llmem.whole.wasm'), '-o', file('llmem.instrumented.wasm'));
writeFileSync(file('llmem.profile'), await profileOf(file('llmem.instrumented.wasm')));
split(file('llmem.whole.wasm'), `--profile=${file('llmem.profile')}`, '-o1', file('llmem.wasm'), '-o2', file('llmem.rest.wasm'),
  '--export-prefix=_', '--import-namespace=first', '--placeholder-namespace=rest');
