import { modelName, type Choice, type Json, type JsonObject } from './choice.ts';
import { fsdpParamDtype, methods, whyNot, type Method } from './methods.ts';
import type { Settings } from './fields';

/** What a choice asks the core: for each method that makes sense, the spec's text, which is also what its answer is known by. */
export function jobsOf(choice: Choice, config: JsonObject): { key: Method; spec: string }[] {
  return methods.filter((method) => !whyNot(method, choice.settings)).map((key) => ({ key, spec: JSON.stringify(specOf(choice, config, key)) }));
}

/** A choice, under one method, in the wire format (version 1), with the model's config inline: the core carries no presets. */
export function specOf({ model, settings }: Choice, config: JsonObject, method: Method): JsonObject {
  return {
    version: 1,
    model: { name: modelName(model), config },
    training: {
      method: settings.method,
      weights: settings.weights,
      autocast: method === 'fsdp2' ? null : orNull(settings.autocast),
      optimizer: { name: settings.optimizer, implementation: settings.implementation },
      micro_batch: settings.micro_batch,
      sequence: settings.sequence,
      accumulation: settings.accumulation,
      checkpointing: settings.checkpointing,
      attention: settings.attention,
      max_grad_norm: settings.max_grad_norm,
    },
    parallel: { data: dataParallel(method, settings) },
    cluster: {
      gpu: settings.gpu,
      gpus_per_node: Math.min(settings.gpus, settings.gpus_per_node),
      nodes: Math.ceil(settings.gpus / settings.gpus_per_node),
    },
    allocator: { expandable_segments: settings.expandable_segments },
  };
}

function dataParallel(method: Method, settings: Settings): JsonObject {
  if (method === 'none') return { kind: 'none', degree: 1 };
  if (method === 'ddp') return { kind: 'ddp', degree: settings.gpus };
  return { kind: 'fsdp2', degree: settings.gpus, param_dtype: fsdpParamDtype(settings), reduce_dtype: 'float32' };
}

function orNull(text: string): Json {
  return text === 'none' ? null : text;
}
