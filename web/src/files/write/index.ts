import type { JsonObject } from '../../choice/choice';
import { toAxolotl } from './axolotl';
import { toLlamafactory } from './llamafactory';
import { toTorchtitan } from './torchtitan';
import { toAccelerate, toDeepspeed, toFsdp } from './trl';
import { View, type Export } from './written';

export type { Export, Written, WrittenFile } from './written';

// A spec (the wire format) as the configuration it means for a tool, with the command that starts it.

export const tools = ['accelerate', 'deepspeed', 'fsdp', 'torchtitan', 'axolotl', 'llamafactory'] as const;
export type Tool = (typeof tools)[number];

export const toolNames: Record<Tool, string> = {
  accelerate: 'accelerate',
  deepspeed: 'DeepSpeed',
  fsdp: 'FSDP',
  torchtitan: 'torchtitan',
  axolotl: 'axolotl',
  llamafactory: 'LLaMA-Factory',
};

const writers: Record<Tool, (spec: JsonObject) => Export> = {
  accelerate: toAccelerate,
  deepspeed: toDeepspeed,
  fsdp: toFsdp,
  torchtitan: toTorchtitan,
  axolotl: toAxolotl,
  llamafactory: toLlamafactory,
};

export function writeFor(tool: Tool, spec: JsonObject): Export {
  if (new View(spec).text('/parallel/data/strategy', '') === 'NO_SHARD') return { ok: false, why: 'FSDP1’s NO_SHARD is DDP: choose DDP.' };
  return writers[tool](spec);
}
