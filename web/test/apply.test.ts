import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { arrival, type Choice, type Json } from '../src/choice/choice';
import { whyNot } from '../src/choice/methods';
import { specOf } from '../src/choice/spec';
import { apply, type Applied } from '../src/files/apply';
import { readFiles } from '../src/files/index';
import { tools, writeFor } from '../src/files/write/index';
import { randomSettings } from './random';

const cases = new URL('../../tests/cases/', import.meta.url);
const presets = readdirSync(new URL('../../presets/models/', import.meta.url))
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length).replace('__', '/'));

async function filled(names: readonly string[], from: Choice = arrival()): Promise<Applied> {
  const { readings, spec } = await readFiles(
    names.map((name) => ({ name, text: readFileSync(new URL(name, cases), 'utf8') })),
    { presets },
  );
  return apply(
    from,
    'fsdp2',
    spec,
    readings.flatMap((one) => (one.ok ? [one.import.kind] : [])),
  );
}

describe('a file fills the form', () => {
  test('R01: QLoRA under FSDP1, on the GPUs that are chosen', async () => {
    const { choice, complaints } = await filled(['r01_axolotl_qlora_fsdp.yml']);
    expect(choice.model).toEqual({ kind: 'preset', id: 'meta-llama/Llama-2-7b-hf' });
    expect(choice.settings).toMatchObject({
      data: 'fsdp1',
      gpus: 8,
      gpu: 'h100-sxm-80gb',
      method: 'lora',
      lora_rank: 32,
      targets: 'all-linear',
      bits: '4',
      double_quant: true,
      micro_batch: 4,
      sequence: 512,
      accumulation: 4,
      checkpointing: 'full_reentrant',
      attention: 'flash_attention_2',
      use_orig_params: false,
      offload_parameters: 'cpu',
      offload_optimizer: 'cpu',
      optimizer: 'adamw',
      implementation: 'fused',
    });
    expect(complaints).toEqual([]);
  });

  test('R09: tensor parallelism over the eight that are chosen leaves one data rank', async () => {
    const { choice } = await filled(['r09_torchtitan_70b.toml']);
    expect(choice.settings).toMatchObject({
      gpus: 8,
      tensor_sequence: true,
      tensor_loss: true,
      checkpointing: 'full',
      micro_batch: 8,
      sequence: 8192,
    });
    const more = await filled(['r09_torchtitan_70b.toml'], { ...arrival(), settings: { ...arrival().settings, gpus: 64 } });
    expect(more.choice.settings).toMatchObject({ data: 'tensor_fsdp2', gpus: 64, tensor_degree: 8 });
    expect(specOf(more.choice, {}, 'tensor_fsdp2')).toMatchObject({
      parallel: { data: { kind: 'fsdp2', degree: 8 }, tensor: { degree: 8, sequence: true, loss: true } },
    });
  });

  test('R11: a model put together from arguments is pasted', async () => {
    const { choice } = await filled(['r11_megatron_llama3_8b.sh']);
    expect(choice.model).toMatchObject({ kind: 'pasted', config: { hidden_size: 4096 } });
    expect(choice.settings).toMatchObject({ data: 'zero1', gpus: 8, accumulation: 16 });
  });

  test('R13: what a file leaves open stays as it is; what it leaves out is at its default', async () => {
    const before = arrival();
    const { choice } = await filled(['r13_torchtune_8b_single.yaml'], {
      ...before,
      settings: { ...before.settings, sequence: 777, liger_rope: true, label_smoothing: 0.1, gpus: 2 },
    });
    expect(choice.settings).toMatchObject({
      sequence: 777,
      liger_rope: false,
      label_smoothing: 0,
      gpus: 2,
      data: 'best',
      optimizer: 'paged_adamw_8bit',
      loss: 'chunked',
    });
  });

  test('a launcher’s file changes how the model is spread, and leaves the recipe', async () => {
    const before = arrival();
    const { choice } = await filled(['r08_accelerate_ds_stage2_offload.yaml'], {
      ...before,
      settings: { ...before.settings, sequence: 777, micro_batch: 3 },
    });
    expect(choice.model).toEqual(before.model);
    expect(choice.settings).toMatchObject({
      data: 'zero2',
      gpus: 8,
      offload_optimizer: 'cpu',
      offload_parameters: 'none',
      sequence: 777,
      micro_batch: 3,
      accumulation: 8,
    });
  });

  test('a trainer’s file and a launcher’s are read together', async () => {
    const { choice } = await filled(['r15_trl_sft_packed_64k.yaml', 'r05_deepspeed_z3_offload_auto.json']);
    expect(choice.settings).toMatchObject({
      data: 'zero3',
      gpus: 8,
      offload_parameters: 'cpu',
      offload_optimizer: 'cpu',
      sequence: 65536,
      weights: 'bfloat16',
      autocast: 'none',
    });
  });

  test('every case: what the form then asks is what the file says', async () => {
    for (const name of readdirSync(cases).filter((file) => /^(r\d|b14|b17|b27|b28)/.test(file))) {
      const { choice, complaints } = await filled([name]);
      expect(complaints, name).toEqual([]);
      const method = choice.settings.data === 'best' ? 'ddp' : choice.settings.data;
      const spec = specOf(choice, {}, method);
      const { spec: said } = await readFiles([{ name, text: readFileSync(new URL(name, cases), 'utf8') }], { presets });
      const training = said.training as Record<string, unknown> | undefined;
      const asked = spec.training as Record<string, unknown>;
      for (const key of ['micro_batch', 'sequence', 'accumulation', 'checkpointing', 'attention', 'max_grad_norm', 'loss'] as const) {
        if (training?.[key] !== undefined)
          expect(asked[key] ?? (key === 'loss' ? 'standard' : null), `${name} ${key}`).toEqual(training[key]);
      }
    }
  });
});

