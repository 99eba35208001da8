import type { Draft, Entry } from './draft';

// The model that a file names → a preset. Files name models by hub ids, by copies of them under other organisations, by paths of
// folders, or by a tool's own names; which architecture that is, is what matters here.

export interface Known {
  presets: readonly string[]; // ids, "meta-llama/Llama-3.1-8B"
  around?: string | undefined; // the data-parallel kind that another file says: a trainer's flags mean other things under DeepSpeed and FSDP
}

/** Chat and base versions have the same shapes; so do re-uploads, and what is only quantised for loading. */
function plain(name: string): string {
  return name
    .toLowerCase()
    .replace(/[_\s]+/g, '-')
    .replace(/^meta-/, '')
    .replace(/^(unsloth|nousresearch)-/, '')
    .replace(
      /-(bnb-4bit|unsloth-bnb-4bit|4bit|gptq|awq|gguf|fp8|bf16|fp16|nvfp4|mxfp4|bnb-nf4-bf16|dequantized|prequantized|deduped)$/g,
      '',
    )
    .replace(/-(instruct|chat|base|it|pt|hf|sft|dpo|rl|thinking|reasoning|preview|2[3-6](?:0[1-9]|1[0-2]))(?=-|$)/g, '')
    .replace(/-v0\.[0-9]+$/, '')
    .replace(/-+/g, '-');
}

export function presetFor(name: string, presets: readonly string[]): { id: string; exact: boolean } | undefined {
  const exact = presets.find((id) => id === name) ?? presets.find((id) => id.toLowerCase() === name.toLowerCase());
  if (exact) return { id: exact, exact: exact === name };
  const last = (text: string) =>
    text
      .replace(/[\\/]+$/, '')
      .split(/[\\/]/)
      .at(-1) ?? '';
  const wanted = last(name).toLowerCase();
  if (wanted === '') return undefined;
  const same = presets.find((id) => last(id).toLowerCase() === wanted);
  if (same) return { id: same, exact: false };
  const alike = presets.find((id) => plain(last(id)) === plain(wanted));
  if (alike) return { id: alike, exact: false };
  // Llama 3.1 changed no shape of Llama 3's.
  const older = presets.find((id) => plain(last(id)) === plain(wanted).replace(/^llama-3-(?=\d+b)/, 'llama-3.1-'));
  return older ? { id: older, exact: false } : undefined;
}

export function readModelName(draft: Draft, entry: Entry, name: string, { presets }: Known): void {
  const found = presetFor(name, presets);
  if (found?.exact) draft.understood(entry, 'the model', { '/model': found.id });
  else if (found) draft.inferred(entry, `read as ${found.id}: the name says the same architecture`, { '/model': found.id });
  else {
    draft.ignored(entry, 'no preset of this name: choose the model, or paste its config.json');
    draft.asked(
      'model',
      `The file names “${name.slice(0, 100)}”, which is no preset here. Choose one of the same architecture, or paste its config.json.`,
      '/model',
    );
  }
}
