import type { Settings } from './fields';

// The methods that the page lays side by side: each is one estimate of the same recipe.

export type Method = 'none' | 'ddp' | 'fsdp2';
export const methods: readonly Method[] = ['none', 'ddp', 'fsdp2'];

const short = { ddp: 'DDP', fsdp2: 'FSDP2' } as const;

export function methodName(method: Method, { gpus }: Settings): string {
  if (method === 'none') return 'One GPU';
  return gpus > 1 ? `${short[method]} × ${gpus}` : short[method];
}

/** Why a method makes no sense for these settings; undefined if it does. */
export function whyNot(method: Method, { gpus }: Settings): string | undefined {
  return method !== 'none' && gpus < 2 ? `${short[method]} needs more than one GPU.` : undefined;
}

/** What the bar of a method assumes, in words. */
export function assumed(method: Method, settings: Settings): string {
  const computed = precision(method, settings);
  if (method === 'none') return `${settings.gpus > 1 ? 'One works alone, the others idle' : 'Everything on one card'}; ${computed}.`;
  if (method === 'ddp') return `A full copy on each GPU, gradients averaged in 25 MiB buckets; ${computed}.`;
  return `Weights, gradients and optimizer states cut in ${settings.gpus}, each layer gathered while it runs; ${computed}.`;
}

const dtypes = { bfloat16: 'bf16', float32: 'fp32', float16: 'fp16' } as const;

function precision(method: Method, { weights, autocast }: Settings): string {
  const held = dtypes[weights];
  if (method === 'fsdp2') {
    const computed = fsdpParamDtype({ weights, autocast });
    return computed === null || computed === weights
      ? `held and computed in ${held}, gradients reduced in fp32`
      : `held in ${held}, gathered and computed in ${dtypes[computed]} (its own mixed precision in place of autocast), gradients reduced in fp32`;
  }
  return autocast === 'none' ? `held and computed in ${held}` : `held in ${held}, computed under ${dtypes[autocast]} autocast`;
}

/**
 * FSDP2's MixedPrecisionPolicy(param_dtype) for a recipe: it gathers in the dtype to compute in, so it takes autocast's place.
 * null: as held.
 */
export function fsdpParamDtype({ weights, autocast }: Pick<Settings, 'weights' | 'autocast'>): 'bfloat16' | 'float16' | null {
  if (autocast !== 'none') return autocast;
  return weights === 'float32' ? null : weights;
}
