import fc from 'fast-check';
import { readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../src/choice/choice';
import { readFiles } from '../src/files/index';
import { tools, writeFor, type Tool, type Written } from '../src/files/write/index';
import { leaves } from '../src/files/write/written';

const presets = readdirSync(new URL('../../presets/models/', import.meta.url))
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length).replace('__', '/'));

function get(spec: Json | undefined, at: string): Json | undefined {
  let value = spec;
  for (const key of at.slice(1).split('/')) {
    if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}

const RUNS = Number(process.env.RUNS ?? 100);
const SEED = Number(process.env.SEED ?? 20260);

const pick = <T>(...values: T[]) => fc.constantFrom(...values);
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 2 });
const DTYPES = ['bfloat16', 'float32', 'float16'] as const;

/** Any spec that makes sense, of everything the page can set. */
const adapters = fc.record({
  rank: fc.integer({ min: 1, max: 512 }),
  targets: pick<Json>('all-linear', ['q_proj', 'v_proj'], ['q_proj', 'k_proj', 'v_proj', 'o_proj']),
  dropout: pick(0, 0.05, 0.1),
  dora: fc.boolean(),
  upcast: maybe(fc.boolean()),
  modules_to_save: maybe(pick<Json>([], ['lm_head'])),
});
const quantisation = pick<Json | undefined>(
  undefined,
  undefined,
  { bits: 8 },
  { bits: 4, type: 'nf4', double_quant: true, compute_dtype: 'bfloat16' },
  { bits: 4, type: 'fp4', double_quant: false, compute_dtype: 'float32' },
);
const training = fc.record({
  objective: maybe(pick('sft', 'dpo')),
  weights: pick(...DTYPES),
  autocast: pick(null, null, 'bfloat16', 'float16'),
  optimizer: fc.record({
    name: pick(
      'adamw',
      'adamw',
      'adam',
      'sgd',
      'adafactor_hf',
      'adamw_8bit',
      'paged_adamw',
      'paged_adamw_8bit',
      'lion_8bit',
      'lion_bnb',
      'lion',
      'muon',
      'ademamix',
      'rmsprop',
      'schedule_free_adamw',
      'adamw_8bit_torchao',
      'nadam',
    ),
    implementation: pick('foreach', 'fused', 'loop'),
  }),
  micro_batch: fc.integer({ min: 1, max: 64 }).map((value) => value * 2),
  sequence: fc.integer({ min: 1, max: 1 << 20 }),
  accumulation: fc.integer({ min: 1, max: 128 }),
  checkpointing: pick<Json>('none', 'full', 'full_reentrant', 'selective', { every: 2 }),
  attention: pick('sdpa', 'eager', 'flash_attention_2', 'flex'),
  loss: maybe(pick('standard', 'chunked', 'liger_fused_linear', 'liger_cross_entropy', 'trl_tiled')),
  kernels: maybe(
    pick<Json>({ liger: { rms_norm: true, rope: true, swiglu: true } }, { liger: { rms_norm: true } }, { liger: { rope: false } }),
  ),
  max_grad_norm: pick(null, 1, 0.3, 5),
  weight_decay: maybe(pick(0, 0.1)),
  label_smoothing: maybe(pick(0, 0.1)),
  grad_scaler: maybe(fc.boolean()),
  keep_loss: maybe(fc.boolean()),
});
const data = fc
  .record({
    kind: pick('none', 'ddp', 'zero_redundancy', 'zero1', 'zero2', 'zero3', 'fsdp1', 'fsdp2'),
    degree: pick(2, 4, 8, 16, 6),
    copies: pick(1, 1, 2),
    bucket: maybe(fc.integer({ min: 1, max: 500 })),
    flag: maybe(fc.boolean()),
    param: pick<Json | undefined>(undefined, null, 'bfloat16', 'float16', 'float32'),
    reduce: pick<Json | undefined>(undefined, 'float32', 'bfloat16'),
    elements: maybe(fc.integer({ min: 1000, max: 1_000_000_000 })),
    strategy: maybe(pick('FULL_SHARD', 'SHARD_GRAD_OP', 'HYBRID_SHARD', '_HYBRID_SHARD_ZERO2', 'NO_SHARD')),
  })
  .map(({ kind, degree, copies, bucket, flag, param, reduce, elements, strategy }): JsonObject => {
    const of: Record<string, Json | undefined> = { kind, degree: kind === 'none' ? 1 : degree };
    if (kind === 'ddp')
      Object.assign(of, { bucket_cap_mb: bucket, static_graph: flag, find_unused_parameters: flag, gradient_as_bucket_view: flag });
    if (kind.startsWith('zero') && kind !== 'zero_redundancy')
      Object.assign(of, {
        auto_buckets: flag,
        pin_memory: flag,
        ...(elements ? { zero_optimization: { reduce_bucket_size: elements } } : {}),
      });
    if (kind === 'fsdp1')
      Object.assign(of, {
        strategy,
        param_dtype: param ?? undefined,
        reduce_dtype: reduce,
        use_orig_params: flag,
        forward_prefetch: flag,
        limit_all_gathers: flag,
      });
    if (kind === 'fsdp2')
      Object.assign(of, {
        param_dtype: param,
        reduce_dtype: reduce,
        reshard_after_forward: flag,
        ...(copies > 1 ? { replicate: copies } : {}),
      });
    return of as JsonObject;
  });
