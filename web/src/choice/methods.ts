import { assumed as words, methodNames, whyNot as reasons } from '../text/page.ts';
import type { Settings } from './fields';

// The methods that the page lays side by side: each is one estimate of the same recipe.

export const methods = [
  'none',
  'ddp',
  'zero_redundancy',
  'zero1',
  'zero2',
  'zero3',
  'fsdp1',
  'fsdp2',
  'hsdp',
  'tensor',
  'tensor_fsdp2',
  'pipeline',
  'custom',
] as const;
export type Method = (typeof methods)[number];

export function methodName(method: Method, settings: Settings): string {
  if (method === 'none' || (settings.gpus < 2 && method !== 'custom')) return methodNames[method];
  if (method === 'hsdp') return `${methodNames.hsdp} ${copies(settings)} × ${settings.gpus / copies(settings)}`;
  if (method === 'tensor_fsdp2') return `Tensor ${tensorDegree(settings)} × FSDP2 ${settings.gpus / tensorDegree(settings)}`;
  return `${methodNames[method]} × ${settings.gpus}`;
}

/** Why a method makes no sense for these settings; undefined if it does. */
export function whyNot(method: Method, settings: Settings): string | undefined {
  const { gpus } = settings;
  if (method === 'none') return undefined;
  if (method === 'custom') {
    if (settings.data !== 'custom') return reasons.custom;
    return gpus % splits(settings) === 0 ? undefined : reasons.split(gpus, splits(settings));
  }
  if (gpus < 2) return reasons.one;
  if (method === 'hsdp') {
    if (copies(settings) < 2) return reasons.copies;
    if (gpus % copies(settings) !== 0) return reasons.copiesSplit(gpus, copies(settings));
  }
  if (method === 'tensor_fsdp2' && (gpus % tensorDegree(settings) !== 0 || gpus <= tensorDegree(settings))) {
    return reasons.multiple(tensorDegree(settings));
  }
  return undefined;
}

export function nodesOf({ nodes, gpus, gpus_per_node }: Settings): number {
  return nodes ?? Math.ceil(gpus / gpus_per_node);
}

/** Copies of the sharded model under HSDP: one on each node, unless said otherwise. */
export function copies(settings: Settings): number {
  return settings.replicate > 1 ? settings.replicate : nodesOf(settings);
}

/** Of the mix with FSDP2: the GPUs of a node where there are several nodes, else 2, unless said otherwise. */
export function tensorDegree(settings: Settings): number {
  if (settings.tensor_degree > 1) return settings.tensor_degree;
  return nodesOf(settings) > 1 && settings.gpus_per_node > 1 ? settings.gpus_per_node : 2;
}

/** Of the pipeline: as many as it has stages, the least that 1F1B takes, unless said otherwise. */
export function microbatches({ microbatches, gpus }: Settings): number {
  return microbatches > 1 ? microbatches : gpus;
}

/** Whether each rank is a stage of a pipeline, and so holds something else. */
export function isStaged(method: Method, { pipeline_degree, gpus }: Settings): boolean {
  return method === 'pipeline' || (method === 'custom' && pipeline_degree > 1 && pipeline_degree === gpus);
}

/** What the own mix divides the model's work into, besides data. */
export function splits({ tensor_degree, pipeline_degree, context_degree }: Settings): number {
  return tensor_degree * pipeline_degree * context_degree;
}

/** Whether the method gathers parameters in a dtype of its own, which takes autocast's place. */
export function isFsdp(method: Method, { kind }: Settings): boolean {
  return ['fsdp1', 'fsdp2', 'hsdp', 'tensor_fsdp2'].includes(method) || (method === 'custom' && kind.startsWith('fsdp'));
}

/** What the bar of a method assumes, in words. */
export function assumed(method: Method, settings: Settings): string {
  return `${arrangement(method, settings)}; ${precision(method, settings)}.`;
}

function arrangement(method: Method, settings: Settings): string {
  const { gpus } = settings;
  switch (method) {
    case 'none':
      return gpus > 1 ? words.idle : words.alone;
    case 'ddp':
      return words.ddp(settings.bucket_cap_mb);
    case 'hsdp':
      return words.hsdp(gpus / copies(settings), copies(settings));
    case 'tensor_fsdp2':
      return words.tensor_fsdp2(tensorDegree(settings), gpus / tensorDegree(settings));
    case 'pipeline':
      return words.pipeline(gpus, microbatches(settings));
    case 'custom':
      return words.custom(settings.kind, gpus / splits(settings), settings.tensor_degree, settings.pipeline_degree);
    default:
      return words[method](gpus);
  }
}

const dtypes = { bfloat16: 'bf16', float32: 'fp32', float16: 'fp16' } as const;

function precision(method: Method, settings: Settings): string {
  const { weights, autocast } = settings;
  const held = dtypes[weights];
  if (isFsdp(method, settings)) {
    const computed = fsdpParamDtype(settings);
    const reduced = words.reduced(settings.reduce_dtype === 'none' ? words.asTheyAre : words.inDtype(dtypes[settings.reduce_dtype]));
    return (computed === null || computed === weights ? words.heldAndComputed(held) : words.gathered(held, dtypes[computed])) + reduced;
  }
  if (settings.method === 'lora' && settings.bits !== 'none') return words.quantised(settings.bits, settings.bits === '4' ? dtypes[settings.compute_dtype] : undefined);
  return autocast === 'none' ? words.heldAndComputed(held) : words.autocast(held, dtypes[autocast]);
}

/**
 * FSDP's MixedPrecision(param_dtype) for a recipe: it gathers in the dtype to compute in, so it takes autocast's place.
 * null: as held.
 */
export function fsdpParamDtype({ weights, autocast, param_dtype }: Pick<Settings, 'weights' | 'autocast' | 'param_dtype'>) {
  if (param_dtype !== 'auto') return param_dtype === 'none' ? null : param_dtype;
  if (autocast !== 'none') return autocast;
  return weights === 'float32' ? null : weights;
}
