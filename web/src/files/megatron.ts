import type { JsonObject } from '../choice/choice';
import { Draft, Section, type Entry, type Import } from './draft';
import { presetFor, type Known } from './models';
import { ignoreRest } from './neutral';
import type { Launch } from './shell';
import { scalar } from './tree';

// Megatron-LM's arguments, as a launch script passes them. Source: megatron/training/arguments.py, training/config/*.py,
// core/transformer/transformer_config.py, core/optimizer/optimizer_config.py.

const OWN: Record<string, string> = {
  use_mcore_models: 'the model code of today',
  use_legacy_models: 'the old model code: read as today’s',
  transformer_impl: 'which kernels: what they keep is not told apart here',
  attention_dropout: 'masks of dropout: not played in this family',
  hidden_dropout: 'masks of dropout: not played in this family',
  cross_entropy_loss_fusion: 'the loss over the logits in place: not told apart here',
  cross_entropy_fusion_impl: 'the loss over the logits in place: not told apart here',
  overlap_grad_reduce: 'when it waits, not what it holds',
  overlap_param_gather: 'gathers ahead, into the same buffer',
  overlap_param_gather_with_optimizer_step: 'gathers ahead, into the same buffer',
  overlap_p2p_communication: 'when it waits',
  no_overlap_p2p_communication: 'when it waits',
  tp_comm_overlap: 'user buffers of Transformer Engine lie outside the allocator',
  no_position_embedding: 'positions are rotary',
  step_batch_size_schedule: 'fewer micro-batches at first',
  no_gradient_accumulation_fusion: 'whether weight gradients are summed in their kernel',
  gradient_accumulation_fusion: 'weight gradients are summed in their kernel',
  no_masked_softmax_fusion: 'which kernel',
  no_bias_gelu_fusion: 'which kernel',
  no_bias_swiglu_fusion: 'which kernel',
  no_bias_dropout_fusion: 'which kernel',
  no_rope_fusion: 'which kernel',
  apply_layernorm_1p: 'the same norm, its weight less one',
  apply_query_key_layer_scaling: 'a number',
  attention_softmax_in_fp32: 'eager attention only',
  accumulate_allreduce_grads_in_fp32: 'gradients are summed in fp32, as with bf16 by itself',
  distributed_timeout_minutes: 'how long it waits',
  fp8_margin: 'a number of fp8',
  fp8_interval: 'a number of fp8',
  fp8_amax_history_len: 'small buffers of fp8',
  fp8_amax_compute_algo: 'a number of fp8',
  fp8_recipe: 'fp8 is not played yet: bf16 is',
  rope_scaling_factor: 'angles, not sizes',
  use_rope_scaling: 'angles, not sizes',
  rotary_base: 'angles, not sizes',
  rotary_percent: 'angles, not sizes',
  rotary_interleaved: 'angles, not sizes',
  rotary_seq_len_interpolation_factor: 'angles, not sizes',
  moe_router_load_balancing_type: 'where tokens go: taken to be even',
  moe_aux_loss_coeff: 'a number of the loss',
  moe_grouped_gemm: 'one kernel for all experts, as is played',
  moe_token_dispatcher_type: 'how tokens travel',
  moe_router_dtype: 'small',
  moe_permute_fusion: 'which kernel',
  moe_per_layer_logging: 'logging',
  deterministic_mode: 'which kernels',
  calculate_per_token_loss: 'a number of the loss',
  rampup_batch_size: 'fewer micro-batches at first',
  empty_unused_memory_level: 'when the cache is given back',
  use_tp_pp_dp_mapping: 'which rank is which',
  rope_type: 'angles, not sizes',
  masked_softmax_fusion: 'which kernel',
  ckpt_format: 'how it is saved',
  eval_interval: 'evaluation, between steps',
  eval_iters: 'evaluation, between steps',
  norm_epsilon: 'a number',
  layernorm_epsilon: 'a number',
  expert_tensor_parallel_size: 'not played apart from tensor parallelism',
  attention_output_gate: 'not played',
  local_rank: 'which rank',
};