const states = fc
  .record({
    model: pick('meta-llama/Llama-3.1-8B', 'Qwen/Qwen3-8B', 'mistralai/Mistral-7B-v0.1', 'HuggingFaceTB/SmolLM2-1.7B'),
    training,
    adapter: maybe(adapters),
    quantisation,
    data,
    tensor: pick(1, 1, 1, 2, 8),
    sequence: fc.boolean(),
    loss: fc.boolean(),
    pipeline: pick(1, 1, 1, 1, 4),
    schedule: pick('1f1b', 'gpipe', 'interleaved_1f1b'),
    microbatches: fc.integer({ min: 1, max: 16 }),
    context: pick(1, 1, 1, 2),
    offload: maybe(fc.record({ parameters: pick('none', 'cpu'), optimizer: pick('none', 'cpu'), activations: maybe(pick('none', 'cpu')) })),
    segments: fc.boolean(),
  })
  .map((state): JsonObject => {
    const spec = {
      version: 1,
      model: state.model,
      training: {
        ...state.training,
        method: state.adapter ? 'lora' : 'full',
        ...(state.adapter ? { adapter: state.adapter, ...(state.quantisation ? { base_quantization: state.quantisation } : {}) } : {}),
      },
      parallel: {
        data: state.data,
        ...(state.tensor > 1 ? { tensor: { degree: state.tensor, sequence: state.sequence, loss: state.loss } } : {}),
        ...(state.pipeline > 1
          ? {
              pipeline: {
                degree: state.pipeline,
                schedule: state.schedule,
                virtual: state.schedule === 'interleaved_1f1b' ? 2 : 1,
                microbatches: state.microbatches,
              },
            }
          : {}),
        ...(state.context > 1 ? { context: { degree: state.context } } : {}),
        ...(state.offload ? { offload: state.offload } : {}),
      },
      cluster: { gpu: 'h100-sxm-80gb', gpus_per_node: 8, nodes: 1 },
      allocator: { expandable_segments: state.segments },
    };
    return JSON.parse(JSON.stringify(spec)) as JsonObject; // without what is undefined
  });

/** What the wire format means where it says nothing (core/spec/spec.h). */
const DEFAULTS: Record<string, Json> = {
  '/training/objective': 'sft',
  '/training/loss': 'standard',
  '/training/checkpointing': 'none',
  '/training/kernels/liger/rms_norm': false,
  '/training/kernels/liger/rope': false,
  '/training/kernels/liger/swiglu': false,
  '/training/weight_decay': 0,
  '/training/label_smoothing': 0,
  '/training/grad_scaler': false,
  '/training/adapter/upcast': true,
  '/training/adapter/modules_to_save': [],
  '/parallel/data/kind': 'none',
  '/parallel/data/degree': 1,
  '/parallel/data/replicate': 1,
  '/parallel/data/auto_buckets': true,
  '/parallel/data/reshard_after_forward': true,
  '/parallel/offload/parameters': 'none',
  '/parallel/offload/optimizer': 'none',
  '/parallel/offload/activations': 'none',
};

