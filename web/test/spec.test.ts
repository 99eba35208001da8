import { describe, expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import { fieldKeys, type Settings } from '../src/choice/fields';
import { assumed, methods, whyNot } from '../src/choice/methods';
import { jobsOf, settingsOf, specOf } from '../src/choice/spec';
import { groups } from '../src/text/groups';
import { help } from '../src/text/help';
import { randomSettings } from './random';

const config = { model_type: 'llama' };
const choose = (settings: Partial<Settings>) => ({ ...arrival(), settings: { ...arrival().settings, ...settings } });

describe('the spec that goes to the core', () => {
  it('carries the model inline, and every default', () => {
    expect(specOf(arrival(), config, 'ddp')).toEqual({
      version: 1,
      model: { name: 'meta-llama/Llama-3.1-8B', config },
      training: {
        method: 'full',
        weights: 'bfloat16',
        autocast: null,
        optimizer: { name: 'adamw', implementation: 'foreach' },
        micro_batch: 1,
        sequence: 2048,
        accumulation: 1,
        checkpointing: 'none',
        attention: 'sdpa',
        max_grad_norm: null,
      },
      parallel: { data: { kind: 'ddp', degree: 8 } },
      cluster: { gpu: 'h100-sxm-80gb', gpus_per_node: 8, nodes: 1 },
      allocator: { expandable_segments: false },
    });
  });

  it('is asked for each method that makes sense', () => {
    const once = ['none', 'ddp', 'zero_redundancy', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2', 'tensor', 'tensor_fsdp2'] as const;
    expect(jobsOf(arrival(), config)).toEqual([
      ...once.map((key) => ({ key, spec: JSON.stringify(specOf(arrival(), config, key)) })),
      // Its first stage and its last differ, and one of them needs most.
      ...[0, 7].map((rank) => ({ key: 'pipeline', spec: JSON.stringify(specOf(arrival(), config, 'pipeline', rank)) })),
    ]);
    expect(jobsOf(choose({ gpus: 1 }), config).map(({ key }) => key)).toEqual(['none']);
  });

  it('has one rank on one GPU', () => {
    expect(specOf(arrival(), config, 'none').parallel).toEqual({ data: { kind: 'none', degree: 1 } });
  });

  it.each([
    ['bfloat16', 'none', null, 'bfloat16'],
    ['float32', 'none', null, null],
    ['float32', 'bfloat16', null, 'bfloat16'],
  ] as const)('FSDP2 computes in the same precision: %s under %s', (weights, autocast, fsdpAutocast, param_dtype) => {
    const spec = specOf(choose({ weights, autocast }), config, 'fsdp2');
    expect(spec.training).toMatchObject({ weights, autocast: fsdpAutocast });
    expect(spec.parallel).toEqual({ data: { kind: 'fsdp2', degree: 8, param_dtype, reduce_dtype: 'float32' } });
  });

  it.each([
    [4, 8, 4, 1],
    [8, 8, 8, 1],
    [12, 8, 8, 2],
    [16, 8, 8, 2],
  ])('%i GPUs at %i a node', (gpus, per_node, gpus_per_node, nodes) => {
    expect(specOf(choose({ gpus, gpus_per_node: per_node }), config, 'ddp').cluster).toMatchObject({ gpus_per_node, nodes });
  });
});

describe('the words at a bar', () => {
  it('say what FSDP2 does in place of autocast', () => {
    expect(assumed('fsdp2', choose({ weights: 'float32', autocast: 'bfloat16' }).settings)).toContain('gathered and computed in bf16');
    expect(assumed('ddp', choose({ weights: 'float32', autocast: 'bfloat16' }).settings)).toContain('under bf16 autocast');
  });

  it('say why a method is left out', () => {
    const reasons = (settings: Partial<Settings>) => Object.fromEntries(methods.map((method) => [method, whyNot(method, choose(settings).settings)]));
    expect(reasons({ gpus: 1 })).toMatchObject({ none: undefined, ddp: 'Needs more than one GPU.', pipeline: 'Needs more than one GPU.' });
    expect(reasons({ gpus: 16 })).toMatchObject({ hsdp: undefined, tensor_fsdp2: undefined });
    expect(reasons({ gpus: 7 })).toMatchObject({ hsdp: 'Needs more than one node, or a number of copies.', fsdp2: undefined });
    expect(reasons({ gpus: 8, data: 'custom', tensor_degree: 3 })).toMatchObject({ custom: expect.stringContaining('8 GPUs cannot be split into 3') });
  });
});

describe('from a spec back to settings', () => {
  it('any state asks for the same again', () => {
    for (const settings of randomSettings(60)) {
      const choice = { ...arrival(), settings };
      for (const method of methods) {
        if (whyNot(method, settings) && !(method === 'custom' && settings.gpus % (settings.tensor_degree * settings.pipeline_degree * settings.context_degree) === 0)) continue;
        const spec = specOf(choice, config, method);
        const read = settingsOf(spec);
        expect(read.complaints).toEqual([]);
        const { data } = read.settings;
        expect(data).not.toBe('best');
        if (data !== 'best') expect(specOf({ ...choice, settings: read.settings }, config, data)).toEqual(spec);
      }
    }
  });

  it('names what it does not know, and what does not read', () => {
    const { complaints, settings } = settingsOf({ version: 1, model: 'a/b', training: { micro_batch: 'two', colour: 'blue', sequence: 4096 }, extra: { deep: [1] } });
    expect(complaints.map(({ at }) => at)).toEqual(['/training/micro_batch', '/training/colour', '/extra/deep']);
    expect(settings).toMatchObject({ micro_batch: 1, sequence: 4096, gpus: 1, data: 'none' });
  });
});

it('every setting has its words, and its place among all settings', () => {
  const shown = ['method', 'weights', 'optimizer', 'micro_batch', 'sequence', 'checkpointing', 'gpu', 'gpus', 'gpus_per_node'];
  expect([...shown, ...groups.flatMap((group) => group.fields)].sort()).toEqual([...fieldKeys].sort());
  expect(Object.keys(help).sort()).toEqual([...fieldKeys].sort());
});