export function readMegatron({ launcher, options, faults }: Launch, source: string, known: Known): Import {
  const draft = new Draft('megatron', source);
  draft.faults.push(...faults);
  const from = new Section(options, draft, '--');
  draft.assumed(
    'software',
    'the same model in Transformers’ code is played, with the same parallel split. For Megatron-LM’s own code, choose the stack “megatron” among all settings',
    {},
  );

  const shape = readShape(draft, from, known);
  const sequence = from.integer('seq_length', (value, entry) =>
    draft.understood(entry, 'tokens in a row', { '/training/sequence': value }),
  );
  if (!sequence) draft.asked('sequence', '--seq-length is not in the file.', '/training/sequence');
  const micro =
    from.integer('micro_batch_size', (value, entry) =>
      draft.understood(entry, 'rows of one micro-batch', { '/training/micro_batch': value }),
    ) ?? 1;
  if (!draft.has('/training/micro_batch')) draft.asked('micro_batch', '--micro-batch-size is not in the file.', '/training/micro_batch');
  draft.set('/training/method', 'full');

  const bytes = readPrecision(draft, from);
  readDegrees(draft, from, launcher, micro, shape.layers, bytes);
  readStep(draft, from);
  ignoreRest(draft, from, OWN, 'Megatron-LM');
  return draft.done();
}

interface Shape {
  layers: number | undefined;
}

