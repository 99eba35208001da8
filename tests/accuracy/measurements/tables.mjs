// What the words of a row mean, as data. Each table is read from the top: the first row whose pattern is found decides.
// `assumed`: what was not said and is taken to be so. `instead`: what stands in for something that is not played as it was run.

// Where a row comes from says which program ran: matched against source, path, software and note. `differs`: what that program does
// that is not played, so that its rows may be off.
// torchtitan: its loss is parallel over tensor ranks unless that is switched off (parallelism.disable_loss_parallel).
export const frameworks = [
  {
    match: /fms-acceleration/,
    name: 'fms-acceleration', loop: 'sft_trainer', checkpointing: 'full_reentrant', padToken: true, doubleQuant: true,
    says: 'fms-acceleration: TRL\'s SFTTrainer; a pad token is added to tokenizers without one (measurements README: Mistral-7B ran with 32,001 words); bitsandbytes bases are double-quantised (framework_plugin_bnb.py)',
  },
  {
    match: /torchtitan|pytorch\/ao/, name: 'torchtitan', stack: 'torchtitan', expandable: true, clip: 1.0, fused: true, lossParallel: true,
    fusedFrom: '2024-06-05',  // its #355
    before: { date: '2024-06-12', says: 'torchtitan before its #391 (June 2024): norms of its own, repeated keys and values, and a step that holds fp32 logits until the next forward is done' },
  },
  { match: /torchtune/, name: 'torchtune', upcast: false, prepareKbit: false, differs: 'torchtune\'s own modules, played as Transformers\'; its activation offloading leaves parameters on the GPU and has a stream of its own' },
  {
    match: /litgpt|lit-gpt|lit-llama|lit-parrot/, name: 'litgpt', stack: 'litgpt', upcast: false, prepareKbit: false,
    bitsandbytes: '0.42.0',  // its finetune scripts warn of any other version
    loraDropout: 0.05,  // finetune/lora.py, and most of its config hub
  },
  { match: /prime-rl/, name: 'prime-rl', clip: 1.0, differs: 'prime-rl\'s loop holds the logits of a micro-batch until its backward is done' },
  { match: /axolotl/, name: 'axolotl', loop: 'trainer', prepareKbit: true, differs: 'axolotl\'s patches and kernels', expertsOnItsOwn: 'axolotl quantises experts, which are no Linears of bitsandbytes\'s, by code of its own' },
  { match: /fsdp_qlora/, name: 'fsdp_qlora', upcast: false, prepareKbit: false, autoWrap: 'peft' },
  { match: /megatron|simumax|nemo-rl|primus/i, name: 'Megatron', stack: 'megatron' },
  { match: /colossalai/i, name: 'ColossalAI', differs: 'ColossalAI\'s ZeRO, played as DeepSpeed\'s' },
  { match: /automodel/i, name: 'Automodel', differs: 'Automodel\'s recipe' },
  { match: /deepspeed/i, name: 'DeepSpeed' },
  { match: /qwenlm/i, name: 'Qwen', loop: 'trainer', differs: 'Qwen\'s own modeling code of 2023' },
  { match: /llama-?factory|ms-swift|\bswift\b|firefly|liger|transformers|glm-4|minicpm|xtuner|alignment/i, name: 'Transformers', loop: 'trainer' },
];

// The words in which a row itself says which loop ran.
export const loops = [
  [/sfttrainer|\btrl \d/, 'sft_trainer'],
  [/hf trainer|transformers\.trainer|\btrainer\b/, 'trainer'],
];

export const methods = [
  [/model-init only|no training/, { refuse: 'no training step was run' }],
  [/sequence classification/, { method: 'full', head: 'ForSequenceClassification' }],
  [/vision|\bvl\b|image|video/, { refuse: 'a model of images and text' }],
  [/modules_to_save|trainable embeddings/, { method: 'lora', saved: true }],
  [/adapter|prefix|prompt|ptuning|p_tuning/, { refuse: 'a PEFT method other than LoRA' }],
  [/peft:(?!lora|dora|rslora|qlora)/, { refuse: 'a PEFT method other than LoRA' }],
  [/q-?lora.*gptq|gptq/, { method: 'lora', base: { bits: 4, type: 'gptq' } }],
  [/awq/, { method: 'lora', base: { bits: 4, type: 'awq' } }],
  [/hqq/, { method: 'lora', base: { bits: 4, type: 'hqq' } }],
  [/lora.*(int8|8-?bit)|(int8|8-?bit).*lora/, { method: 'lora', base: { bits: 8 } }],
  [/q-?lora.*(-dq|double)|nf4-dq/, { method: 'lora', base: { bits: 4, type: 'nf4', double_quant: true } }],
  [/q-?lora.*fp4|bnb.fp4/, { method: 'lora', base: { bits: 4, type: 'fp4' } }],
  [/q-?lora|nf4|4-?bit.*lora|lora.*4-?bit/, { method: 'lora', base: { bits: 4, type: 'nf4' } }],
  [/dora/, { method: 'lora', dora: true }],
  [/\blora\b|rslora/, { method: 'lora' }],
  [/dpo/, { method: 'full', objective: 'dpo' }],
  [/full|pre-?train|fine-?tun|sft|\bft\b|dense/, { method: 'full' }],
];

