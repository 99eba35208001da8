import type { Settings } from '../choice/fields';
import { gpuName } from '../gpus';
import { count } from './format';

// What is asked, in a line of words each.

export const precisions: readonly { weights: Settings['weights']; autocast: Settings['autocast']; name: string; brief: string }[] = [
  { weights: 'bfloat16', autocast: 'none', name: 'bf16', brief: 'bf16' },
  { weights: 'float32', autocast: 'none', name: 'fp32', brief: 'fp32' },
  { weights: 'float32', autocast: 'bfloat16', name: 'fp32 under bf16 autocast', brief: 'fp32, bf16 autocast' },
];

export function precisionInWords({ weights, autocast }: Settings): string {
  const known = precisions.find((one) => one.weights === weights && one.autocast === autocast);
  return known?.brief ?? (autocast === 'none' ? weights : `${weights}, ${autocast} autocast`);
}

export function recipeInWords(settings: Settings): string {
  return [
    'full',
    precisionInWords(settings),
    `AdamW ${settings.implementation}`,
    settings.checkpointing === 'full' ? 'checkpointing' : 'no checkpointing',
    `${count(settings.micro_batch)} × ${count(settings.sequence)} tokens`,
  ].join(' · ');
}

/** The settings that are folded away. */
export function settingsInWords(settings: Settings): string {
  return [
    settings.implementation,
    settings.attention,
    `accumulation ${count(settings.accumulation)}`,
    settings.max_grad_norm === null ? 'no clipping' : `clip ${settings.max_grad_norm}`,
    ...(settings.expandable_segments ? ['expandable segments'] : []),
  ].join(' · ');
}

export function clusterInWords({ gpu, gpus, gpus_per_node }: Settings): string {
  const nodes = Math.ceil(gpus / gpus_per_node);
  return `${count(gpus)} × ${gpuName(gpu)} · ${count(nodes)} ${nodes === 1 ? 'node' : 'nodes'}`;
}
