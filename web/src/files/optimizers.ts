import type { Draft, Entry } from './draft';

// The names that the Trainer (optim) and axolotl (optimizer) give to optimizers → the wire format's.
// Source: transformers.training_args.OptimizerNames and Trainer.get_optimizer_cls_and_kwargs; axolotl's CustomSupportedOptimizers.

type Implementation = 'foreach' | 'fused';
interface Row {
  name: string;
  implementation?: Implementation;
  note?: string; // why it is only like the one named
}

const rows: Record<string, Row> = {
  adamw_torch: { name: 'adamw', implementation: 'foreach' },
  adamw_torch_fused: { name: 'adamw', implementation: 'fused' },
  adamw_hf: { name: 'adamw', implementation: 'foreach', note: 'Transformers’ own AdamW is gone; torch’s takes its place' },
  adamw_apex_fused: { name: 'adamw', implementation: 'fused', note: 'Apex’ FusedAdam holds the same two states' },
  adamw_torch_xla: { name: 'adamw', implementation: 'foreach', note: 'syncfree AdamW of XLA, read as torch’s' },
  adamw_torch_npu_fused: { name: 'adamw', implementation: 'fused', note: 'the NPU’s fused AdamW, read as torch’s' },
  adamw_bnb_8bit: { name: 'adamw_8bit' },
  adamw_8bit: { name: 'adamw_8bit' },
  paged_adamw_32bit: { name: 'paged_adamw' },
  paged_adamw_8bit: { name: 'paged_adamw_8bit' },
  paged_adamw: { name: 'paged_adamw' },
  adafactor: { name: 'adafactor_hf' },
  sgd: { name: 'sgd', implementation: 'foreach' },
  adagrad: { name: 'adagrad', implementation: 'foreach' },
  rmsprop: { name: 'rmsprop', implementation: 'foreach' },
  rmsprop_bnb_8bit: { name: 'rmsprop_8bit' },
  lion_8bit: { name: 'lion_8bit' },
  lion_32bit: { name: 'lion_bnb' },
  paged_lion_32bit: { name: 'paged_lion' },
  paged_lion_8bit: { name: 'paged_lion_8bit' },
  lion_pytorch: { name: 'lion' },
  ademamix: { name: 'ademamix' },
  ademamix_8bit: { name: 'ademamix_8bit' },
  schedule_free_adamw: { name: 'schedule_free_adamw' },
  muon: { name: 'muon' },
  adamw_torch_8bit: { name: 'adamw_8bit_torchao' },
  adamw_torch_4bit: { name: 'adamw_4bit_torchao' },
  ao_adamw_8bit: { name: 'adamw_8bit_torchao' },
  ao_adamw_4bit: { name: 'adamw_4bit_torchao' },
  ao_adamw_fp8: { name: 'adamw_fp8_torchao' },
  optimi_adamw: { name: 'adamw', implementation: 'foreach', note: 'optimi’s AdamW holds the same two states' },
  adopt_adamw: { name: 'adamw', implementation: 'foreach', note: 'ADOPT holds the same two states as AdamW' },
  stable_adamw: { name: 'adamw', implementation: 'foreach', note: 'StableAdamW holds the same two states as AdamW' },
};

const PAPERS =
  /galore|apollo|lomo|grokadamw|anyprecision|came|dion|sinkgd|flash_|schedule_free_(radam|sgd)|paged_ademamix|rmsprop_bnb|badam|adam_mini|lisa/;

export function knownOptimizer(name: string): boolean {
  return Object.hasOwn(rows, name.toLowerCase()) || PAPERS.test(name.toLowerCase());
}

export function readOptimizer(draft: Draft, entry: Entry, asked: string): void {
  const name = asked.toLowerCase().replace(/^optimizernames\./, '');
  const row = Object.hasOwn(rows, name) ? rows[name] : undefined;
  if (row) {
    const values = {
      '/training/optimizer/name': row.name,
      ...(row.implementation ? { '/training/optimizer/implementation': row.implementation } : {}),
    };
    if (row.note) draft.inferred(entry, `${row.note}: read as ${row.name}`, values);
    else draft.understood(entry, `the optimizer: ${row.name}${row.implementation ? `, ${row.implementation}` : ''}`, values);
    return;
  }
  const why = PAPERS.test(name) ? 'this optimizer’s states are not played here yet' : 'no optimizer of this name is known here';
  draft.ignored(entry, `${why}; the one chosen before stays`);
  draft.asked('optimizer', `“${asked.slice(0, 60)}”: ${why}. Choose one with states of the same size.`, '/training/optimizer/name');
}