// `weights`: what parameters are held in; `compute`: what they are computed in where that differs.
export const precisions = [
  [/fp32 params?, float8|float8|fp8|mxfp|nvfp|current scaling/, { weights: 'float32', compute: 'bfloat16', instead: '8-bit or 4-bit linears played as bfloat16', low: true }],
  [/fp32 (sharded )?params?.*bf16|bf16.*fp32 (params?|weights|sharded)|fp32 weights, bf16|bf16.mixed|mixed.*bf16|bf16 mixed|amp.*bf16|bf16 amp/, { weights: 'float32', compute: 'bfloat16' }],
  [/fp32 (sharded )?params?.*fp16|fp16.*fp32 (params?|weights)|fp16.mixed|mixed.*fp16|fp16 mixed|amp.*fp16|fp16 amp|\bamp\b/, { weights: 'float32', compute: 'float16', scaler: true }],
  [/fp16 autocast \(float16 weights\)|float16 weights.*autocast/, { weights: 'float16', compute: 'float16', autocast: true }],
  [/bf16 weights \+ bf16 autocast|bf16 autocast, bf16/, { weights: 'bfloat16', compute: 'bfloat16', autocast: true }],
  [/bf16 trainer/, { weights: 'float32', compute: 'bfloat16' }],
  [/pure bf16|bf16-true|no autocast|everything bf16|bf16|bfloat16/, { weights: 'bfloat16' }],
  [/fp16|float16|half/, { weights: 'float16' }],
  [/fp32|float32|tf32|single/, { weights: 'float32' }],
];

export const optimizers = [
  [/paged.*8-?bit|paged_adamw_8bit/, { name: 'paged_adamw_8bit' }],
  [/paged.*lion/, { name: 'paged_lion' }],
  [/paged.*adam/, { name: 'paged_adamw' }],
  [/torchao.*4-?bit|adamw_torch_4bit|adamw4bit|4-?bit.*adam|ao4/, { name: 'adamw_4bit_torchao' }],
  [/torchao.*fp8|adamw_torch_fp8|adamwfp8/, { name: 'adamw_fp8_torchao' }],
  [/torchao.*8-?bit|adamw_torch_8bit|ao8/, { name: 'adamw_8bit_torchao' }],
  [/ademamix.*8-?bit/, { name: 'ademamix_8bit' }],
  [/lion.*8-?bit/, { name: 'lion_8bit' }],
  [/adam.*8-?bit|8-?bit.*adam|adam8bit|bnb.*8bit/, { name: 'adamw_8bit' }],
  [/adafactor/, { name: 'adafactor_hf' }],
  [/muon/, { name: 'muon' }],
  [/schedule.?free/, { name: 'schedule_free_adamw' }],
  [/lora-?fa/, { name: 'adamw', instead: 'LoRA-FA\'s optimizer played as AdamW' }],
  [/cpuadam|hybridadam|deepspeedcpu/, { name: 'adamw', implementation: 'fused' }],
  [/adamw_hf|adamw \(transformers\)/, { name: 'adamw', implementation: 'loop', instead: 'Transformers\' own AdamW played as torch\'s, one tensor at a time' }],
  [/lion/, { name: 'lion' }],
  [/nadam/, { name: 'nadam' }],
  [/adamax/, { name: 'adamax' }],
  [/radam/, { name: 'radam' }],
  [/adagrad/, { name: 'adagrad' }],
  [/rmsprop/, { name: 'rmsprop' }],
  [/sgd.*momentum|momentum.*sgd/, { name: 'sgd', momentum: 0.9 }],
  [/sgd/, { name: 'sgd' }],
  [/galore|apollo|lomo|badam|lisa|sophia|shampoo|soap/, { refuse: 'an optimizer that is not played' }],
  [/adam(?!w)/, { name: 'adam' }],
  [/adam/, { name: 'adamw' }],
];

