// What rows of Megatron-LM say in the names of its command line → the model and the options of the spec.
const number = (value) => (typeof value === 'string' && /^[\d.]+( \(default\))?$/.test(value.trim()) ? parseFloat(value) : value);

// "([0]*3+[1]*13)" → 3 times 0, 13 times 1
function pattern(text) {
  const list = [];
  for (const [, value, times] of String(text).matchAll(/\[(\d)\]\*(\d+)/g)) for (let i = 0; i < Number(times); ++i) list.push(Number(value));
  return list;
}

// Flags of the command line that shape the model, and the words for what is not played.
const shaping = ['num-layers', 'hidden-size', 'ffn-hidden-size', 'num-attention-heads', 'kv-channels', 'num-query-groups', 'max-position-embeddings',
  'position-embedding-type', 'normalization', 'swiglu', 'disable-bias-linear', 'add-qkv-bias', 'qk-layernorm', 'untie-embeddings-and-output-weights',
  'hidden-dropout', 'attention-dropout', 'multi-latent-attention', 'q-lora-rank', 'kv-lora-rank', 'qk-head-dim', 'qk-pos-emb-head-dim', 'v-head-dim',
  'num-experts', 'moe-router-topk', 'moe-ffn-hidden-size', 'moe-shared-expert-intermediate-size'];
const elsewhere = [[/hybrid|mamba/i, 'Megatron\'s hybrids of Mamba are'], [/\bvl|multimodal/i, 'a model of images is']];
const bertWords = 28996;  // of bert-large-cased-vocab.txt
const gpt2Words = 50257;  // of GPT2BPETokenizer, which the arguments take where none is named

// An encoder and a decoder; BertWordPieceTokenizer adds two words of its own to the vocabulary.
function t5Config(arch) {
  const config = { model_type: 'megatron_t5', encoder_num_layers: number(arch['encoder-num-layers']), decoder_num_layers: number(arch['decoder-num-layers']) };
  for (const flag of shaping) if (flag in arch) config[flag.replaceAll('-', '_')] = number(arch[flag]);
  config.vocab_size = (number(arch['vocab-size']) ?? bertWords + 2) + (number(arch['vocab-extra-ids']) || 0);
  return config;
}

// The model of a row whose label is none of a preset: its arguments. {config, says} or {refuse}
export function megatronModel(row) {
  const arch = row.arch ?? {};
  if (arch.layers && arch.hidden && arch.heads && arch.vocab && !arch.experts && /llama/i.test(row.model)) {
    const config = { model_type: 'llama', num_hidden_layers: arch.layers, hidden_size: arch.hidden, intermediate_size: arch.ffn, num_attention_heads: arch.heads,
      num_key_value_heads: arch.kv_heads ?? arch.heads, vocab_size: arch.vocab, tie_word_embeddings: arch.tied === true };
    return { config, says: null };
  }
  const other = elsewhere.find(([word]) => word.test(row.model));
  if (other && /megatron/i.test(row.model)) return { refuse: `${other[1]} not played` };
  if (arch['encoder-num-layers'] && arch['decoder-num-layers'] && arch['hidden-size']) return { config: t5Config(arch), says: null };
  if (!(arch['num-layers'] && arch['hidden-size'])) return null;
  if (arch['mtp-num-layers']) return { refuse: 'multi-token prediction is not played' };
  const bert = /bert/i.test(row.model);
  const config = { model_type: bert ? 'megatron_bert' : 'megatron' };
  for (const flag of shaping) if (flag in arch) config[flag.replaceAll('-', '_')] = number(arch[flag]);
  const words = number(arch['vocab-size']);
  config.vocab_size = bert && !words ? bertWords : words ? words + (/null/i.test(arch['tokenizer-type'] ?? '') ? 1 : 0) : gpt2Words;  // NullTokenizer adds an end
  if (arch['moe-layer-freq']) config.moe_layer_freq = pattern(arch['moe-layer-freq']);
  return { config, says: words ? null : `vocabulary: not stated, ${bert ? 'BERT\'s' : 'GPT-2\'s'}` };
}

