// A run whose speed was measured → a question to `llmem time`. General rules only: nothing here knows a row.
import { findModel } from '../measurements/models.mjs';
import * as tables from '../measurements/tables.mjs';

const said = (value) => (value === null || value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value)).toLowerCase().trim();
const look = (table, text) => table.find(([pattern]) => pattern.test(text))?.[1] ?? null;
const count = (value) => (Number.isFinite(Number(value)) && Number(value) >= 1 ? Math.round(Number(value)) : null);

class Unmappable extends Error {}
const refuse = (why) => { throw new Unmappable(why); };

// Models that are named in rows and are no presets.
const described = [
  // GPT-3 (arXiv 2005.14165), table 2.1, with Megatron's vocabulary
  [/gpt-?3.*175b/, { layers: 96, hidden: 12288, heads: 96, ffn_mult: 4, vocab: 51200 }],
  [/gpt-?3.*20b/, { layers: 44, hidden: 6144, heads: 48, ffn_mult: 4, vocab: 51200 }],
  // Nemotron-4 15B (arXiv 2402.16819), table 1; 340B (arXiv 2406.11704), table 1: two matrices, squared ReLU
  [/nemotron-?4.*15b/, { layers: 32, hidden: 6144, heads: 48, kv_heads: 8, ffn_mult: 4, vocab: 256000 }],
  [/nemotron.*340b/, { layers: 96, hidden: 18432, heads: 96, kv_heads: 8, ffn_mult: 4, vocab: 256000 }],
];

// The shape that a row gives, as the family of its MLP: with a gate Llama, without Starcoder 2.
function configOf(arch) {
  const ffn = arch.ffn ?? (arch.ffn_mult ? arch.ffn_mult * arch.hidden : null);
  if (!arch.layers || !arch.hidden || !arch.heads || !arch.vocab || !ffn) return null;
  const plain = arch.ffn_mult !== undefined || /gelu|2-matrix|relu/.test(said(arch.mlp ?? arch.act));
  const config = {
    model_type: plain ? 'starcoder2' : 'llama', architectures: [plain ? 'Starcoder2ForCausalLM' : 'LlamaForCausalLM'],
    hidden_size: arch.hidden, intermediate_size: ffn, num_hidden_layers: arch.layers, num_attention_heads: arch.heads,
    vocab_size: arch.vocab, max_position_embeddings: 1 << 20, hidden_act: plain ? 'gelu_pytorch_tanh' : 'silu', tie_word_embeddings: Boolean(arch.tied), num_key_value_heads: arch.kv_heads ?? arch.heads,
  };
  if (plain) Object.assign(config, { sliding_window: null, residual_dropout: 0, embedding_dropout: 0, attention_dropout: 0 });
  return config;
}

function modelOf(row, presets, notes) {
  const arch = row.arch ?? {};
  if (arch.experts || arch.n_experts || arch.moe || /moe|mixtral|deepseek|\ba\d+b\b/.test(said(row.model))) refuse('a mixture of experts');
  if (/mamba|t5|hybrid|nemotron[-_ ]?h|vl\b/.test(said(row.model))) refuse('no decoder of attention and MLP');
  const named = row.model.replace(/ \(.*\)$/, '').replace(/_/g, '-');
  const own = configOf(arch) ?? configOf(look(described, said(named)) ?? {});
  if (own) return own;
  const found = findModel(named, count(row.n_params), presets);
  if (found.refuse) refuse(found.refuse);
  if (found.assumed) notes.push(found.assumed);
  const config = { ...found.config };
  if ('sliding_window' in config || config.model_type === 'mistral') config.sliding_window = null;  // what is masked is computed all the same
  return config;
}

const layerKey = (config) => ['num_hidden_layers', 'n_layer', 'n_layers', 'num_layers'].find((key) => key in config);

