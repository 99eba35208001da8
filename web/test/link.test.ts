import { describe, expect, it } from 'vitest';
import published from '../../tests/browser/links.json';
import { arrival, modelName } from '../src/choice/choice';
import { defaultSettings } from '../src/choice/fields';
import { readLink, writeLink } from '../src/choice/link';

describe('every link form that was ever published', () => {
  it.each(published)('$what', async ({ link, model, settings, complaints, canonical, config }) => {
    const read = await readLink(link);
    expect(modelName(read.choice.model)).toBe(model);
    expect(read.choice.settings).toEqual({ ...defaultSettings(), ...settings });
    if (config) expect(read.choice.model).toMatchObject({ kind: 'pasted', config });
    for (const complaint of complaints) expect(read.complaints.join('\n')).toContain(complaint);
    expect(read.complaints).toHaveLength(complaints.length);
    if (canonical) expect(await writeLink(read.choice)).toBe(link);
  });

  it.each(published)('is written so that it reads the same: $what', async ({ link }) => {
    const { choice } = await readLink(link);
    expect(await readLink(await writeLink(choice))).toEqual({ choice, complaints: [] });
  });
});

it('the defaults of version 1 are frozen', () => {
  expect(defaultSettings()).toEqual({
    method: 'full',
    weights: 'bfloat16',
    autocast: 'none',
    optimizer: 'adamw',
    implementation: 'foreach',
    micro_batch: 1,
    sequence: 2048,
    accumulation: 1,
    checkpointing: 'none',
    attention: 'sdpa',
    max_grad_norm: null,
    gpu: 'a100-sxm-80gb',
    gpus: 1,
    gpus_per_node: 8,
    expandable_segments: false,
    data: 'best',
  });
});

it('no link is what someone sees on arrival', async () => {
  expect(await readLink('')).toEqual({ choice: arrival(), complaints: [] });
});

it('a link that would unpack to very much is refused', async () => {
  const choice = { ...arrival(), model: { kind: 'pasted' as const, name: 'bomb', config: { a: 'x'.repeat(2_000_000) } } };
  const { complaints } = await readLink(await writeLink(choice));
  expect(complaints.join()).toContain('damaged');
});

it('a name with anything in it survives', async () => {
  const choice = { ...arrival(), model: { kind: 'preset' as const, id: 'a&b=c#d %é+"/x' } };
  expect((await readLink(await writeLink(choice))).choice).toEqual(choice);
});
