// Rules of the repository that no compiler checks.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';

const root = new URL('../../', import.meta.url).pathname;
process.chdir(root);

// A room of core includes itself and the rooms to its left.
const rooms = ['base', 'trace', 'spec', 'tensor', 'model', 'plan', 'step', 'allocator', 'time', 'llmem', 'report', 'search', 'cli'];

const made = readFileSync('.gitignore', 'utf8').trim().split('\n').map((path) => path.replace(/\/$/, ''));

function filesUnder(folder) {
  return readdirSync(folder || '.', { withFileTypes: true }).flatMap((entry) => {
    const path = folder ? `${folder}/${entry.name}` : entry.name;
    if (entry.name.startsWith('.') || made.includes(path) || made.includes(entry.name)) return [];
    return entry.isDirectory() ? filesUnder(path) : [path];
  });
}

const files = filesUnder('');
const cpp = files.filter((file) => /\.(h|cpp)$/.test(file));
const text = (file) => readFileSync(file, 'utf8');

function* includesOf(file) {
  for (const [, included] of text(file).matchAll(/^\s*#\s*include\s*[<"]([^>"]+)[>"]/gm)) yield included;
}

const rules = {
  'a room of core is a known one, with its files directly in it': () => files
    .filter((file) => file.startsWith('core/') && /\.(h|cpp)$/.test(file))
    .filter((file) => file.split('/').length !== 3 || !rooms.includes(file.split('/')[1])),

  'includes go from right to left': () => cpp.filter((file) => file.startsWith('core/')).flatMap((file) => {
    const own = rooms.indexOf(file.split('/')[1]);
    return [...includesOf(file)]
      .filter((included) => rooms.indexOf(included.split('/')[0]) > own || (included.includes('/') && included.startsWith('..')))
      .map((included) => `${file} includes ${included}`);
  }),

  'core includes its own headers by room ("spec/spec.h")': () => cpp.filter((file) => file.startsWith('core/')).flatMap((file) =>
    [...text(file).matchAll(/^\s*#\s*include\s*"([^"/]+)"/gm)]
      .filter(([, included]) => included !== 'embedded_presets.h').map(([, included]) => `${file} includes ${included}`)),

  'only wasm includes Emscripten': () => cpp.filter((file) => !file.startsWith('wasm/'))
    .filter((file) => [...includesOf(file)].some((included) => included.startsWith('emscripten'))),

  'core does not know what it is compiled for': () => cpp.filter((file) => file.startsWith('core/'))
    .filter((file) => /__EMSCRIPTEN__|__wasm|__x86_64__|__linux__/.test(text(file))),

  'every header is included once (#pragma once)': () => cpp.filter((file) => file.endsWith('.h') && !/^#pragma once$/m.test(text(file))),

  'every folder says what it holds (README.md)': () => {
    const divided = ['core', 'tests'];  // their folders are rooms of their own
    const folders = new Set(['.']);
    for (const file of files) {
      const [top, sub, ...rest] = file.split('/');
      if (sub === undefined) continue;
      folders.add(top);
      if (divided.includes(top) && rest.length > 0) folders.add(`${top}/${sub}`);
    }
    return [...folders].filter((folder) => !existsSync(`${folder}/README.md`));
  },

  'C++ is formatted (clang-format -i)': () => {
    const run = spawnSync('clang-format', ['--dry-run', '--Werror', ...cpp], { encoding: 'utf8', maxBuffer: 2 ** 28 });
    if (run.error) throw run.error;
    return [...new Set([...run.stderr.matchAll(/^([^\s:]+):\d+:\d+: error/gm)].map(([, file]) => file))];
  },
};

let failed = 0;
for (const [rule, broken] of Object.entries(rules)) {
  const cases = broken();
  if (cases.length === 0) continue;
  ++failed;
  console.log(`FAILED ${rule}\n${cases.map((one) => `    ${one}`).join('\n')}`);
}
console.log(`rules: ${Object.keys(rules).length - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