function layoutOf(row, notes) {
  const p = row.parallel ?? {}, gpus = count(row.num_gpus) ?? refuse('the number of GPUs is not given');
  if ((count(p.ep) ?? 1) > 1) refuse('expert parallelism');
  const tensor = count(p.tp) ?? 1, pipeline = count(p.pp) ?? 1, context = (count(p.cp) ?? 1) * (count(p.ulysses) ?? count(p.sp_degree) ?? 1);
  const data = Math.max(1, Math.floor(gpus / (tensor * pipeline * context)));
  const words = said(row.strategy);
  const sharding = /fsdp|zero-?3|z3|jax/.test(words) ? 3 : /zero-?2|shard_grad_op/.test(words) ? 2 : /zero-?1|dist-opt|distributed/.test(words) ? 1 : 0;
  const virtual = Math.max(1, count(p.vpp) ?? (/interleaved/.test(said(p.schedule)) ? 2 : 1));
  return { tensor, pipeline, context, data, sharding: /shard_grad_op/.test(words) ? 2 : sharding, virtual, shards: Math.min(data, count(p.zero_group) ?? count(p.dp_shard) ?? data) };
}

function trainingOf(row, notes) {
  const method = look(tables.methods, said(row.method)) ?? { method: 'full' };
  if (method.refuse) refuse(method.refuse);
  if (method.objective) refuse('a preference objective');
  const training = { method: method.method };
  if (method.method === 'lora') {
    const lora = row.lora ?? {};
    const targets = said(lora.targets);
    const all = /all|gate|mlp|down/.test(targets);
    training.adapter = { rank: count(lora.r ?? lora.rank) ?? 8, targets: all ? 'all-linear' : ['q_proj', 'k_proj', 'v_proj', 'o_proj'].filter((name) => targets === '' ? /[qv]_/.test(name) : targets.includes(name) || targets.includes(name[0] + ',') || /attn|qkv|wqkv|c_attn/.test(targets)) };
    if (training.adapter.targets.length === 0) training.adapter.targets = ['q_proj', 'v_proj'];
    if (method.dora) training.adapter.dora = true;
    if (method.base) training.base_quantization = method.base.type === 'gptq' ? { bits: 4, type: 'nf4' } : { ...method.base };
    if (training.base_quantization?.bits === 4) training.base_quantization.compute_dtype = 'bfloat16';
    if (training.base_quantization) training.autocast = 'bfloat16';
  }
  const micro = count(row.micro_batch);
  if (!micro) notes.push('micro-batch: not given, 1');
  training.micro_batch = micro ?? 1;
  const tokens = row.also?.avg_tokens_per_step;
  training.sequence = count(row.seq_len) ?? (tokens ? Math.round(tokens / training.micro_batch) : refuse('the length of the sequences is not given'));
  // LLaMA-Factory checkpoints unless it is told not to (hparams/model_args.py, disable_gradient_checkpointing: False).
  const checkpointing = said(row.gradient_checkpointing) || (/llama-?factory/.test(said(row.software)) ? 'full' : '');
  const some = /(\d+) of (\d+) layers/.exec(checkpointing), second = /every (?:2nd|second|other) layer/.test(checkpointing);
  if (/full/.test(checkpointing)) training.checkpointing = 'full';
  if (second || some) {
    training.checkpointing = { every: second ? 2 : Math.max(1, Math.round(Number(some[2]) / Number(some[1]))) };
  } else if (perOp(row)) {
    training.checkpointing = 'selective';
  } else if (/selective|recipe/.test(checkpointing)) {  // Megatron's: attention, which a fused kernel computes again anyway
    training.checkpointing = 'none';
    notes.push(`checkpointing: "${checkpointing.slice(0, 40)}", none`);
  }
  if (/unfused|eager/.test(said(row.attention))) training.attention = 'eager';
  if (/fp16/.test(said(row.precision)) && !/bf16/.test(said(row.precision))) training.weights = 'float16';
  training.optimizer = { name: look(tables.optimizers, said(row.optimizer))?.name ?? 'adamw' };
  if (!/adam/.test(training.optimizer.name) && training.optimizer.name !== 'sgd') training.optimizer = { name: 'adamw' };
  return training;
}

// torchtitan's policy (distributed/activation_checkpoint.py, _apply_op_sac): every second product is computed again
const perOp = (row) => /torchtitan/.test(`${said(row.software)} ${said(row.source)}`) && /per-op/.test(said(row.gradient_checkpointing));

