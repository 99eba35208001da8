import { expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import { kindOf } from '../src/choice/kind';
import type { Method } from '../src/choice/methods';
import { specOf } from '../src/choice/spec';

it.each([
  ['none', {}, 'none full'],
  ['ddp', {}, 'ddp full'],
  ['hsdp', { replicate: 2 }, 'fsdp2 full'],
  ['tensor', {}, 'none tensor full'],
  ['tensor_fsdp2', {}, 'fsdp2 tensor full'],
  ['pipeline', {}, 'none pipeline full'],
  ['none', { method: 'lora' }, 'none lora'],
  ['none', { method: 'lora', bits: '4' }, 'none qlora'],
] as const)('%s %j is of the kind “%s”', (method: Method, settings, kind) => {
  expect(kindOf(specOf({ ...arrival(), settings: { ...arrival().settings, ...settings } }, {}, method))).toBe(kind);
});
