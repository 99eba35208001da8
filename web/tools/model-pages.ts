import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Plugin } from 'vite';

// A page for each preset, to be found and linked: what the model is, and the way to the answer for it. Plain text, no script.

interface PresetFile {
  id: string;
  parameters: number | null;
  config: Record<string, unknown>;
}

export function modelPages(presets: string): Plugin {
  return {
    name: 'model-pages',
    apply: 'build',
    async generateBundle(_options, bundle) {
      if (!Object.values(bundle).some((file) => file.fileName.startsWith('assets/main-') || file.fileName === 'index.html')) return;
      const folder = join(presets, 'models');
      const files = (await readdir(folder)).filter((file) => file.endsWith('.json')).sort();
      const models = await Promise.all(files.map(async (file) => JSON.parse(await readFile(join(folder, file), 'utf8')) as PresetFile));
      for (const model of models) this.emitFile({ type: 'asset', fileName: `models/${fileOf(model.id)}`, source: page(model) });
      this.emitFile({ type: 'asset', fileName: 'models/index.html', source: list(models) });
    },
  };
}

function number(value: unknown): string | undefined {
  return typeof value === 'number' ? value.toLocaleString('en') : undefined;
}

function familyOf({ model_type }: PresetFile['config']): string {
  return typeof model_type === 'string' ? model_type : '';
}

function fileOf(id: string): string {
  return `${id.replaceAll('/', '__')}.html`;
}

function page({ id, parameters, config }: PresetFile): string {
  const facts: [string, string | undefined][] = [
    ['Parameters', number(parameters)],
    ['Family', familyOf(config)],
    ['Layers', number(config.num_hidden_layers)],
    ['Hidden size', number(config.hidden_size)],
    ['Vocabulary', number(config.vocab_size)],
  ];
  const link = (gpu: string, gpus: number) => `../index.html#v=1&amp;model=${escaped(encodeURI(id))}&amp;gpu=${gpu}&amp;gpus=${gpus}`;
  return html(
    `${id}: GPU memory for training`,
    `<h1>${escaped(id)}: will it fit?</h1>
<dl>${facts.map(([name, value]) => (value ? `<dt>${name}</dt><dd>${escaped(value)}</dd>` : '')).join('')}</dl>
<ul>
<li><a href="${link('h100-sxm-80gb', 8)}">Training it on 8 × H100 80 GB</a></li>
<li><a href="${link('h100-sxm-80gb', 1)}">on one H100 80 GB</a></li>
<li><a href="${link('rtx-4090', 1)}&amp;method=lora&amp;bits=4&amp;double_quant=true&amp;compute_dtype=bfloat16">QLoRA on one RTX 4090</a></li>
</ul>
<p><a href="./index.html">All models</a></p>`,
  );
}

function list(models: readonly PresetFile[]): string {
  const families = new Map<string, PresetFile[]>();
  for (const model of models) {
    const family = familyOf(model.config);
    families.set(family, [...(families.get(family) ?? []), model]);
  }
  const rows = [...families].sort(([a], [b]) => a.localeCompare(b, 'en')).map(
    ([family, own]) =>
      `<h2>${escaped(family)}</h2><ul>${own
        .toSorted((a, b) => (a.parameters ?? 0) - (b.parameters ?? 0))
        .map(({ id, parameters }) => `<li><a href="./${escaped(encodeURI(fileOf(id)))}">${escaped(id)}</a> ${parameters === null ? '' : `${(parameters / 1e9).toPrecision(3)} B`}</li>`)
        .join('')}</ul>`,
  );
  return html('Models: GPU memory for training', `<h1>Models by family</h1>${rows.join('\n')}`);
}

function html(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="${escaped(title)}">
<title>${escaped(title)}</title>
<link rel="icon" href="data:,">
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`;
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
