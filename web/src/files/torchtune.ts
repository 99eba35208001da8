import { asFlag, asText, Draft, Section, type Entry, type Import } from './draft';
import { presetFor, type Known } from './models';
import { ignoreRest } from './neutral';
import { dtypeNamed } from './parallel';
import { askObjective } from './trainer';
import type { Table } from './tree';

// torchtune's YAML: components by their dotted names. Source: recipes/configs/**, torchtune/models/*/_model_builders.py.

/** The families' names → what their presets' names begin with. */
const FAMILIES: Record<string, string> = {
  llama2: 'Llama-2',
  code_llama2: 'CodeLlama',
  llama3: 'Meta-Llama-3',
  llama3_1: 'Llama-3.1',
  llama3_2: 'Llama-3.2',
  llama3_3: 'Llama-3.3',
  llama3_2_vision: 'Llama-3.2',
  llama4: 'Llama-4',
  mistral: 'Mistral',
  gemma: 'gemma',
  gemma2: 'gemma-2',
  phi3: 'Phi-3',
  phi4: 'phi-4',
  qwen2: 'Qwen2',
  qwen2_5: 'Qwen2.5',
  qwen3: 'Qwen3',
};
const WHOLE: Record<string, string> = {
  mistral_7b: 'mistralai/Mistral-7B-v0.1',
  phi3_mini: 'microsoft/Phi-3-mini-4k-instruct',
  phi4_14b: 'microsoft/phi-4',
  llama3_2_vision_11b: 'meta-llama/Llama-3.2-11B-Vision',
  llama4_scout_17b_16e: 'meta-llama/Llama-4-Scout-17B-16E-Instruct',
  llama4_maverick_17b_128e: 'meta-llama/Llama-4-Maverick-17B-128E-Instruct',
};

const OWN: Record<string, string> = {
  output_dir: 'where it is saved',
  enable_kv_cache: 'generation only',
  low_cpu_ram: 'the host’s memory while loading',
  memory_efficient_fsdp_wrap: 'units of FSDP: one a decoder layer is played',
  custom_sharded_layers: 'units of FSDP beside the layers',
  quantizer: 'after training, or in QAT: not played',
  kd_ratio: 'distillation: the teacher is not played',
  kd_loss: 'distillation: the teacher is not played',
  teacher_model: 'distillation: the teacher is not played',
  tensor_parallel_plan: 'which matrices are cut: the usual ones are',
  use_distributed_state_dict: 'how it is saved',
  custom_metrics: 'logging',
  cudnn_deterministic_mode: 'which kernels',
  share_weights: 'how it is loaded',
};

export function readTorchtune(table: Table, source: string, known: Known): Import {
  const draft = new Draft('torchtune', source);
  const from = new Section(table, draft);

  const lora = readModel(draft, from.section('model') ?? from.section('policy_model'), known);
  readTokens(draft, from);
  const dtype = from.text('dtype', (text, entry) => {
    const named = dtypeNamed(text);
    if (!named) return draft.wrong(entry, 'bf16, fp16 or fp32');
    draft.understood(entry, `everything is held and computed in ${text}: no fp32 copies`, {
      '/training/weights': named,
      '/training/autocast': null,
    });
  });
  if (dtype === undefined) draft.asked('dtype', 'What the model is held in is not in the file.', '/training/weights');
  readOptimizer(draft, from);
  readLoss(draft, from);
  from.flag('enable_activation_checkpointing', (on, entry) =>
    draft.understood(entry, on ? 'each layer again in backward' : 'everything is kept for backward', {
      '/training/checkpointing': on ? 'full' : 'none',
    }),
  );
  from.text('ac_mode', (text, entry) => {
    if (text === 'full') draft.understood(entry, 'each layer again in backward', { '/training/checkpointing': 'full' });
    else if (text === 'selective') draft.understood(entry, 'some layers again in backward', { '/training/checkpointing': 'selective' });
    else draft.wrong(entry, 'full or selective');
  });
  const option = from.entry('ac_option');
  if (option) {
    const every = Number(asText(option.value));
    if (Number.isInteger(every) && every >= 1) draft.understood(option, `each ${every}th layer`, { '/training/checkpointing': { every } });
    else draft.ignored(option, 'which operations: not played');
  }
  from.flag('enable_activation_offloading', (on, entry) =>
    draft.understood(
      entry,
      on ? 'kept activations go to the host' : 'activations stay',
      on ? { '/parallel/offload/activations': 'cpu' } : {},
    ),
  );
  from.flag('compile', (on, entry) =>
    on ? draft.ignored(entry, 'torch.compile is not played: the step without it is') : draft.understood(entry, 'not compiled'),
  );
  const compile = from.entry('compile');
  if (compile) draft.ignored(compile, 'torch.compile is not played: the step without it is');

  readSpread(draft, from, lora);
  for (const key of ['ppo_epochs', 'grpo_samples', 'ppo_batch_size']) {
    const entry = from.entry(key);
    if (entry) askObjective(draft, entry, key.slice(0, key.indexOf('_')));
  }
  ignoreRest(draft, from, OWN, 'torchtune');
  return draft.done();
}