/** The model: Megatron names no checkpoint, it says the shape. */
function readShape(draft: Draft, from: Section, known: Known): Shape {
  const said = (key: string, text: string, least = 1) => from.integer(key, (_, entry) => draft.understood(entry, text), least);
  const on = (key: string, yes: string, no = 'no') => from.flag(key, (value, entry) => draft.understood(entry, value ? yes : no)) ?? false;
  const layers =
    said('num_layers', 'decoder layers') ?? said('decoder_num_layers', 'decoder layers') ?? said('encoder_num_layers', 'decoder layers');
  const hidden = said('hidden_size', 'width of the residual stream');
  const heads = said('num_attention_heads', 'query heads');
  const feed = said('ffn_hidden_size', 'width of the MLP');
  const grouped = on('group_query_attention', 'queries share keys and values in groups');
  const groups = said('num_query_groups', 'key and value heads');
  const channels = said('kv_channels', 'width of a head');
  const vocabulary = said('vocab_size', 'words of the tokenizer');
  const padded = said('padded_vocab_size', 'rows of the embedding');
  const divisible = said('make_vocab_size_divisible_by', 'the vocabulary is padded to a multiple of this × tensor ranks') ?? 128;
  const positions = said('max_position_embeddings', 'longest row');
  const swiglu = on('swiglu', 'a gated MLP: three matrices');
  on('squared_relu', 'squared ReLU');
  const untied = on('untie_embeddings_and_output_weights', 'the head has a matrix of its own');
  const noBias = on('disable_bias_linear', 'no biases in linears');
  const qkvBias = on('add_qkv_bias', 'biases of queries, keys and values');
  const qkNorm = on('qk_layernorm', 'norms of queries and keys');
  const rotaryFlag = on('use_rotary_position_embeddings', 'rotary positions');
  const position = from.text('position_embedding_type', (_, entry) => draft.understood(entry, 'positions'));
  const norm = from.text('normalization', (_, entry) => draft.understood(entry, 'norms'));
  const experts = said('num_experts', 'experts of a layer');
  const topk = said('moe_router_topk', 'experts that a token visits');
  const expertFeed = said('moe_ffn_hidden_size', 'width of an expert');
  const shared = said('moe_shared_expert_intermediate_size', 'width of the shared experts');
  from.text('moe_layer_freq', (_, entry) => draft.ignored(entry, 'every layer is taken to have experts'));
  if (on('multi_latent_attention', 'latent attention')) {
    draft.asked(
      'model',
      'Multi-latent attention: the model is not put together from arguments. Choose it, or paste its config.json.',
      '/model',
    );
    return { layers };
  }
  if (!layers || !hidden || !heads) {
    draft.asked(
      'model',
      'The file does not say the model’s shape (--num-layers, --hidden-size, --num-attention-heads). Choose it, or paste its config.json.',
      '/model',
    );
    return { layers };
  }
  const tensor = Number(from.peek('tensor_model_parallel_size') ?? 1) || 1;
  const unit = divisible * tensor;
  const tokenizer = from.peek('tokenizer_type');
  // The size that a tokenizer of one make has.
  const merges = tokenizer === undefined && from.has('merge_file'); // byte pairs: GPT-2's, which is what the examples have
  const ofType = tokenizer === 'GPT2BPETokenizer' || merges ? 50257 : tokenizer === 'Llama2Tokenizer' ? 32000 : undefined;
  const size = vocabulary ?? ofType;
  const words = padded ?? (size ? Math.ceil(size / unit) * unit : undefined);
  const named = from.peek('tokenizer_model');
  const like = !words && typeof named === 'string' ? presetFor(named, known.presets) : undefined;
  if (like) {
    draft.assumed('model', `${like.id}, whose tokenizer it is: the file does not say the number of words. Compare the shape above.`, {
      '/model': like.id,
    });
    return { layers };
  }
  if (!words) {
    draft.asked(
      'vocabulary',
      'The tokenizer’s number of words is not in the file (--vocab-size): paste the model’s config.json, or choose a model like it.',
      '/model',
    );
    return { layers };
  }
  if (size && !padded) {
    draft.assumed(
      'vocabulary',
      words === size
        ? `${size.toLocaleString('en')} words${vocabulary ? '' : ` of ${merges ? 'GPT-2’s byte pairs (--merge-file)' : String(tokenizer)}`} need no padding (a multiple of ${divisible} × ${tensor})`
        : `padded from ${size.toLocaleString('en')} to ${words.toLocaleString('en')} (a multiple of ${divisible} × ${tensor})`,
    );
  }
  // arguments.py: 4 × hidden; with SwiGLU two thirds of it, in steps of 64.
  const width = feed ?? (swiglu ? Math.floor((4 * hidden * 2) / 3 / 64) * 64 : 4 * hidden);
  if (!feed) draft.assumed('ffn_hidden_size', `not said: ${width.toLocaleString('en')}, Megatron’s default`);
  const common: JsonObject = {
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    intermediate_size: width,
    vocab_size: words,
    max_position_embeddings: positions ?? 4096,
    tie_word_embeddings: !untied,
    torch_dtype: 'bfloat16',
  };
  const kv = groups ?? (grouped ? 1 : heads);
  const rotary = rotaryFlag || position === 'rope';
  const name = `megatron-${layers}x${hidden}`;
  if (swiglu || noBias || norm === 'RMSNorm' || experts) {
    const type = experts ? 'mixtral' : qkNorm ? 'qwen3' : qkvBias ? 'qwen2' : 'llama';
    if (norm !== 'RMSNorm')
      draft.assumed(
        'norms',
        `${norm ?? 'LayerNorm, Megatron’s default'}: played as RMSNorm, which has no bias (${(2 * layers * hidden + hidden).toLocaleString('en')} parameters fewer)`,
      );
    if (!rotary) {
      const table = (positions ?? 0) * hidden;
      draft.assumed(
        'positions',
        position === 'none'
          ? 'none: played as rotary, which has no parameters either'
          : `not said to be rotary: Megatron’s default is a learned table${table ? ` (${table.toLocaleString('en')} parameters)` : ''}; a model of this shape has rotary positions, so that is played`,
      );
    }
    if (shared) draft.assumed('shared experts', 'not in the model that is played');
    const config: JsonObject = {
      ...common,
      model_type: type,
      num_key_value_heads: kv,
      head_dim: channels ?? Math.floor(hidden / heads),
      hidden_act: 'silu',
      rms_norm_eps: 1e-5,
      ...(experts ? { num_local_experts: experts, num_experts_per_tok: topk ?? 2, intermediate_size: expertFeed ?? width } : {}),
      ...(type === 'llama' ? { attention_bias: !noBias, mlp_bias: !noBias } : {}),
    };
    draft.assumed(
      'model',
      `put together from the arguments: a model of type ${type}, ${layers} layers, ${hidden} wide, ${kv} of ${heads} heads for keys and values`,
      { '/model': { name, config } },
    );
    return { layers };
  }
  const config: JsonObject = rotary
    ? {
        ...common,
        model_type: 'gpt_neox',
        hidden_act: 'gelu',
        rotary_pct: Number(from.peek('rotary_percent') ?? 1) || 1,
        use_parallel_residual: false,
        layer_norm_eps: 1e-5,
      }
    : {
        model_type: 'gpt2',
        n_embd: hidden,
        n_layer: layers,
        n_head: heads,
        n_inner: width,
        n_positions: positions ?? 1024,
        vocab_size: words,
        tie_word_embeddings: !untied,
        activation_function: 'gelu_new',
        torch_dtype: 'bfloat16',
      };
  draft.assumed(
    'model',
    `put together from the arguments: a model of type ${String(config.model_type)}, ${layers} layers, ${hidden} wide`,
    { '/model': { name, config } },
  );
  return { layers };
}