// Megatron-LM's own tests take its command line's defaults; other programs bring recipes of their own.
export const isFunctionalTest = (row) => /functional_tests/.test(String(row.source_url_or_repo_path));

const attentions = [[/unfused|local/, 'eager'], [/auto|transformerengine/, 'sdpa'], [/flash/, 'flash_attention_2'], [/fused|cudnn/, 'fused']];

// Changes `training` of a spec into Megatron's.
export function useMegatron(row, training, notes) {
  const arch = row.arch ?? {}, p = row.parallel ?? {}, text = (value) => String(value ?? '').toLowerCase();
  const attention = attentions.find(([word]) => word.test(text(row.attention)));
  training.attention = attention ? attention[1] : 'sdpa';
  // flash-attn has a deterministic backward since 2.4.1, which the LTS container of 2025 did not have: auto found nothing fused there.
  if (training.attention === 'sdpa' && /lts container/.test(text(row.software)) && /^202[0-5]/.test(text(row.date_or_version))) training.attention = 'eager';
  delete training.max_grad_norm;
  const options = { gradient_accumulation_fusion: p.grad_accum_fusion ?? true };
  if (/transformer-impl local/.test(text(row.note))) options.transformer_impl = 'local';
  const loss = text(row.loss_impl);
  if (/\bte\b|transformer.?engine/.test(loss)) Object.assign(options, { cross_entropy_loss_fusion: true, cross_entropy_fusion_impl: 'te' });
  else if (/fused/.test(loss)) options.cross_entropy_loss_fusion = true;
  if (arch['moe-grouped-gemm'] === true) options.moe_grouped_gemm = true;
  if (isFunctionalTest(row)) {
    // Its functional tests run in deterministic mode, which has neither flash attention nor a fused cross-entropy.
    if (training.attention !== 'flash_attention_2' && !options.cross_entropy_loss_fusion) options.deterministic_mode = true;
  } else {
    options.moe_token_dispatcher_type = 'alltoall';  // as Megatron-Bridge's recipes and all large runs
    options.moe_grouped_gemm = true;
  }
  if (arch['decoder-seq-length']) options.decoder_seq_length = number(arch['decoder-seq-length']);
  if (arch['make-vocab-size-divisible-by']) options.make_vocab_size_divisible_by = number(arch['make-vocab-size-divisible-by']);
  const said = text(row.gradient_checkpointing);
  if (/^selective/.test(said)) {
    training.checkpointing = 'selective';
    options.recompute_modules = said.replace(/^selective/, '').match(/[a-z_]+/g) ?? ['core_attn'];
  } else if (/^full/.test(said)) {
    training.checkpointing = 'full';
    const layers = /(\d+) layer/.exec(said);
    if (layers) options.recompute_num_layers = Number(layers[1]);
  }
  training.megatron = options;
}

// Stages of a rank: "vpp_layers_per_stage" counts layers, or says "2 stages/rank"; with fewer layers than places, embedding and loss are counted
// as a layer each (account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split), for else Megatron refuses.
export function megatronStages(row, pipeline) {
  const p = row.parallel ?? {}, layers = number((row.arch ?? {})['num-layers']);
  const said = String(p.vpp_layers_per_stage ?? ''), stages = /(\d+) stages/.exec(said);
  const virtual = stages ? Number(stages[1]) : Number(said) > 0 && layers ? Math.floor(layers / pipeline.degree / Number(said)) : null;
  if (virtual > 1) Object.assign(pipeline, { virtual, schedule: 'interleaved_1f1b' });
  const places = pipeline.degree * (pipeline.virtual ?? 1);
  if (layers && layers % places !== 0 && (layers + 2) % places === 0) Object.assign(pipeline, { account_for_embedding: true, account_for_loss: true });
}