export const implementations = [
  [/foreach/, 'foreach'],
  [/fused(?! where noted)/, 'fused'],
  [/for-?loop|single.tensor/, 'loop'],
];

export const attentions = [
  [/flash.?attention.?[34]|flash-attn[34]|\bfa[34]\b/, { attention: 'flash_attention_2', instead: 'FlashAttention 3 or 4 played as 2, which saves the same' }],
  [/sdpa/, { attention: 'sdpa' }],
  [/flash|\bfa2?\b|xformers/, { attention: 'flash_attention_2' }],
  [/flex/, { attention: 'flex' }],
  [/transformerengine|\bte\b|cudnn|fused(?!.*unfused)/, { attention: 'fused' }],
  [/eager|unfused|local|math/, { attention: 'eager' }],
];

export const checkpointings = [
  [/^none|^off|^no\b|^false/, { checkpointing: 'none' }],
  [/non-?reentrant/, { checkpointing: 'full' }],
  [/reentrant/, { checkpointing: 'full_reentrant' }],
  [/every (\d+)/, { checkpointing: 'every' }],
  [/selective|\bsac\b|saving only|recompute.*(core_attn|mlp|moe|layernorm)/, { checkpointing: 'selective' }],
  [/full|^true|^on\b|yes|unsloth|enabled/, { checkpointing: 'full' }],
];

export const losses = [
  [/rl trainer|log-?prob/, { loss: 'trl_tiled', instead: 'the RL trainer\'s fused head played as TRL\'s, tile by tile' }],
  [/fused rmsnorm|fused-linear-ce \+|all liger kernels/, { loss: 'liger_fused_linear' }],
  [/liger.*fused.?linear|fused.?linear.*liger|^liger$|flce/, { loss: 'liger_fused_linear' }],
  [/cut.?cross|\bcce\b/, { loss: 'trl_tiled', instead: 'cut cross-entropy played as TRL\'s tiled head, which keeps no logits either' }],
  [/fused lm_head|fused.?linear/, { loss: 'trl_tiled', instead: 'a fused head played as TRL\'s tiled one' }],
  [/fused ce|fused cross|fast_loss|liger_cross/, { loss: 'liger_cross_entropy', instead: 'a fused cross-entropy kernel played as Liger\'s' }],
  [/chunk/, { loss: 'chunked' }],
  [/cross.?entropy|\bce\b|standard|default|masked/, { loss: 'standard' }],
];

// Fused kernels of the layers, by the words of the note and of the loss.
export const kernels = [
  [/fused rmsnorm|all liger kernels|liger-kernel \d/, { rms_norm: true, rope: true, swiglu: true }],
  [/foak|fast.kernels|unsloth/, { rms_norm: true, rope: true, instead: 'fused norm and rotary kernels played as Liger\'s' }],
];

// By the words of `metric`. `steady`: counters were set back before the steps that were measured.
export const metrics = [
  [/after model init|after load/, { metric: 'loaded' }],
  [/minus baseline.*generation|generation eval/, { metric: 'reserved', note: 'whole run with generation, which is not played' }],
  [/(nvml|nvidia-smi|device memory|gpu memory).*(minus|less|above|without|excl|net of|subtract).*(base|context)/, { metric: 'reserved' }],
  [/nvml|nvidia-smi|\bsmi\b|device memory(?!.*reserved)|gpu memory usage/, { metric: 'device' }],
  [/reserved/, { metric: 'reserved' }],
  [/unspecified|unstated|not stated|unknown/, { metric: 'unstated' }],
  [/allocated|active|max cuda memory/, { metric: 'allocated' }],
  [/./, { metric: 'unstated' }],
];

export const secondMetrics = [
  [/^nvidia_smi/, 'device'],
  [/^peak_reserved/, 'reserved'],
  [/^peak_(active|allocated)|^allocated_gi?b$/i, 'allocated'],
];

export const units = { bytes: [1, 1], B: [1, 1], MiB: [2 ** 20, 2 ** 20], MB: [1e6, 2 ** 20], GiB: [2 ** 30, 2 ** 30], GB: [1e9, 2 ** 30] };