function component(section: Section | undefined, handle: (name: string, entry: Entry) => void): void {
  section?.text('_component_', handle);
}

function readModel(draft: Draft, model: Section | undefined, known: Known): boolean {
  let lora = false;
  if (!model) {
    draft.asked('model', 'The file names no model.', '/model');
    return false;
  }
  component(model, (name, entry) => {
    const last = name.split('.').at(-1) ?? '';
    const kind = /^(qlora_|lora_)?(.+)$/.exec(last);
    const prefix = kind?.[1] ?? '';
    const bare = kind?.[2] ?? last;
    lora = prefix !== '';
    if (prefix === 'qlora_') {
      draft.set('/training/base_quantization/bits', 4);
      draft.set('/training/base_quantization/type', 'nf4');
      draft.set('/training/base_quantization/double_quant', true);
      draft.set('/training/base_quantization/compute_dtype', 'bfloat16');
    }
    const id = modelId(bare, known);
    const method = { '/training/method': lora ? 'lora' : 'full' };
    if (id)
      draft.understood(
        entry,
        `${id}${lora ? `, ${prefix === 'qlora_' ? 'QLoRA (torchao’s NF4, played as bitsandbytes’)' : 'LoRA'}` : ', everything is trained'}`,
        { '/model': id, ...method },
      );
    else if (saysShape(model)) draft.understood(entry, 'a model of the shape that follows', method);
    else {
      draft.ignored(entry, 'no preset is known for this component');
      draft.set('/training/method', method['/training/method']);
      draft.asked('model', `“${last.slice(0, 60)}” is no preset here: choose the model, or paste its config.json.`, '/model');
    }
  });
  readShape(draft, model);
  const targets: string[] = [];
  model.words('lora_attn_modules', (words, entry) => {
    targets.push(...words.map((word) => (word === 'output_proj' ? 'o_proj' : word)));
    draft.understood(entry, 'modules of attention with adapters');
  });
  model.flag('apply_lora_to_mlp', (on, entry) => {
    if (on) targets.push('gate_proj', 'up_proj', 'down_proj');
    draft.understood(entry, on ? 'and those of the MLP' : 'none in the MLP');
  });
  model.flag('apply_lora_to_output', (on, entry) => {
    if (on) targets.push('lm_head');
    draft.understood(entry, on ? 'and the head' : 'none at the head');
  });
  model.integer('lora_rank', (value, entry) => draft.understood(entry, 'rank of the adapters', { '/training/adapter/rank': value }));
  model.number('lora_dropout', (value, entry) =>
    draft.understood(entry, value > 0 ? 'a mask for each adapted input' : 'none', { '/training/adapter/dropout': value }),
  );
  model.flag('use_dora', (on, entry) => draft.understood(entry, on ? 'DoRA' : 'plain LoRA', { '/training/adapter/dora': on }));
  model.flag('quantize_base', (on, entry) => {
    draft.understood(
      entry,
      on ? 'the frozen base in NF4' : 'not quantised',
      on
        ? {
            '/training/base_quantization/bits': 4,
            '/training/base_quantization/type': 'nf4',
            '/training/base_quantization/double_quant': true,
            '/training/base_quantization/compute_dtype': 'bfloat16',
          }
        : {},
    );
  });
  if (lora) {
    if (targets.length > 0) draft.set('/training/adapter/targets', targets);
    draft.assumed('adapters', 'in the dtype of the model: torchtune raises nothing to fp32', { '/training/adapter/upcast': false });
  }
  ignoreRest(
    draft,
    model,
    {
      max_seq_len: 'how far positions go',
      decoder_trainable: 'which parts are trained',
      encoder_trainable: 'which parts are trained',
      fusion_trainable: 'which parts are trained',
      image_size: 'what the rows say',
      attn_dropout: 'masks of dropout: not played',
    },
    'torchtune',
  );
  return lora;
}

