import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Plugin } from 'vite';

// What makes the site installable and lets it work without a network: a service worker that knows every file of this build, under
// a version that changes with any of them, and the manifest with its icon.

const LATER = /^presets\/models\/|^models\/|^sw\.js$|^llmem-estimate\.js$|^llmem\.(js|d\.ts)$/; // what is kept once it was fetched, or never

export function offline({ source, icon }: { source: string; icon: string }): Plugin {
  return {
    name: 'offline',
    apply: 'build',
    enforce: 'post',
    async generateBundle(_options, bundle) {
      if (!Object.keys(bundle).includes('index.html')) return;
      const hash = createHash('sha256');
      for (const name of Object.keys(bundle).sort()) {
        const file = bundle[name];
        if (file) hash.update(name).update(file.type === 'chunk' ? file.code : file.source);
      }
      const files = ['./', ...Object.keys(bundle).filter((name) => !LATER.test(name)), 'manifest.webmanifest', 'icon.svg'];
      const text = (await readFile(source, 'utf8'))
        .replace('/* VERSION */', JSON.stringify(hash.digest('hex').slice(0, 16)))
        .replace('/* FILES */', JSON.stringify(files).slice(1, -1));
      this.emitFile({ type: 'asset', fileName: 'sw.js', source: text });
      this.emitFile({ type: 'asset', fileName: 'icon.svg', source: await readFile(icon, 'utf8') });
      this.emitFile({ type: 'asset', fileName: 'manifest.webmanifest', source: JSON.stringify(manifest) });
    },
  };
}

const manifest = {
  name: 'LLMem: will it fit?',
  short_name: 'LLMem',
  description: 'GPU memory for training a language model, to the byte, before you start.',
  start_url: './index.html',
  scope: './',
  display: 'standalone',
  background_color: '#fcfcfb',
  theme_color: '#fcfcfb',
  icons: [{ src: 'icon.svg', sizes: 'any', type: 'image/svg+xml', purpose: 'any' }],
};
