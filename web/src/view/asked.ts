import { DESCRIBED, fieldKeys, fields, settingText, type FieldKey, type Settings } from '../choice/fields';
import { nodesOf } from '../choice/methods';
import { gpuName } from '../gpus';
import { names } from '../text/names';
import { count } from './format';

// What is asked, in a line of words each.

export const precisions: readonly { weights: Settings['weights']; autocast: Settings['autocast']; name: string; brief: string }[] = [
  { weights: 'bfloat16', autocast: 'none', name: 'bf16', brief: 'bf16' },
  { weights: 'float32', autocast: 'none', name: 'fp32', brief: 'fp32' },
  { weights: 'float32', autocast: 'bfloat16', name: 'fp32 under bf16 autocast', brief: 'fp32, bf16 autocast' },
  { weights: 'float32', autocast: 'float16', name: 'fp32 under fp16 autocast', brief: 'fp32, fp16 autocast' },
  { weights: 'float16', autocast: 'none', name: 'fp16', brief: 'fp16' },
];

export function precisionInWords({ weights, autocast }: Settings): string {
  const known = precisions.find((one) => one.weights === weights && one.autocast === autocast);
  return known?.brief ?? (autocast === 'none' ? weights : `${weights}, ${autocast} autocast`);
}

export type Recipe = 'full' | 'lora' | 'qlora';

export function recipeOf({ method, bits }: Settings): Recipe {
  return method === 'full' ? 'full' : bits === 'none' ? 'lora' : 'qlora';
}

export const recipeNames: Record<Recipe, string> = { full: 'full', lora: 'LoRA', qlora: 'QLoRA' };

export function recipeInWords(settings: Settings): string {
  const adapters = settings.method === 'lora' ? ` ${settings.lora_rank}` : '';
  return [
    recipeNames[recipeOf(settings)] + adapters,
    precisionInWords(settings),
    `${settings.optimizer === 'adamw' ? 'AdamW' : settings.optimizer} ${settings.implementation}`,
    settings.checkpointing === 'none' ? 'no checkpointing' : settings.checkpointing === 'full' ? 'checkpointing' : `${settings.checkpointing} checkpointing`,
    `${count(settings.micro_batch)} × ${count(settings.sequence)} tokens`,
  ].join(' · ');
}

const SHOWN_ELSEWHERE: readonly FieldKey[] = [
  'method',
  'weights',
  'autocast',
  'optimizer',
  'micro_batch',
  'sequence',
  'checkpointing',
  'gpu',
  'gpus',
  'gpus_per_node',
  'data',
  'bits',
];

/** The settings that are folded away and not the defaults. */
export function settingsInWords(settings: Settings): string {
  const changed = fieldKeys.filter((key) => !SHOWN_ELSEWHERE.includes(key) && settings[key] !== fields[key].fallback);
  const all = [`accumulation ${count(settings.accumulation)}`, settings.attention, ...changed.filter((key) => key !== 'accumulation' && key !== 'attention').map((key) => inWords(key, settings))];
  return all.join(' · ');
}

function inWords(key: FieldKey, settings: Settings): string {
  const value = settings[key];
  return value === true ? names[key] : `${names[key]} ${settingText(settings, key)}`;
}

export function clusterInWords(settings: Settings): string {
  const { gpu, gpus } = settings;
  const nodes = nodesOf(settings);
  return `${count(gpus)} × ${gpu === DESCRIBED ? 'a GPU described' : gpuName(gpu)} · ${count(nodes)} ${nodes === 1 ? 'node' : 'nodes'}`;
}