/** Bytes a parameter of weights and of gradients, as Megatron itself holds them. */
function readPrecision(draft: Draft, from: Section): { weights: number; gradients: number } {
  let dtype: 'bfloat16' | 'float16' | undefined;
  from.flag('bf16', (on, entry) => {
    if (on) dtype = 'bfloat16';
    draft.understood(
      entry,
      on ? 'weights in bf16, master weights and optimizer states in fp32' : 'no bf16',
      on ? { '/training/weights': 'bfloat16', '/training/autocast': null } : {},
    );
  });
  from.flag('fp16', (on, entry) => {
    if (on) dtype = 'float16';
    draft.understood(
      entry,
      on ? 'weights in fp16, master weights and optimizer states in fp32' : 'no fp16',
      on ? { '/training/weights': 'float16', '/training/autocast': null } : {},
    );
  });
  if (!dtype) draft.assumed('precision', 'neither --bf16 nor --fp16: fp32', { '/training/weights': 'float32', '/training/autocast': null });
  const reduced = from.flag('grad_reduce_in_bf16', (on, entry) =>
    draft.understood(entry, on ? 'gradients are held and reduced in bf16: 2 bytes a parameter in place of 4' : 'gradients in fp32'),
  );
  for (const key of ['fp8_format', 'fp8'])
    from.text(key, (_, entry) => draft.ignored(entry, 'fp8 matrix products are not played yet: bf16 ones are, with bf16 inputs kept'));
  let fp8 = false;
  for (const key of ['fp8_param_gather', 'fp8_param'])
    from.flag(key, (on, entry) =>
      (fp8 ||= on)
        ? draft.ignored(entry, 'weights held in fp8 (1 byte a parameter) are not played yet: bf16 ones are')
        : draft.understood(entry, 'no'),
    );
  for (const key of ['fp4_format', 'fp4_param_gather']) {
    const entry = from.entry(key);
    if (entry) draft.ignored(entry, 'fp4 is not played yet: bf16 is');
  }
  return { weights: fp8 ? 1 : dtype ? 2 : 4, gradients: reduced ? 2 : 4 };
}