// Masters and states in fp32 beside 16-bit weights.
const hasMasters = (row) => /fp32|mixed|amp|master|main grads|float8|fp8/.test(said(row.precision)) || /distributed adam|dist/.test(said(row.optimizer));

// Megatron-LM and what is built on it
const isEngine = (row) => /megatron|nemo|transformer engine|\bte\b|\bmcore\b|jax|dgxc/.test(`${said(row.software)} ${said(row.source)}`);

function kernelsOf(row) {
  const software = `${said(row.software)} ${said(row.source)}`, attention = said(row.attention), engine = isEngine(row);
  return {
    fused: engine || Boolean(row.compile) || /compile|apex|fused kernels|nanotron/.test(software),
    flash3: /\bte\b|^cudnn|flash.?attention.?[34]|\bfa[34]\b|fused/.test(attention) || engine,
    float8: Boolean(row.low_precision_matmul),
  };
}

// "8x400Gb/s", "4x100 Gb RoCE per node", "3.2 Tb/s per node"
function networkOf(row, perNode) {
  const text = said(row.interconnect);
  const cards = /(\d+) ?x ?(?:\w+ )?(\d+) ?gb(?:it|ps)?/.exec(text), whole = /([\d.]+) ?tb\/s per node/.exec(text);
  if (whole) return Math.round((Number(whole[1]) * 1000) / perNode);
  if (cards) return Math.max(1, Math.round((Number(cards[1]) * Number(cards[2])) / perNode));
  return null;
}

function clusterOf(row, notes) {
  const found = look(tables.gpus, said(row.gpu));
  if (!found || found.refuse) refuse(`the GPU "${row.gpu}"`);
  const id = /h100/.test(said(row.gpu)) && found.gb ? 'h100-sxm-80gb' : found.id;
  const wide = /nvl72/.test(said(row.interconnect)) && /gb[23]00/.test(said(row.gpu));
  const cluster = { gpu: id, gpus_per_node: wide ? 72 : Math.max(count(row.gpus_per_node) ?? 8, 1) };
  const network = networkOf(row, cluster.gpus_per_node);
  if (network) cluster.network_gbps = network;
  return cluster;
}

export function questionOf(row, presets) {
  const notes = [];
  try {
    if (!(row.tokens_per_s_per_gpu > 0)) refuse('no tokens per second');
    if (/fp4/.test(said(row.precision))) refuse('4-bit products');
    const config = modelOf(row, presets, notes), training = trainingOf(row, notes), layout = layoutOf(row, notes);
    const key = layerKey(config), layers = config[key];
    if (layout.pipeline > 1) config[key] = Math.max(1, Math.ceil(layers / layout.pipeline));
    if (layout.context > 1) training.sequence = Math.ceil(training.sequence / layout.context);
    const rows = count(row.global_batch) ? row.global_batch / (training.micro_batch * layout.data) : count(row.grad_accum);
    layout.microbatches = Math.max(1, Math.round(rows ?? 1));
    if (layout.pipeline > 1 && layout.microbatches === 1 && training.micro_batch > 1) {  // a pipeline cuts a rank's rows into microbatches
      layout.microbatches = training.micro_batch;
      training.micro_batch = 1;
    }
    layout.masters = training.method === 'full' && hasMasters(row);
    layout.gathers_ahead = isEngine(row);  // overlap_param_gather of its recipes
    layout.gradient_bytes = /fp32 (grad )?reduce|main grads|fp32 grad/.test(said(row.precision)) ? 4 : 2;
    const kernels = kernelsOf(row);
    if (kernels.fused) training.optimizer.implementation = training.optimizer.name.startsWith('adam') ? 'fused' : undefined;
    const spec = { model: { name: row.model, config }, training, cluster: clusterOf(row, notes) };
    if (perOp(row)) spec.software = { stack: 'torchtitan' };
    return { question: { spec, layout, kernels }, notes };
  } catch (error) {
    if (error instanceof Unmappable) return { refused: error.message, notes };
    return { refused: `the row cannot be read: ${error.message}`, notes };
  }
}
