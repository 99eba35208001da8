import type { JsonObject } from '../choice/choice';
import type { Problem } from './answer';

// Which way to train, as it crosses the door: core/search/README.md, in TypeScript.

/** What a search wants of an estimate. */
export interface Summary {
  status: string;
  fits: boolean;
  needed: number;
  capacity: number | null;
  gpus: number;
  microseconds: number; // of one optimizer step; 0: not known
  tokens_per_second: number; // of one GPU
  exact: boolean; // false: from plays of the model with fewer layers; `needed` is then the least that it can be
}

export type Screened = Summary | { problem: Problem };

export interface Strategy {
  label: string;
  gpus: number;
  price: number; // millionths, of a GPU and hour; 0: none was given
  change: JsonObject; // of the spec
}

export interface Enumerated {
  strategies: Strategy[];
  left_out: { why: string; count: number; example: string }[];
}

export interface Ranked {
  order: number[]; // what fits, fastest first
  front: number[]; // no other is as good in time, memory and GPUs and better in one
  fewest_gpus: number | null;
  cheapest: number | null;
  unsettled: number[]; // to be estimated in full before any of this is believed
}

/** Algorithm 1 of the LLMem paper, by its own estimates: core/llmem/README.md. */
export type PaperMethod = 'cdp' | 'adp' | 'tp' | 'dp_tp';
export interface Paper {
  memory: number;
  choice: PaperMethod | 'offload';
  methods: { method: PaperMethod; largest_batch: number; score: number; peak: number; fits: boolean }[];
}

export interface Largest {
  largest: number; // 0: not even 1 fits
  there: Summary | null;
}

export interface Advised {
  now: Screened;
  advice: { label: string; change: JsonObject; changes_result: boolean; after: Summary }[];
}
