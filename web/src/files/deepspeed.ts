import { Draft, Section, type Import } from './draft';
import { ignoreRest } from './neutral';
import { DEEPSPEED_NEUTRAL, readDeepspeed, settlePrecision } from './parallel';
import type { Table } from './tree';

/** DeepSpeed's JSON on its own: how the model is spread. The rest is the trainer's. Source: deepspeed.ai/docs/config-json, deepspeed/runtime/zero/config.py. */
export function readDeepspeedFile(table: Table, source: string): Import {
  const draft = new Draft('deepspeed', source);
  const from = new Section(table, draft);
  const { mixed } = readDeepspeed(draft, from);
  if (mixed !== undefined) settlePrecision(draft, { mixed, held: undefined, why: '', lora: false });
  if (!draft.has('/parallel/data/degree')) draft.askGpus('DeepSpeed’s file does not say it: the launcher does.');
  ignoreRest(draft, from, DEEPSPEED_NEUTRAL, 'DeepSpeed');
  return draft.done();
}
