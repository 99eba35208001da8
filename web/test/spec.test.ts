import { describe, expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import type { Settings } from '../src/choice/fields';
import { assumed, methods, whyNot } from '../src/choice/methods';
import { jobsOf, specOf } from '../src/choice/spec';

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
    expect(jobsOf(arrival(), config)).toEqual(methods.map((key) => ({ key, spec: JSON.stringify(specOf(arrival(), config, key)) })));
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
    expect(methods.map((method) => whyNot(method, choose({ gpus: 1 }).settings))).toEqual([
      undefined,
      'DDP needs more than one GPU.',
      'FSDP2 needs more than one GPU.',
    ]);
  });
});
