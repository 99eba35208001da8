import type { Category, LedgerEntry } from '../core/answer';
import type { TensorRow } from '../core/timeline';
import { count as grouped } from './format';

// The ledger as a tree: category → module → tensors of one kind. Each level sums to the one above it.

export interface Leaf {
  op: string;
  count: number;
  bytes: number;
  tensor: TensorRow | undefined; // its shape and what was asked for, where that is known
}

export interface ModuleNode {
  module: string;
  bytes: number;
  count: number;
  leaves: Leaf[];
}

export type Order = 'size' | 'name';

/** `tensors`: of the same instant, with shapes; undefined while they are on their way. `find`: a part of a module's or an op's name. */
export function modulesOf(entry: LedgerEntry, tensors: readonly TensorRow[] | undefined, find: string, order: Order): ModuleNode[] {
  const nodes = new Map<string, ModuleNode>();
  const words = find.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { module, ...leaf } of leavesOf(entry, tensors)) {
    if (!words.every((word) => `${module} ${leaf.op}`.toLowerCase().includes(word))) continue;
    const node = nodes.get(module) ?? { module, bytes: 0, count: 0, leaves: [] };
    nodes.set(module, { module, bytes: node.bytes + leaf.bytes, count: node.count + leaf.count, leaves: [...node.leaves, leaf] });
  }
  const sorted = [...nodes.values()].map((node) => ({ ...node, leaves: node.leaves.toSorted((a, b) => b.bytes - a.bytes) }));
  return order === 'size' ? sorted.toSorted((a, b) => b.bytes - a.bytes) : sorted.toSorted((a, b) => a.module.localeCompare(b.module, 'en'));
}

function leavesOf(entry: LedgerEntry, tensors: readonly TensorRow[] | undefined): (Leaf & { module: string })[] {
  const own = tensors?.filter(({ category }) => category === entry.category) ?? [];
  if (own.length > 0) return own.map((tensor) => ({ module: tensor.module, op: tensor.op, count: tensor.count, bytes: tensor.bytes, tensor }));
  return entry.rows.map((row) => ({ ...row, tensor: undefined }));
}

/** An instant's ledger by category, from its tensors alone. */
export function entriesOf(tensors: readonly TensorRow[]): LedgerEntry[] {
  const entries = new Map<Category, LedgerEntry>();
  for (const { category, module, op, count, bytes } of tensors) {
    const entry = entries.get(category) ?? { category, bytes: 0, rows: [] };
    entries.set(category, { category, bytes: entry.bytes + bytes, rows: [...entry.rows, { module, op, count, bytes }] });
  }
  return [...entries.values()];
}

const BYTES: Record<string, number> = { float64: 8, int64: 8, float32: 4, int32: 4, bfloat16: 2, float16: 2, int8: 1, uint8: 1, boolean: 1, bool: 1 };

/** "32 × 2 × 4096 × 14336 × 2 bytes": the arithmetic behind what was asked for; undefined for bytes of no shape. */
export function arithmetic({ shape, dtype, count }: TensorRow): string | undefined {
  const size = BYTES[dtype];
  if (shape.length === 0 || size === undefined) return undefined;
  return [...(count > 1 ? [count] : []), ...shape].map(grouped).join(' × ') + ` × ${size} ${size === 1 ? 'byte' : 'bytes'}`;
}