/** Moves a state to where the tool has something to say, in its main points; all else stays random. */
function fitting(tool: Tool, spec: JsonObject): JsonObject {
  const copy = JSON.parse(JSON.stringify(spec)) as {
    model: Json;
    training: Record<string, Json>;
    parallel: { data: Record<string, Json>; pipeline?: Json; tensor?: Json; context?: Json };
  };
  const { data } = copy.parallel;
  const kinds: Partial<Record<Tool, readonly string[]>> = {
    deepspeed: ['zero1', 'zero2', 'zero3'],
    fsdp: ['fsdp1', 'fsdp2'],
    torchtitan: ['none', 'ddp', 'fsdp2'],
  };
  if (kinds[tool] && !kinds[tool].includes(String(data.kind)))
    copy.parallel.data = {
      kind: kinds[tool][Number(data.degree) % kinds[tool].length] ?? '',
      degree: data.kind === 'none' ? 1 : (data.degree ?? 1),
    };
  if (copy.parallel.data.kind === 'none') copy.parallel.data.degree = 1;
  if (tool !== 'torchtitan') {
    delete copy.parallel.pipeline;
    if (data.kind !== 'fsdp2' || tool === 'fsdp') {
      delete copy.parallel.tensor;
      delete copy.parallel.context;
    }
    return copy as unknown as JsonObject;
  }
  copy.model = copy.model === 'Qwen/Qwen3-8B' ? 'Qwen/Qwen3-8B' : 'meta-llama/Llama-3.1-70B';
  const { adapter: _, base_quantization: __, ...training } = copy.training;
  copy.training = {
    ...training,
    method: 'full',
    objective: 'sft',
    optimizer: { name: 'adamw', implementation: (training.optimizer as JsonObject).implementation ?? 'fused' },
  };
  if (training.weights === 'float16') copy.training.weights = 'float32';
  return copy as unknown as JsonObject;
}

async function readBack(written: Written): Promise<JsonObject> {
  const { readings, spec } = await readFiles(written.files, { presets });
  for (const one of readings) {
    if (!one.ok) throw new Error(`${one.name}: ${one.faults.map(({ line, message }) => `line ${line}: ${message}`).join('; ')}`);
    expect(one.import.faults, `${one.name}\n${written.files.find(({ name }) => name === one.name)?.text}`).toEqual([]);
    const unknown = one.import.lines.filter(({ text }) => text.includes('it may matter')).map(({ key }) => key);
    expect(unknown, one.name).toEqual([]);
  }
  return spec;
}

describe.each(tools)('any state → %s → import', (tool: Tool) => {
  test('what is said is read back as it was, and what is not said is told', async () => {
    let exported = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.oneof({ weight: 1, arbitrary: states }, { weight: 4, arbitrary: states.map((state) => fitting(tool, state)) }),
        async (spec) => {
          const made = writeFor(tool, spec);
          if (!made.ok) {
            expect(made.why).toMatch(/\w.*\.$/);
            return;
          }
          exported++;
          const { said, lost } = made.written;
          const covered = new Set([...said, ...lost.map(({ at }) => at)]);
          const forgotten = leaves(spec).filter((at) => !covered.has(at) && !/^\/(version|model|cluster\/gpu$|allocator)/.test(at));
          expect(forgotten).toEqual([]);
          for (const { at, why } of lost) expect(why, at).toMatch(/\w/);
          const back = await readBack(made.written);
          const text = made.written.files.map((file) => `# ${file.name}\n${file.text}`).join('\n');
          if (get(spec, '/model') === get(back, '/model')) expect(get(back, '/model')).toBe(spec.model);
          else throw new Error(`model: ${JSON.stringify(get(back, '/model'))}`);
          for (const at of said) {
            if (lost.some((one) => one.at === at)) continue;
            const was = get(spec, at);
            const is = get(back, at) ?? DEFAULTS[at] ?? null;
            expect(is, `${at}\n${text}`).toEqual(was);
          }
        },
      ),
      { numRuns: RUNS, seed: SEED },
    );
    expect(exported).toBeGreaterThan(RUNS / 4);
  }, 60_000);
});

