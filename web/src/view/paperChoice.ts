import type { JsonObject } from '../choice/choice';
import type { Settings } from '../choice/fields';
import type { Largest, Paper, PaperMethod } from '../core/search';
import { paper as text } from '../text/views';
import { changed, speedOf } from './search';

// The paper's methods as specs of ours, and what keeps the two apart.

export interface Side {
  paper: Paper['methods'][number];
  ours: Largest | undefined; // undefined: such a spec is not answered
}

export function paperQuestion(spec: JsonObject, { gpu, gpus, sequence }: Settings): object {
  return { model: spec.model, gpu, gpus, sequence };
}

/** Full training with checkpointing, as the paper has it. */
export function specUnder(spec: JsonObject, method: PaperMethod, gpus: number): JsonObject {
  const parallel: Record<PaperMethod, JsonObject> = {
    cdp: gpus > 1 ? { data: { kind: 'ddp', degree: gpus } } : {},
    adp: { data: { kind: 'zero3', degree: gpus } },
    tp: { tensor: { degree: gpus, sequence: true, loss: true } },
    dp_tp: { data: { kind: 'fsdp2', degree: gpus / 2 }, tensor: { degree: 2, sequence: true, loss: true } },
  };
  const training = { method: 'full', base_quantization: null, checkpointing: 'full', accumulation: 1 };
  return changed(spec, { parallel: parallel[method], training });
}

export function whyDifferent(answer: Paper, sides: readonly Side[], name: (method: PaperMethod | 'offload') => string): string[] {
  const speed = ({ ours }: Side) => (ours?.there ? speedOf(ours.there) : 0);
  const best = sides.reduce<Side | undefined>((before, side) => (speed(side) > (before ? speed(before) : 0) ? side : before), undefined);
  const chosen = name(answer.choice);
  const ours = best && name(best.paper.method);
  return [
    ours === undefined ? text.nothing(chosen) : ours === chosen ? text.same(ours) : text.differ(chosen, ours),
    ...(answer.choice === 'cdp' && ours !== chosen ? [text.bonus] : []),
    ...sides.flatMap(({ paper, ours: here }) => {
      if (!here || here.largest === paper.largest_batch) return [];
      return [(paper.largest_batch > here.largest ? text.more : text.less)(name(paper.method))];
    }),
  ];
}