function readDegrees(
  draft: Draft,
  from: Section,
  launcher: Launch['launcher'],
  micro: number,
  layers: number | undefined,
  bytes: { weights: number; gradients: number },
): void {
  const degree = (key: string, at: string, text: string) =>
    from.integer(key, (value, entry) => draft.understood(entry, text, value > 1 ? { [at]: value } : {})) ?? 1;
  const tensor = degree('tensor_model_parallel_size', '/parallel/tensor/degree', 'tensor-parallel ranks');
  const pipeline = degree('pipeline_model_parallel_size', '/parallel/pipeline/degree', 'pipeline stages');
  const context = degree('context_parallel_size', '/parallel/context/degree', 'ranks that share a row');
  degree('expert_model_parallel_size', '/parallel/expert/degree', 'ranks that share the experts');
  from.flag('sequence_parallel', (on, entry) => {
    if (on && tensor === 1) draft.ignored(entry, 'with one tensor-parallel rank there is nothing to cut: Megatron switches it off');
    else
      draft.understood(
        entry,
        on ? 'norms and residuals on a part of the sequence each' : 'no',
        on ? { '/parallel/tensor/sequence': true } : {},
      );
  });
  if (tensor > 1)
    draft.assumed('loss', 'logits stay cut among the tensor-parallel ranks: Megatron’s vocabulary-parallel loss', {
      '/parallel/tensor/loss': true,
    });

  const world = readWorld(draft, launcher);
  const distributed =
    from.flag('use_distributed_optimizer', (on, entry) =>
      draft.understood(
        entry,
        on
          ? 'master weights and optimizer states cut among data ranks: 12 bytes a parameter over their number'
          : 'a full copy on every rank',
      ),
    ) ?? false;
  const fsdp = readFsdp(draft, from);
  const ranks = world ? world / (tensor * pipeline * context) : undefined;
  if (world && ranks && Number.isInteger(ranks)) {
    const kind = ranks === 1 && context === 1 ? 'none' : (fsdp ?? (distributed ? 'zero1' : 'ddp'));
    const nearest = kind === 'zero1' ? '; the distributed optimizer is ZeRO-1, which is played as DeepSpeed does it' : '';
    if (distributed) {
      const { weights, gradients } = bytes;
      draft.assumed(
        'bytes a parameter',
        `in Megatron itself: ${weights} (weights) + ${gradients} (gradients) + 12 ÷ ${ranks * context} (fp32 master weights and Adam’s two moments, cut) = ${(weights + gradients + 12 / (ranks * context)).toFixed(2)}`,
      );
    }
    draft.assumed(
      'data parallelism',
      `${world} GPUs ÷ (${tensor} tensor × ${pipeline} pipeline × ${context} context) = ${ranks} data ranks${nearest}`,
      {
        '/parallel/data/kind': kind,
        '/parallel/data/degree': ranks,
      },
    );
  } else if (world) {
    draft.faults.push({
      line: 0,
      key: 'world size',
      value: String(world),
      message: `must be a multiple of ${tensor} tensor × ${pipeline} pipeline × ${context} context ranks`,
    });
    draft.set('/parallel/data/kind', fsdp ?? (distributed ? 'zero1' : 'ddp'));
    draft.askGpus(`The script runs on ${world} GPUs, which its degrees do not divide.`);
  } else {
    draft.set('/parallel/data/kind', fsdp ?? (distributed ? 'zero1' : 'ddp'));
    draft.askGpus('The script does not say on how many GPUs it runs.');
  }

  const global = from.integer('global_batch_size', (_, entry) => draft.understood(entry, 'rows of all ranks in a step'));
  const data = ranks && Number.isInteger(ranks) ? ranks : undefined;
  const count = global && data ? global / (micro * data) : undefined;
  if (global && data && count && Number.isInteger(count)) {
    const at = pipeline > 1 ? '/parallel/pipeline/microbatches' : '/training/accumulation';
    draft.assumed(
      'micro-batches',
      `${global} rows ÷ (${micro} × ${data} ranks) = ${count} ${pipeline > 1 ? 'through the pipeline' : 'accumulated'} each step`,
      { [at]: count },
    );
  } else if (global && data) {
    draft.faults.push({
      line: 0,
      key: '--global_batch_size',
      value: String(global),
      message: `must be a multiple of ${micro} rows × ${data} data ranks`,
    });
  }
  const perStage = from.integer('num_layers_per_virtual_pipeline_stage', (_, entry) =>
    draft.understood(entry, 'layers of each piece that a rank has several of'),
  );
  const virtual =
    from.integer('num_virtual_stages_per_pipeline_rank', (_, entry) => draft.understood(entry, 'pieces that a rank has')) ??
    (perStage && layers ? layers / pipeline / perStage : 1);
  if (pipeline > 1) {
    const interleaved = Number.isInteger(virtual) && virtual > 1;
    draft.assumed('schedule', interleaved ? `interleaved, ${virtual} pieces a rank` : '1F1B', {
      '/parallel/pipeline/schedule': interleaved ? 'interleaved_1f1b' : '1f1b',
      ...(interleaved ? { '/parallel/pipeline/virtual': virtual } : {}),
    });
  }
}

function readWorld(draft: Draft, launcher: Launch['launcher']): number | undefined {
  const found = (keys: readonly string[], text: string): number | undefined => {
    for (const key of keys) {
      const word = launcher.get(key);
      if (!word) continue;
      const entry: Entry = { key: `--${key}`, value: scalar(word.text, word.line) };
      const value = Number(word.text);
      if (Number.isInteger(value) && value >= 1) {
        draft.understood(entry, text);
        return value;
      }
      draft.ignored(entry, 'not a number that is known here');
      return undefined;
    }
    return undefined;
  };
  const perNode = found(['nproc_per_node', 'gpus_per_node', 'num_gpus', 'num_processes', 'ntasks_per_node'], 'GPUs in one machine');
  const nodes = found(['nnodes', 'num_nodes', 'num_machines', 'N', 'nodes'], 'machines');
  if (perNode) {
    draft.set('/cluster/gpus_per_node', perNode);
    draft.set('/cluster/nodes', nodes ?? 1);
  }
  return perNode ? perNode * (nodes ?? 1) : undefined;
}

function readFsdp(draft: Draft, from: Section): string | undefined {
  let kind: string | undefined;
  for (const key of ['use_torch_fsdp2', 'use_megatron_fsdp', 'use_custom_fsdp']) {
    from.flag(key, (on, entry) => {
      if (on) kind = 'fsdp2';
      draft.understood(entry, on ? 'parameters cut among data ranks' : 'no');
    });
  }
  from.text('data_parallel_sharding_strategy', (text, entry) => {
    const kinds: Record<string, string> = { no_shard: 'ddp', optim: 'zero1', optim_grads: 'zero2', optim_grads_params: 'fsdp2' };
    if (!Object.hasOwn(kinds, text)) return draft.wrong(entry, Object.keys(kinds).join(', '));
    if (kind) kind = kinds[text];
    draft.understood(entry, 'what is cut among data ranks');
  });
  return kind;
}