// Name in a row → preset; `gb`: only with a capacity from this many GB on.
export const gpus = [
  [/mi\d{3}|radeon|tpu|gaudi|ascend|npu|trainium/, { refuse: 'no NVIDIA GPU' }],
  [/gh200/, { id: 'gh200-96gb' }],
  [/gb300/, { id: 'b300-sxm-288gb', assumed: 'GB300: the B300\'s memory' }],
  [/gb200/, { id: 'gb200' }],
  [/b300/, { id: 'b300-sxm-288gb' }],
  [/b200/, { id: 'b200-sxm-180gb' }],
  [/h200/, { id: 'h200-sxm-141gb' }],
  [/h20\b/, { id: 'h20-96gb' }],
  [/h100/, { id: 'gh200-96gb', gb: 94, assumed: 'H100 96GB: the GH200\'s 94.5 GiB, the same chip' }],
  [/h100.*pcie/, { id: 'h100-pcie-80gb' }],
  [/h[18]00|hopper/, { id: 'h100-sxm-80gb' }],
  [/a[18]00.*40|40.*a100/, { id: 'a100-40gb' }],
  [/a[18]00.*pcie/, { id: 'a100-pcie-80gb' }],
  [/a[18]00/, { id: 'a100-sxm-80gb' }],
  [/v100.*32|32.*v100/, { id: 'v100-sxm2-32gb' }],
  [/v100/, { id: 'v100-sxm2-16gb' }],
  [/p100/, { id: 'p100-16gb' }],
  [/\bt4\b/, { id: 't4' }],
  [/l40/, { id: 'l40s' }],
  [/\bl4\b/, { id: 'l4' }],
  [/a10g/, { id: 'a10g' }],
  [/\ba10\b/, { id: 'a10' }],
  [/pro 6000/, { id: 'rtx-pro-6000-blackwell' }],
  [/6000 ada/, { id: 'rtx-6000-ada' }],
  [/a6000/, { id: 'rtx-a6000' }],
  [/a5000/, { id: 'rtx-a5000' }],
  [/a4000/, { id: 'rtx-a4000' }],
  [/\ba40\b/, { id: 'a40' }],
  [/\ba30\b/, { id: 'a30' }],
  [/\ba16\b/, { id: 'a16' }],
  [/5090/, { id: 'rtx-5090' }],
  [/5080/, { id: 'rtx-5080' }],
  [/5070 ?ti/, { id: 'rtx-5070-ti' }],
  [/5060 ?ti/, { id: 'rtx-5060-ti-16gb' }],
  [/4090/, { id: 'rtx-4090' }],
  [/4080/, { id: 'rtx-4080' }],
  [/4070 ?ti ?s/, { id: 'rtx-4070-ti-super' }],
  [/4070/, { id: 'rtx-4070' }],
  [/4060 ?ti/, { id: 'rtx-4060-ti-16gb' }],
  [/4060/, { described: { compute_capability: 89, sms: 24 } }],  // NVIDIA Ada GPU architecture whitepaper: AD107, 24 SMs, 8 GB
  [/3090 ?ti/, { id: 'rtx-3090-ti' }],
  [/3090/, { id: 'rtx-3090' }],
  [/3080/, { id: 'rtx-3080-10gb' }],
  [/3060/, { id: 'rtx-3060-12gb' }],
  [/2080 ?ti/, { id: 'rtx-2080-ti' }],
  [/spark|gb10/, { id: 'dgx-spark-128gb' }],
];

// A GPU known only by its memory (GB): the usual one of that size.
export const gpusBySize = [
  [8, 'rtx-3080-10gb'], [12, 'rtx-3060-12gb'], [16, 'rtx-4080'], [24, 'rtx-4090'], [32, 'rtx-5090'], [40, 'a100-40gb'], [48, 'l40s'],
  [80, 'a100-sxm-80gb'], [96, 'gh200-96gb'], [141, 'h200-sxm-141gb'], [180, 'b200-sxm-180gb'], [192, 'gb200'], [288, 'b300-sxm-288gb'],
];

// Modules by the names that other programs give them → Transformers' names. A name that the model does not have is left out.
export const moduleNames = {
  query: ['q_proj'], key: ['k_proj'], value: ['v_proj'], projection: ['o_proj'], output_proj: ['o_proj'],
  mlp: ['gate_proj', 'up_proj', 'down_proj'], head: ['lm_head'],
  wq: ['q_proj'], wk: ['k_proj'], wv: ['v_proj'], wo: ['o_proj'],
  linear_qkv: ['q_proj', 'k_proj', 'v_proj'], linear_proj: ['o_proj'], linear_fc1: ['gate_proj', 'up_proj'], linear_fc2: ['down_proj'],
};

// Names that a pattern for modules is tried on.
const attention = ['q_proj', 'k_proj', 'v_proj', 'o_proj'].map((name) => [name, `self_attn.${name}`]);
const mlp = ['gate_proj', 'up_proj', 'down_proj'].map((name) => [name, `mlp.${name}`]);
export const modulePaths = ['model.layers.0', 'model.language_model.layers.0']
  .flatMap((layer) => [...attention, ...mlp].map(([name, path]) => [name, `${layer}.${path}`]));

