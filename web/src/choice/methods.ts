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

const short: Record<Exclude<Method, 'none' | 'custom'>, string> = {
  ddp: 'DDP',
  zero_redundancy: 'ZeroRedundancyOptimizer',
  zero1: 'ZeRO-1',
  zero2: 'ZeRO-2',
  zero3: 'ZeRO-3',
  fsdp1: 'FSDP1',
  fsdp2: 'FSDP2',
  hsdp: 'HSDP',
  tensor: 'Tensor parallel',
  tensor_fsdp2: 'Tensor × FSDP2',
  pipeline: 'Pipeline',
};

export function methodName(method: Method, settings: Settings): string {
  if (method === 'none') return 'One GPU';
  if (method === 'custom') return `Own mix × ${settings.gpus}`;
  if (settings.gpus < 2) return short[method];
  if (method === 'hsdp') return `HSDP ${copies(settings)} × ${settings.gpus / copies(settings)}`;
  if (method === 'tensor_fsdp2') return `Tensor ${tensorDegree(settings)} × FSDP2 ${settings.gpus / tensorDegree(settings)}`;
  return `${short[method]} × ${settings.gpus}`;
}

/** Why a method makes no sense for these settings; undefined if it does. */
export function whyNot(method: Method, settings: Settings): string | undefined {
  const { gpus } = settings;
  if (method === 'none') return undefined;
  if (method === 'custom') {
    if (settings.data !== 'custom') return 'Choose “own mix” under Parallelism to set every degree yourself.';
    return gpus % splits(settings) === 0 ? undefined : `${gpus} GPUs cannot be split into ${splits(settings)} parts for tensor, pipeline and context.`;
  }
  if (gpus < 2) return 'Needs more than one GPU.';
  if (method === 'hsdp') {
    if (copies(settings) < 2) return 'Needs more than one node, or a number of copies.';
    if (gpus % copies(settings) !== 0) return `${gpus} GPUs cannot be split into ${copies(settings)} copies.`;
  }
  if (method === 'tensor_fsdp2' && (gpus % tensorDegree(settings) !== 0 || gpus <= tensorDegree(settings))) {
    return `Needs a multiple of ${tensorDegree(settings)} GPUs, and more than one.`;
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
      return gpus > 1 ? 'One works alone, the others idle' : 'Everything on one card';
    case 'ddp':
      return `A full copy on each GPU, gradients averaged in ${settings.bucket_cap_mb} MiB buckets`;
    case 'zero_redundancy':
      return `DDP, each GPU keeping the optimizer states of ${fraction(gpus)} of the parameters`;
    case 'zero1':
      return `DeepSpeed: optimizer states cut in ${gpus}`;
    case 'zero2':
      return `DeepSpeed: gradients and optimizer states cut in ${gpus}`;
    case 'zero3':
      return `DeepSpeed: weights, gradients and optimizer states cut in ${gpus}`;
    case 'fsdp1':
      return `Weights, gradients and optimizer states cut in ${gpus} flat pieces`;
    case 'fsdp2':
      return `Weights, gradients and optimizer states cut in ${gpus}, each layer gathered while it runs`;
    case 'hsdp':
      return `FSDP2 cut in ${gpus / copies(settings)}, ${copies(settings)} copies of it`;
    case 'tensor':
      return `Each matrix cut in ${gpus}`;
    case 'tensor_fsdp2':
      return `Each matrix cut in ${tensorDegree(settings)}, and what is left in ${gpus / tensorDegree(settings)} by FSDP2`;
    case 'pipeline':
      return `Layers cut in ${gpus} stages, ${microbatches(settings)} microbatches under way`;
    case 'custom':
      return `${settings.kind} × ${gpus / splits(settings)}, tensor ${settings.tensor_degree}, pipeline ${settings.pipeline_degree}`;
  }
}

function fraction(gpus: number): string {
  return `1/${gpus}`;
}

const dtypes = { bfloat16: 'bf16', float32: 'fp32', float16: 'fp16' } as const;

function precision(method: Method, settings: Settings): string {
  const { weights, autocast } = settings;
  const held = dtypes[weights];
  if (isFsdp(method, settings)) {
    const computed = fsdpParamDtype(settings);
    const reduced = settings.reduce_dtype === 'none' ? 'as they are' : `in ${dtypes[settings.reduce_dtype]}`;
    return computed === null || computed === weights
      ? `held and computed in ${held}, gradients reduced ${reduced}`
      : `held in ${held}, gathered and computed in ${dtypes[computed]} (its own mixed precision in place of autocast), gradients reduced ${reduced}`;
  }
  if (settings.method === 'lora' && settings.bits !== 'none') {
    return `the base held in ${settings.bits} bits, adapters trained${settings.bits === '4' ? `, products in ${dtypes[settings.compute_dtype]}` : ''}`;
  }
  return autocast === 'none' ? `held and computed in ${held}` : `held in ${held}, computed under ${dtypes[autocast]} autocast`;
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
