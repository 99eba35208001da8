import type { Category } from '../core/answer';

// The parts of a bar: in the order of the chart, with their names.

export interface CategoryWords {
  key: Category;
  name: string;
  short: string;
  meaning: string;
}

export const categories: readonly CategoryWords[] = [
  { key: 'weights', name: 'Weights', short: 'weights', meaning: 'the parameters as they are held' },
  { key: 'gradients', name: 'Gradients', short: 'grads', meaning: 'one for each trained parameter' },
  { key: 'optimizer_states', name: 'Optimizer states', short: 'optimizer', meaning: 'AdamW’s two moments' },
  { key: 'attention', name: 'Attention', short: 'attention', meaning: 'kept for backward by the attention blocks' },
  { key: 'mlp', name: 'MLP', short: 'MLP', meaning: 'kept for backward by the MLPs' },
  { key: 'norms', name: 'Norms and residuals', short: 'norms', meaning: 'kept for backward by norms and residual sums' },
  { key: 'logits_and_loss', name: 'Logits and loss', short: 'logits', meaning: 'the head’s output and the loss over the vocabulary' },
  { key: 'other_activations', name: 'Other activations', short: 'other', meaning: 'kept for backward elsewhere' },
  { key: 'temporaries', name: 'Temporaries', short: 'temporary', meaning: 'alive for an instant, and this is the instant' },
  { key: 'communication', name: 'Gathered and buffers', short: 'gathered', meaning: 'gathered weights, gradient buckets' },
  { key: 'workspaces', name: 'Workspaces', short: 'workspace', meaning: 'what libraries such as cuBLAS keep' },
  { key: 'allocator_overhead', name: 'Allocator overhead', short: 'overhead', meaning: 'reserved by PyTorch, not allocated' },
  { key: 'outside', name: 'Outside PyTorch', short: 'outside', meaning: 'CUDA context, NCCL: an estimated range' },
];