const saysShape = (model: Section) => ['vocab_size', 'num_layers', 'num_heads', 'embed_dim'].every((key) => model.has(key));

/** torchtune.models.llama2.llama2 and the like say the shape themselves. */
function readShape(draft: Draft, model: Section): void {
  if (!saysShape(model)) return;
  const said = (key: string, text: string) => model.integer(key, (_, entry) => draft.understood(entry, text));
  const hidden = said('embed_dim', 'width of the residual stream') ?? 0;
  const heads = said('num_heads', 'query heads') ?? 1;
  // torchtune/modules/common_utils: scale_hidden_dim_for_mlp, a multiple of 256
  const width = said('intermediate_dim', 'width of the MLP') ?? Math.ceil(Math.floor((8 * hidden) / 3) / 256) * 256;
  const config = {
    model_type: 'llama',
    vocab_size: said('vocab_size', 'words') ?? 0,
    num_hidden_layers: said('num_layers', 'decoder layers') ?? 0,
    hidden_size: hidden,
    num_attention_heads: heads,
    num_key_value_heads: said('num_kv_heads', 'key and value heads') ?? heads,
    intermediate_size: width,
    max_position_embeddings: Number(model.peek('max_seq_len') ?? 4096) || 4096,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    torch_dtype: 'bfloat16',
  };
  draft.assumed('model', `put together from the file: of type llama, ${config.num_hidden_layers} layers, ${hidden} wide`, {
    '/model': { name: 'torchtune model', config },
  });
}

function modelId(name: string, { presets }: Known): string | undefined {
  const bare = name.replace(/_(instruct|base|reward|classifier)$/, '');
  const whole = Object.hasOwn(WHOLE, bare) ? WHOLE[bare] : undefined;
  if (whole && presets.includes(whole)) return whole;
  const key = Object.keys(FAMILIES)
    .sort((a, b) => b.length - a.length)
    .find((one) => bare.startsWith(`${one}_`));
  const size = key && /^(\d+(?:_\d+)?)b$/.exec(bare.slice(key.length + 1))?.[1]?.replace('_', '.');
  if (!key || !size) return undefined;
  return presetFor(`${FAMILIES[key]}-${size}B`, presets)?.id;
}

function readTokens(draft: Draft, from: Section): void {
  let length: number | undefined;
  const tokenizer = from.section('tokenizer');
  component(tokenizer, (_, entry) => draft.ignored(entry, 'which tokenizer, not how long a row is'));
  tokenizer?.integer('max_seq_len', (value, entry) => {
    length = value;
    draft.understood(entry, 'tokens in a row at most: every row is taken to be that long', { '/training/sequence': value });
  });
  if (tokenizer)
    ignoreRest(
      draft,
      tokenizer,
      { path: 'which tokenizer', prompt_template: 'what the rows say', merges_file: 'which tokenizer' },
      'torchtune',
    );
  if (length === undefined)
    draft.asked(
      'sequence',
      'tokenizer.max_seq_len is null: rows are as long as the data. How many tokens does the longest have?',
      '/training/sequence',
    );
  const dataset = from.section('dataset');
  component(dataset, (name, entry) => {
    draft.ignored(entry, 'which rows');
    if (/preference|chosen_rejected|hh_rlhf|stack_exchange/.test(name)) askDpo(draft);
  });
  dataset?.flag('packed', (on, entry) => draft.understood(entry, on ? 'rows are filled with several examples' : 'one example a row'));
  if (dataset) ignoreRest(draft, dataset, {}, 'torchtune');
  const batch = from.integer('batch_size', (value, entry) =>
    draft.understood(entry, 'rows that one GPU works on at once', { '/training/micro_batch': value }),
  );
  if (!batch) draft.asked('micro_batch', 'batch_size is not in the file.', '/training/micro_batch');
  from.integer('gradient_accumulation_steps', (value, entry) =>
    draft.understood(entry, 'micro-batches before each step', { '/training/accumulation': value }),
  );
}

function askDpo(draft: Draft): void {
  if (draft.get('/training/objective') === 'dpo') return;
  draft.set('/training/objective', 'dpo');
}

