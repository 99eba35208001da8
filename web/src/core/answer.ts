// The core's answer as it crosses the door: core/report/README.md, in TypeScript. Bytes are whole numbers.

export type Category =
  | 'weights'
  | 'gradients'
  | 'optimizer_states'
  | 'attention'
  | 'mlp'
  | 'norms'
  | 'logits_and_loss'
  | 'other_activations'
  | 'temporaries'
  | 'communication'
  | 'workspaces'
  | 'allocator_overhead'
  | 'outside';

export interface Problem {
  at: string; // a JSON pointer into the spec; empty: the whole of it
  code: string;
  message: string;
}

export interface Note {
  at: string;
  text: string;
}

export interface Point {
  at: string; // "loaded", "step0.forward0", …
  allocated: number;
  peak_allocated: number;
  reserved: number;
  peak_reserved: number;
}

export interface LedgerRow {
  module: string;
  op: string;
  count: number;
  bytes: number;
}

export interface LedgerEntry {
  category: Category;
  bytes: number;
  rows: LedgerRow[];
}

export interface Outside {
  low: number;
  high: number;
  used: number;
  what: { name: string; low: number; high: number; used: number; source: string }[];
}

export interface OutOfMemory {
  after: string;
  tried: number;
  allocated: number;
  reserved: number;
  phase: string;
  what: string;
}

export interface RankReport {
  ranks: number[];
  stage: number;
  points: Point[];
  peak_allocated: number;
  peak_reserved: number;
  outside: Outside;
  device_total: number;
  peak: { after: string; phase: string; module: string; op: string; event: number };
  ledger: LedgerEntry[]; // sums to device_total
  retries: number;
  out_of_memory: OutOfMemory | null;
  /** The same where memory that other streams have used comes back as late as it can; null: none is used by another stream. */
  late?: { points: Point[]; peak_reserved: number; device_total: number; retries: number; out_of_memory: OutOfMemory | null } | null;
}

export type Status = 'fits' | 'fits_barely' | 'fits_after_retry' | 'may_not_fit' | 'does_not_fit' | 'unknown';

export interface Verdict {
  status: Status;
  sentence: string;
  rank: number;
  needed: number;
  needed_high?: number; // where it depends on timing what it may be
  capacity: number | null;
  margin: number | null;
}

/** Of one optimizer step, by the core's model of the GPU. */
export interface StepTime {
  microseconds: number;
  low_microseconds: number;
  high_microseconds: number;
  tokens_per_second: number; // of each GPU
  flops_utilisation: number; // per mille of the peak
  shares: Record<'compute' | 'memory' | 'communication' | 'bubble' | 'launch', number>; // per mille of the step
  communication_microseconds: number;
}

/** What the processes of one node hold in its memory: while loading, for what is offloaded, while saving a full state dict. */
export interface HostMemory {
  needed: number; // the most of loading and training
  capacity: number | null;
  points: { at: 'loading' | 'training' | 'saving'; bytes: number; what: { name: string; bytes: number }[] }[];
}

export interface Report {
  version: number;
  model: { name: string; type: string; class: string; layers: number; hidden_size: number; vocab_size: number };
  parameters: { total: number; trainable: number };
  verdict: Verdict;
  ranks: RankReport[];
  step_time?: StepTime | null; // null: the GPU's speed is not known
  host?: HostMemory | null; // null: not known of this kind of run
  assumptions: Note[];
  warnings: Note[];
}

export type Envelope<Value = Report> = { ok: true; value: Value } | { ok: false; problems: Problem[] };

/** The rank that decides: the one the verdict is about. */
export function decidingRank(report: Report): RankReport {
  const found = report.ranks.find((rank) => rank.ranks.includes(report.verdict.rank)) ?? report.ranks[0];
  if (!found) throw new Error('a report without ranks');
  return found;
}
