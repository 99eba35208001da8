import type { Category } from './answer';

// What happens along a step, as it crosses the door: core/report/README.md, in TypeScript.

export interface Timeline {
  events: number; // of the whole run
  from: number;
  to: number; // the last one excluded
  peak: { event: number; allocated: number };
  peak_reserved: { event: number; reserved: number };
  categories: Category[]; // the order of `held`
  phases: { name: string; from: number }[];
  samples: Sample[];
  ledger?: TensorRow[]; // where one was asked for
}

/** The fullest instant of a stretch of events, and what happened at it. */
export interface Sample {
  event: number;
  allocated: number;
  reserved: number;
  held: number[]; // by category; sums to `allocated`
  do: 'alloc' | 'free';
  bytes: number;
  module: string;
  op: string;
  category: Category;
  shape: number[];
  dtype: string;
  until: number | null; // the event that frees it
}

/** Tensors of one kind: made by one op of one module (numbers folded), of one shape. */
export interface TensorRow {
  category: Category;
  module: string;
  op: string;
  shape: number[]; // empty: bytes of no shape
  dtype: string;
  count: number;
  asked: number; // bytes, before the allocator's rounding
  bytes: number; // in whole blocks
}

export interface TimelineQuestion {
  from?: number;
  to?: number;
  samples?: number;
  ledger_at?: number;
}