describe('any state of the page → files of a tool → the page', () => {
  test.each(tools)(
    '%s',
    async (tool) => {
      let exported = 0;
      for (const random of randomSettings(ROUNDS, 31)) {
        const method = random.data === 'best' || random.data === 'custom' ? 'fsdp2' : random.data;
        const settings = { ...random, data: method, replicate: 1, nodes: null, rank: null };
        if (whyNot(method, settings)) continue;
        const asked: Choice = { model: { kind: 'preset', id: 'meta-llama/Llama-3.1-8B' }, settings };
        const spec = { ...specOf(asked, {}, method), model: 'meta-llama/Llama-3.1-8B' };
        const made = writeFor(tool, spec);
        if (!made.ok) continue;
        exported++;
        const { readings, spec: back } = await readFiles(made.written.files, { presets });
        const start: Choice = {
          ...arrival(),
          settings: { ...arrival().settings, gpus: settings.gpus, gpus_per_node: settings.gpus_per_node, gpu: settings.gpu },
        };
        const { choice } = apply(
          start,
          'fsdp2',
          back,
          readings.flatMap((one) => (one.ok ? [one.import.kind] : [])),
        );
        const now = specOf(choice, {}, choice.settings.data === 'best' ? method : choice.settings.data);
        const lost = new Set(made.written.lost.map(({ at }) => at));
        for (const at of made.written.said) {
          if (lost.has(at) || at.startsWith('/cluster/')) continue;
          const was = at_(spec, at);
          // specOf leaves out what is at the format's default.
          expect(at_(now, at) ?? was, `${at} of ${made.written.files.map(({ text }) => text).join('\n---\n')}`).toEqual(was);
        }
      }
      expect(exported).toBeGreaterThan(1);
    },
    60_000,
  );
});

const ROUNDS = Number(process.env.RUNS ?? 120);

function at_(spec: Json | undefined, pointer: string): Json | undefined {
  let value = spec;
  for (const key of pointer.slice(1).split('/'))
    value = typeof value === 'object' && value !== null && !Array.isArray(value) ? value[key] : undefined;
  return value;
}
