import { expect, it } from 'vitest';
import { search, type Preset } from '../src/presets';
import { count, exactBytes, gib, parameterCount, pointName } from '../src/view/format';

const presets: Preset[] = [
  { id: 'deepseek-ai/DeepSeek-V3', type: 'deepseek_v3', parameters: 671e9, unsupported: 'not yet' },
  { id: 'meta-llama/Llama-3.1-8B', type: 'llama', parameters: 8030261248 },
  { id: 'mistralai/Mistral-7B-v0.1', type: 'mistral', parameters: 7241732096 },
  { id: 'HuggingFaceTB/SmolLM2-135M', type: 'llama', parameters: 134515008 },
];
const found = (query: string) => search(presets, query).map(({ id }) => id.split('/')[1]);

it('finds models by name, family and size', () => {
  expect(found('mistral')).toEqual(['Mistral-7B-v0.1']);
  expect(found('LLAMA')).toEqual(['Llama-3.1-8B', 'SmolLM2-135M']);
  expect(found('llama 135m')).toEqual(['SmolLM2-135M']);
  expect(found('7b')).toEqual(['Mistral-7B-v0.1']);
  expect(found('nothing')).toEqual([]);
});

it('puts what cannot be estimated last', () => {
  expect(found('').at(-1)).toBe('DeepSeek-V3');
});

it('writes numbers as the page shows them', () => {
  expect([0, 512, 2 ** 30, 1.5 * 2 ** 40, 41.299 * 2 ** 30].map(gib)).toEqual(['0', '< 0.001', '1.00', '1,536', '41.3']);
  expect(exactBytes(1234567)).toBe('1,234,567 bytes');
  expect(parameterCount(8030261248)).toBe('8.03 B');
  expect(count(2048)).toBe('2,048');
  expect(['loaded', 'step0.forward0', 'step1.backward3', 'step1.zero_grad', 'odd'].map(pointName)).toEqual([
    'Loaded',
    'Step 0, forward',
    'Step 1, backward 4',
    'Step 1, zero grad',
    'odd',
  ]);
});