function readOptimizer(draft: Draft, from: Section): void {
  const rows: Record<string, string> = {
    AdamW: 'adamw',
    Adam: 'adam',
    SGD: 'sgd',
    Adafactor: 'adafactor',
    RMSprop: 'rmsprop',
    Adagrad: 'adagrad',
    NAdam: 'nadam',
    Adamax: 'adamax',
    RAdam: 'radam',
    Muon: 'muon',
  };
  const bitsandbytes: Record<string, string> = {
    PagedAdamW8bit: 'paged_adamw_8bit',
    PagedAdamW: 'paged_adamw',
    PagedAdamW32bit: 'paged_adamw',
    AdamW8bit: 'adamw_8bit',
    AdamW: 'adamw_bnb',
    AdamW32bit: 'adamw_bnb',
    Lion8bit: 'lion_8bit',
    Lion: 'lion_bnb',
    PagedLion8bit: 'paged_lion_8bit',
    PagedLion: 'paged_lion',
    SGD8bit: 'sgd_8bit',
    RMSprop8bit: 'rmsprop_8bit',
    AdEMAMix: 'ademamix',
    AdEMAMix8bit: 'ademamix_8bit',
  };
  const torchao: Record<string, string> = {
    AdamW8bit: 'adamw_8bit_torchao',
    AdamW4bit: 'adamw_4bit_torchao',
    AdamWFp8: 'adamw_fp8_torchao',
    _AdamW: 'adamw_torchao',
  };
  const optimizer = from.section('optimizer');
  component(optimizer, (name, entry) => {
    const last = name.split('.').at(-1) ?? '';
    const known = name.startsWith('bitsandbytes') ? bitsandbytes : name.startsWith('torchao') ? torchao : rows;
    const found = Object.hasOwn(known, last) ? known[last] : undefined;
    if (found) draft.understood(entry, `the optimizer: ${found}`, { '/training/optimizer/name': found });
    else draft.ignored(entry, 'no optimizer of this name is known here; the one chosen before stays');
  });
  if (optimizer) {
    optimizer.flag('fused', (on, entry) =>
      draft.understood(
        entry,
        on ? 'one kernel, no temporaries' : 'torch’s default',
        on ? { '/training/optimizer/implementation': 'fused' } : {},
      ),
    );
    optimizer.flag('foreach', (on, entry) =>
      draft.understood(entry, on ? 'many parameters at once' : 'one parameter after the other', {
        '/training/optimizer/implementation': on ? 'foreach' : 'loop',
      }),
    );
    ignoreRest(draft, optimizer, { weight_decay: 'no state of its own', momentum: 'a state that sgd has' }, 'torchtune');
  }
  from.flag('optimizer_in_bwd', (on, entry) => {
    if (!on) return draft.understood(entry, 'the step comes after backward');
    draft.understood(entry, 'each parameter is stepped as its gradient is made, so that no gradients are stored', {
      '/training/optimizer/in_backward': true,
    });
  });
  from.number('clip_grad_norm', (norm, entry) =>
    draft.understood(entry, norm > 0 ? 'clipped to this norm' : 'not clipped', { '/training/max_grad_norm': norm > 0 ? norm : null }),
  );
  if (!draft.has('/training/max_grad_norm'))
    draft.assumed('clip_grad_norm', 'not clipped: torchtune’s default', { '/training/max_grad_norm': null });
}