describe('by example', () => {
  const base = {
    version: 1,
    model: 'meta-llama/Llama-3.1-8B',
    training: {
      method: 'full',
      weights: 'float32',
      autocast: null,
      optimizer: { name: 'adamw', implementation: 'fused' },
      micro_batch: 2,
      sequence: 4096,
      accumulation: 4,
      checkpointing: 'full',
      attention: 'flash_attention_2',
      max_grad_norm: 1,
    },
    parallel: { data: { kind: 'fsdp2', degree: 16, param_dtype: 'bfloat16', reduce_dtype: 'bfloat16' } },
    cluster: { gpu: 'h100-sxm-80gb', gpus_per_node: 8, nodes: 2 },
    allocator: { expandable_segments: true },
  } satisfies JsonObject;

  test('everything that matters of an FSDP2 run over two nodes is said', () => {
    for (const tool of ['accelerate', 'axolotl', 'llamafactory'] as const) {
      const made = writeFor(tool, base);
      if (!made.ok) throw new Error(made.why);
      const lost = made.written.lost.map(({ at }) => at).filter((at) => !at.startsWith('/cluster/'));
      expect(lost, tool).toEqual([]);
    }
  });

  test('the launch command names nodes, GPUs, allocator and file', () => {
    const command = (tool: Tool, spec: JsonObject) => {
      const made = writeFor(tool, spec);
      return made.ok ? made.written.command : made.why;
    };
    expect(command('accelerate', base)).toBe(
      'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True accelerate launch --config_file accelerate.yaml -m trl.scripts.sft --config sft.yaml',
    );
    expect(command('torchtitan', base)).toContain('torchrun --nproc_per_node 8 --nnodes 2');
    expect(command('deepspeed', base)).toBe('DeepSpeed does not do fsdp2.');
    const zero = {
      ...base,
      training: { ...base.training, weights: 'bfloat16' },
      parallel: { data: { kind: 'zero3', degree: 8 }, offload: { optimizer: 'cpu', parameters: 'cpu' } },
    };
    expect(command('deepspeed', zero)).toBe(
      'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True deepspeed --num_gpus 8 --module trl.scripts.sft --config sft.yaml',
    );
    const written = writeFor('deepspeed', zero);
    expect(written.ok && written.written.files.map(({ name }) => name)).toEqual(['zero3_offload.json', 'sft.yaml']);
  });

  // accelerate's short form has no words for the sizes of buckets, and DeepSpeed's own are not those that the estimate reckons with.
  test('the sizes of ZeRO’s buckets are said, in DeepSpeed’s own file', () => {
    const zero = { ...base, training: { ...base.training, weights: 'bfloat16' }, parallel: { data: { kind: 'zero3', degree: 8 } } };
    for (const tool of ['accelerate', 'deepspeed', 'axolotl', 'llamafactory'] as const) {
      const made = writeFor(tool, zero);
      const file = made.ok ? made.written.files.find(({ name }) => name === 'zero3.json') : undefined;
      expect(JSON.parse(file?.text ?? '{}'), tool).toMatchObject({
        train_batch_size: 2 * 4 * 8,
        zero_optimization: { reduce_bucket_size: 'auto', stage3_prefetch_bucket_size: 'auto', stage3_param_persistence_threshold: 'auto' },
      });
    }
    const accelerate = writeFor('accelerate', zero);
    const yaml = accelerate.ok ? accelerate.written.files.find(({ name }) => name === 'accelerate.yaml')?.text : '';
    expect(yaml).toContain('deepspeed_config_file: zero3.json');
    expect(yaml).not.toContain('mixed_precision'); // accelerate refuses what both files say
  });

  test('hostile names stay text', async () => {
    for (const model of ['a: b', '"; rm -rf /', 'x\n- y: z', '{{ x }}', '!!python/object:os', '*alias', 'null', '# comment', '\u2028']) {
      for (const tool of ['accelerate', 'axolotl', 'llamafactory'] as const) {
        const made = writeFor(tool, { ...base, model: { name: model, config: {} } });
        if (!made.ok) throw new Error(made.why);
        expect(made.written.command).not.toContain(model);
        const spec = await readBack(made.written);
        expect(get(spec, '/training/micro_batch')).toBe(2);
      }
    }
  });
});
