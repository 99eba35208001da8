import { defaultSettings, type Settings } from './fields.ts';

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

/** A preset by its id, or the user's own config.json. */
export type Model = { kind: 'preset'; id: string } | { kind: 'pasted'; name: string; config: JsonObject };

/** All that the page asks the user for. */
export interface Choice {
  model: Model;
  settings: Settings;
}

export function modelName(model: Model): string {
  return model.kind === 'preset' ? model.id : model.name;
}

/**
 * What someone sees who brings no link: a full fine-tune of a model everybody knows on one usual machine, where the three
 * methods come out differently. May change at any time, since every link names its model, GPU and number of GPUs.
 */
export function arrival(): Choice {
  return {
    model: { kind: 'preset', id: 'meta-llama/Llama-3.1-8B' },
    settings: { ...defaultSettings(), gpu: 'h100-sxm-80gb', gpus: 8 },
  };
}
