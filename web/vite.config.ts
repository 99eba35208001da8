import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { certainty } from './tools/certainty.ts';
import { modelPages } from './tools/model-pages.ts';
import { moduleTypes } from './tools/module-types.ts';
import { offline } from './tools/offline.ts';
import { siteData } from './tools/site-data.ts';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// What `cmake --workflow --preset wasm` makes; LLMEM_WASM names another folder that holds the same two files.
const core = process.env.LLMEM_WASM ?? here('../build/wasm');

const NAMED = ['llmem-estimate', 'llmem'];

export default defineConfig({
  base: './', // any path of any host
  appType: 'mpa', // what is not there is not there: no page in its place
  publicDir: false,
  plugins: [
    siteData({ presets: here('../presets'), core }),
    certainty({ vectors: here('../tests/vectors'), core, presets: here('../presets'), cache: here('node_modules/.cache/llmem') }),
    modelPages(here('../presets')),
    moduleTypes(here('src/core/answer.ts')),
    offline({ source: here('src/offline/sw.js'), icon: here('src/offline/icon.svg') }),
  ],
  resolve: {
    alias: [
      { find: /^llmem-core-binary(?=\?)/, replacement: `${core}/llmem.wasm` },
      { find: /^llmem-core-rest(?=\?)/, replacement: `${core}/llmem.rest.wasm` },
      { find: 'llmem-core', replacement: `${core}/llmem.mjs` },
    ],
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  server: { fs: { allow: [here('..')] } },
  worker: { format: 'es' },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: scripts
    modulePreload: { polyfill: false }, // what the first view takes is asked for at once
    rollupOptions: {
      preserveEntrySignatures: 'exports-only', // of llmem.js
      input: {
        index: here('index.html'),
        embed: here('embed.html'),
        embedding: here('embedding.html'),
        'llmem-estimate': here('src/element.ts'),
        llmem: here('src/module.ts'),
      },
      output: {
        // Other people's pages name these two files, so their names stay; the element is a classic script, and keeps its names to itself.
        entryFileNames: (chunk) => (NAMED.includes(chunk.name) ? '[name].js' : 'assets/[name]-[hash].js'),
        banner: (chunk) => (chunk.name === 'llmem-estimate' ? '(() => {' : ''),
        footer: (chunk) => (chunk.name === 'llmem-estimate' ? '})();' : ''),
      },
    },
  },
  test: { include: ['test/*.test.ts'], testTimeout: 30_000 },
});