// DeepSpeed, FSDP, … by the words of `strategy`, each joined by "+".
export const strategies = [
  [/megatron-fsdp/, { data: 'megatron_fsdp' }],
  [/dist-opt|distributed optimizer/, { data: 'distributed_optimizer' }],
  [/no_shard/, { data: 'fsdp1', strategy: 'NO_SHARD' }],
  [/fsdp1\/fsdp2|fsdp2|fully_shard|hsdp/, { data: 'fsdp2' }],
  [/fsdp/, { data: 'fsdp1' }],
  [/zero-?3|z3|stage 3/, { data: 'zero3' }],
  [/zero-?2|z2|stage 2/, { data: 'zero2' }],
  [/zero-?1|z1|stage 1/, { data: 'zero1' }],
  [/zeroredundancy/, { data: 'zero_redundancy' }],
  [/ddp|data.?parallel/, { data: 'ddp' }],
  [/^single|^none|^1 ?gpu/, { data: 'none' }],
];

export const schedules = [
  [/dualpipe/, 'dualpipev'],
  [/zbv/, 'zbv'],
  [/zero.?bubble|zb/, 'interleaved_zero_bubble'],
  [/interleaved/, 'interleaved_1f1b'],
  [/gpipe/, 'gpipe'],
  [/1f1b/, '1f1b'],
];

export const offloads = [
  [/^none|^no\b|^$/, {}],
  [/opt.*grad|grad.*opt|masters.*adam|optimizer.*param|param.*optimizer/, { optimizer: 'cpu', parameters: 'cpu' }],
  [/param/, { optimizer: 'cpu', parameters: 'cpu' }],
  [/optimizer|adam/, { optimizer: 'cpu' }],
];

// Packages whose version changes memory, and how rows spell them.
export const packages = { torch: 'torch', transformers: 'transformers', trl: 'trl', bitsandbytes: 'bitsandbytes|bnb' };

// Transformers' versions in series that train alike as far as is known: up to this version → what is asked for.
export const transformersSeries = [[4, 45, '4.45'], [4, 50, '4.48'], [4, 55, '4.51'], [4, 99, '4.56'], [99, 99, '5']];

// Where the core does not play what the row says: what is asked in its place, tried in this order. `at`: the place of the problem.
// `place`: what is replaced where that is not the place of the problem.
export const replacements = [
  { at: /^\/software\/transformers$/, from: '4.45', to: '4.48', says: 'Transformers 4.48 in place of 4.45 or before' },
  { at: /^\/software\/(transformers|torch|trl|peft|accelerate|deepspeed|liger|bitsandbytes)$/, says: 'another version than the one that ran' },
  { at: /^\/software\/stack$/, says: 'Transformers\' model in place of the program\'s own' },
  { at: /^\/training\/attention$/, to: 'sdpa', says: 'SDPA in place of the attention that ran' },
  { at: /^\/training\/loop$/, to: 'trainer', says: 'HF\'s Trainer in place of SFTTrainer' },
  { at: /^\/training\/loop$/, says: 'the plain loop in place of a Trainer' },
  { at: /^\/training\/base_quantization\/type$/, to: 'nf4', with: { double_quant: true }, says: 'bitsandbytes NF4 with double quantisation in place of another 4-bit base' },
  { at: /^\/training\/loss$/, from: 'trl_tiled', to: 'liger_fused_linear', says: 'Liger\'s fused head in place of another' },
  { at: /^\/training\/mask$/, to: 'none', says: 'a batch without padding' },
  { at: /^\/training\/accumulation$/, to: 1, says: 'no accumulation' },
  { at: /^\/training\/compile$/, says: 'not compiled' },
  { at: /^\/training\/checkpointing$/, from: 'full_reentrant', to: 'full', says: 'non-reentrant checkpointing in place of reentrant' },
  { at: /^\/training\/kernels/, place: '/training/kernels', says: 'the model\'s own norm and rotary kernels' },
  { at: /^\/training\/loss$/, from: 'liger_cross_entropy', to: 'standard', says: 'the standard loss in place of a fused one' },
  { at: /^\/training\/optimizer\/name$/, from: /_(torchao)$/, to: 'adamw_8bit', says: 'bitsandbytes\' 8-bit AdamW in place of torchao\'s' },
  { at: /^\/parallel\/data\/(forward_prefetch|backward_prefetch|limit_all_gathers)$/, says: 'FSDP1\'s usual prefetch' },
];
