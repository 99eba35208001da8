// A row's label of a model → a preset, in whatever spelling.
import { readdirSync, readFileSync } from 'node:fs';

// Architectures of rows that are no preset. Source of each in its comment.
const described = {
  // litgpt 8641822, lit_gpt/config.py: stablelm-base-alpha-3b, padded_vocab_size 50688
  'stabilityai/stablelm-base-alpha-3b': {
    architectures: ['GPTNeoXForCausalLM'], model_type: 'gpt_neox', hidden_size: 4096, intermediate_size: 16384, num_hidden_layers: 16,
    num_attention_heads: 32, vocab_size: 50688, max_position_embeddings: 4096, rotary_pct: 0.25, hidden_act: 'gelu',
    use_parallel_residual: true, tie_word_embeddings: false,
  },
  // config.json of ibm/PowerLM-3b (granite); the biases are a fact of the measurements README
  'ibm/PowerLM-3b': {
    architectures: ['GraniteForCausalLM'], model_type: 'granite', hidden_size: 2304, intermediate_size: 9216, num_hidden_layers: 40,
    num_attention_heads: 36, num_key_value_heads: 36, vocab_size: 49152, max_position_embeddings: 4096, hidden_act: 'silu',
    attention_bias: true, mlp_bias: true, tie_word_embeddings: true,
  },
  // torchtitan, models/llama3: debugmodel (dim 256, 6 layers, 16 heads); words by its parameter count
  'torchtitan llama3 debugmodel': {
    architectures: ['LlamaForCausalLM'], model_type: 'llama', hidden_size: 256, intermediate_size: 768, num_hidden_layers: 6,
    num_attention_heads: 16, vocab_size: 2048, max_position_embeddings: 2048, hidden_act: 'silu', tie_word_embeddings: false,
  },
  // torchtitan in March 2024: two such layers, Llama-2's words
  'torchtitan llama debugmodel': {
    architectures: ['LlamaForCausalLM'], model_type: 'llama', hidden_size: 256, intermediate_size: 768, num_hidden_layers: 2,
    num_attention_heads: 16, vocab_size: 32000, max_position_embeddings: 2048, hidden_act: 'silu', tie_word_embeddings: false,
  },
};

// Finetunes whose name does not say what they were made from → the name of that (their model cards).
const derived = [
  [/bloomz/i, 'bloom'], [/\bmt0\b/i, 'mt5'], [/vicuna|alpaca|\bguanaco/i, 'llama'], [/intellect-3/i, 'GLM-4.5-Air'],
  [/magistral-small.*/i, 'Mistral-Small-24B-Base-2501'], [/plano-orchestrator-4b/i, 'Qwen3-4B'], [/t0_3b/i, 'flan-t5-xl'], [/t0pp?\b/i, 'flan-t5-xxl'],
];

// Words of a label that say how weights were tuned or stored, not what shape they have.
const incidental = /^(hf|meta|chat|instruct|it|base|pt|gptq|awq|int4|int8|bnb|nf4|fp4|fp8|nvfp4|mxfp4|bf16|fp16|4bit|8bit|4|bit|rl|reasoning|sft|thinking|\d{4}|model|weights|the)$/;

function words(label) {
  return label.replace(/\(.*?\)/g, ' ').replace(/^.*\//, '').toLowerCase().replace(/(\d)_(\d)/g, '$1.$2')
    .replace(/(\d)\s+b\b/g, '$1b').split(/[\s_-]+/).filter(Boolean);
}

// "Meta-Llama-3-8B-Instruct" → "llama38b". Dates and finetunes' words go unless nothing would be left.
function key(label) {
  const all = words(label), kept = all.filter((word) => !incidental.test(word));
  return (kept.length > 0 ? kept : all).join('').replace(/-/g, '');
}

// The same up to the size: "tinyllama-1.1b-intermediate-step" → "tinyllama1.1b".
function stem(label) {
  const all = words(label).filter((word) => !incidental.test(word));
  const size = all.findIndex((word) => /\d(\.\d+)?[bm]$/.test(word));
  return size < 0 ? null : all.slice(0, size + 1).join('');
}

export function readPresets(folder) {
  return readdirSync(folder).filter((name) => name.endsWith('.json')).sort().map((name) => {
    const { id, parameters, config } = JSON.parse(readFileSync(folder + name, 'utf8'));
    return { id, parameters, config, key: key(id) };
  });
}

const shortest = (a, b) => a.key.length - b.key.length || (a.key < b.key ? -1 : 1);
const near = (a, b) => Math.abs(a - b) <= 1e-3 * b;

// The presets that the label may mean, best reading first: [presets, what had to be assumed].
function* readings(label, presets) {
  const lower = label.trim().toLowerCase(), name = lower.replace(/^.*\//, '');
  yield [presets.filter((preset) => preset.id.toLowerCase() === lower)];
  yield [presets.filter((preset) => preset.id.toLowerCase().replace(/^.*\//, '') === name)];
  const wanted = key(label);
  yield [presets.filter((preset) => preset.key === wanted), 'shape'];
  const short = stem(label);
  if (short && /[a-z]{2}/.test(short)) {
    yield [presets.filter((preset) => preset.key === short), 'shape'];
    yield [presets.filter((preset) => preset.key.startsWith(short)).sort(shortest), 'family and size'];
  }
  if (wanted.length >= 4) {
    yield [presets.filter((preset) => preset.key.startsWith(wanted)).sort(shortest), 'name'];
  }
}

function originOf(name) {
  const found = derived.find(([pattern]) => pattern.test(name));
  return found ? name.replace(/^.*\//, '').replace(...found) : '';
}

function find(name, parameters, presets) {
  const own = described[name.replace(/\s*\(.*?\)/g, '')];
  if (own) return { id: name, config: own };
  for (const [found, by] of readings(name, presets)) {
    const agreeing = parameters ? found.filter((preset) => near(preset.parameters, parameters)) : found;
    if (agreeing.length > 0) return { ...agreeing[0], assumed: by ? `model: ${agreeing[0].id} by its ${by}` : null };
  }
  return null;
}

function sameCount(parameters, presets) {
  const found = parameters ? presets.find((preset) => preset.parameters === parameters) : null;
  return found ? { ...found, assumed: `model: ${found.id}, which has as many parameters` } : null;
}

// A count may be of another definition: with buffers, without a head.
function otherCount(name, parameters, presets) {
  for (const [found, by] of readings(name, presets)) {
    if (found.length === 0 || !parameters || Math.abs(found[0].parameters - parameters) > 0.1 * parameters) continue;
    return { ...found[0], assumed: `model: ${found[0].id} by its ${by ?? 'name'}, with another count of parameters than the row's` };
  }
  return null;
}

// {id, config, assumed} or {refuse}. `parameters`: the row's count, if it gives one; it decides between readings.
export function findModel(label, parameters, presets) {
  const name = String(label ?? '').trim();
  return find(name, parameters, presets) ?? find(originOf(name), parameters, presets) ?? sameCount(parameters, presets)
    ?? otherCount(name, parameters, presets) ?? { refuse: `no preset is like the model "${name}"` };
}