function readStep(draft: Draft, from: Section): void {
  from.text('attention_backend', (text, entry) => {
    if (text === 'flash' || text === 'fused' || text === 'auto')
      draft.understood(entry, 'no score matrix', { '/training/attention': text === 'flash' ? 'flash_attention_2' : 'sdpa' });
    else if (text === 'unfused' || text === 'local') draft.understood(entry, 'the whole score matrix', { '/training/attention': 'eager' });
    else draft.wrong(entry, 'auto, flash, fused, unfused or local');
  });
  from.flag('use_flash_attn', (on, entry) =>
    draft.understood(entry, on ? 'flash attention' : 'no', on ? { '/training/attention': 'flash_attention_2' } : {}),
  );

  const method = from.text('recompute_method', (_, entry) => draft.understood(entry, 'which layers are run again'));
  const layers = from.integer('recompute_num_layers', (_, entry) => draft.understood(entry, 'layers that share one kept input'));
  from.text('recompute_granularity', (text, entry) => {
    if (text === 'selective') draft.understood(entry, 'the attention core again in backward', { '/training/checkpointing': 'selective' });
    else if (text === 'full')
      draft.understood(entry, 'layers again in backward', {
        '/training/checkpointing': method === 'uniform' && (layers ?? 1) > 1 ? { every: layers ?? 1 } : 'full',
      });
    else draft.wrong(entry, 'full or selective');
  });
  from.words('recompute_modules', (_, entry) => draft.ignored(entry, 'which modules: the attention core is played'));
  from.flag('recompute_activations', (on, entry) =>
    draft.understood(entry, on ? 'the attention core again in backward' : 'no', on ? { '/training/checkpointing': 'selective' } : {}),
  );
  for (const key of ['checkpoint_activations', 'distribute_saved_activations'])
    from.flag(key, (_, entry) => draft.ignored(entry, 'an old or rare form of recomputation: not played'));
  if (!draft.has('/training/checkpointing'))
    draft.assumed('recompute_granularity', 'not said: everything is kept for backward', { '/training/checkpointing': 'none' });
  from.flag('cpu_offloading', (on, entry) =>
    draft.understood(entry, on ? 'kept activations go to the host' : 'no', on ? { '/parallel/offload/activations': 'cpu' } : {}),
  );
  from.flag('optimizer_cpu_offload', (on, entry) =>
    draft.understood(entry, on ? 'optimizer states live in the host’s memory' : 'no', on ? { '/parallel/offload/optimizer': 'cpu' } : {}),
  );
  for (const key of [
    'use_precision_aware_optimizer',
    'main_grads_dtype',
    'main_params_dtype',
    'exp_avg_dtype',
    'exp_avg_sq_dtype',
    'optimizer_offload_fraction',
  ]) {
    const entry = from.entry(key);
    if (entry) draft.ignored(entry, 'optimizer states of another dtype, or a part of them: not played, fp32 is');
  }

  const names: Record<string, string> = { adam: 'adamw', adamw: 'adamw', sgd: 'sgd', muon: 'muon', dist_muon: 'muon', lion: 'lion' };
  const optimizer = from.text('optimizer', (text, entry) => {
    const name = Object.hasOwn(names, text) ? names[text] : undefined;
    if (name)
      draft.understood(entry, `the optimizer: ${name}`, {
        '/training/optimizer/name': name,
        ...(name === 'adamw' ? { '/training/optimizer/implementation': 'fused' } : {}),
      });
    else draft.ignored(entry, 'not played: the one chosen before stays');
  });
  if (!optimizer)
    draft.assumed('optimizer', 'not said: Adam, Megatron’s default, in one fused kernel', {
      '/training/optimizer/name': 'adamw',
      '/training/optimizer/implementation': 'fused',
    });
  from.number('weight_decay', (_, entry) => draft.ignored(entry, 'no tensor of its own in a fused step'));
  const clip = from.number('clip_grad', (norm, entry) =>
    draft.understood(entry, norm > 0 ? 'clipped to this norm' : 'not clipped', { '/training/max_grad_norm': norm > 0 ? norm : null }),
  );
  if (clip === undefined) draft.assumed('clip_grad', 'not said: 1.0, Megatron’s default', { '/training/max_grad_norm': 1 });
}