function readLoss(draft: Draft, from: Section): void {
  const loss = from.section('loss');
  component(loss, (name, entry) => {
    const last = name.split('.').at(-1) ?? '';
    if (['LinearCrossEntropyLoss', 'CEWithChunkedOutputLoss', 'LinearCrossEntropy'].includes(last))
      draft.understood(entry, 'the loss over pieces of the logits', { '/training/loss': 'chunked' });
    else if (last === 'CrossEntropyLoss') draft.understood(entry, 'torch’s loss', { '/training/loss': 'standard' });
    else if (/DPO|RSO|SimPO/.test(last)) {
      askDpo(draft);
      draft.understood(entry, 'DPO: each pair is two rows', { '/training/objective': 'dpo' });
    } else if (/PPO|GRPO/.test(last)) askObjective(draft, entry, last.replace('Loss', ''));
    else draft.ignored(entry, 'not played: torch’s loss is');
  });
  const chunks = loss?.integer('num_output_chunks', (value, entry) => draft.understood(entry, `${value} pieces`));
  if (draft.get('/training/loss') === 'chunked') {
    const batch = draft.get('/training/micro_batch');
    const sequence = draft.get('/training/sequence');
    const pieces = chunks ?? 8;
    if (typeof batch === 'number' && typeof sequence === 'number')
      draft.assumed('loss', `${pieces} pieces${chunks ? '' : ', torchtune’s default'}`, {
        '/training/loss_chunk': Math.ceil((batch * sequence) / pieces),
      });
    else
      draft.assumed(
        'loss',
        `${pieces} pieces${chunks ? '' : ', torchtune’s default'}: how many tokens each has depends on the length of a row; 1,024 are played`,
      );
  }
  if (loss)
    ignoreRest(
      draft,
      loss,
      { beta: 'a number of the loss', label_smoothing: 'a number of the loss', ignore_index: 'which tokens count' },
      'torchtune',
    );
  if (draft.get('/training/objective') === 'dpo' && typeof draft.get('/training/micro_batch') === 'number') {
    const batch = Number(draft.get('/training/micro_batch'));
    draft.assumed('DPO', `${batch} pairs are ${2 * batch} rows, chosen and rejected`, { '/training/micro_batch': 2 * batch });
  }
}

function readSpread(draft: Draft, from: Section, lora: boolean): void {
  const tensor =
    from.integer('tensor_parallel_dim', (value, entry) =>
      draft.understood(entry, 'tensor-parallel ranks', value > 1 ? { '/parallel/tensor/degree': value } : {}),
    ) ?? 1;
  const context =
    from.integer('context_parallel_dim', (value, entry) =>
      draft.understood(entry, 'ranks that share a row', value > 1 ? { '/parallel/context/degree': value } : {}),
    ) ?? 1;
  const replicate =
    from.integer('data_parallel_replicate_dim', (value, entry) =>
      draft.understood(entry, 'copies of the sharded model', value > 1 ? { '/parallel/data/replicate': value } : {}),
    ) ?? 1;
  const shard = from.entry('data_parallel_shard_dim');
  let distributed = tensor * context * replicate > 1;
  if (shard) {
    const ranks = Number(asText(shard.value));
    distributed = true;
    if (ranks === -1) draft.understood(shard, 'all ranks that are left');
    else if (Number.isInteger(ranks) && ranks >= 1)
      draft.understood(shard, 'ranks that a copy is cut among', { '/parallel/data/degree': ranks * replicate });
    else draft.wrong(shard, 'a whole number from 1, or -1');
  }
  from.flag('fsdp_cpu_offload', (on, entry) => {
    distributed = true;
    draft.understood(
      entry,
      on ? 'parameters, gradients and optimizer states live in the host’s memory' : 'everything stays on the GPU',
      on ? { '/parallel/offload/parameters': 'cpu', '/parallel/offload/optimizer': 'cpu' } : {},
    );
  });
  from.flag('fsdp_reshard_after_forward', (on, entry) => {
    distributed = true;
    draft.understood(entry, on ? 'gathered weights are freed after forward' : 'gathered weights stay until backward', {
      '/parallel/data/reshard_after_forward': on,
    });
  });
  const save = from.entry('fsdp');
  if (save) {
    distributed = true;
    draft.ignored(save, asFlag(save.value) === undefined ? 'units of FSDP: one a decoder layer is played' : 'FSDP');
  }
  if (distributed) {
    const weights = draft.get('/training/weights');
    draft.assumed('data parallelism', 'FSDP2: torchtune’s distributed recipes', {
      '/parallel/data/kind': 'fsdp2',
      ...(weights === 'bfloat16' || weights === 'float16'
        ? { '/parallel/data/param_dtype': weights, '/parallel/data/reduce_dtype': weights }
        : { '/parallel/data/param_dtype': null }),
    });
  } else if (from.has('optimizer_in_bwd') || lora || from.has('optimizer')) {
    draft.askGpus(
      'torchtune’s file says neither the number of GPUs nor the recipe: “tune run” does. A single-device recipe is one GPU, a distributed one FSDP2 on several.',
    );
    return;
  }
  if (!draft.has('/parallel/data/degree')) draft.askGpus('torchtune’s file does not say it: “tune run --nproc_per_node” does.');
}
