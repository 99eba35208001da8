import { expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import type { LedgerEntry, Report } from '../src/core/answer';
import { combined } from '../src/core/combined';
import type { TensorRow } from '../src/core/timeline';
import { changes, differences, type Run } from '../src/view/compareRows';
import { arithmetic, entriesOf, modulesOf } from '../src/view/ledgerTree';

const tensor = (over: Partial<TensorRow>): TensorRow => ({ category: 'mlp', module: 'model.layers.*.mlp', op: 'silu', shape: [2, 3], dtype: 'bfloat16', count: 4, asked: 48, bytes: 2048, ...over });
const rows = [tensor({}), tensor({ op: 'mul', bytes: 4096 }), tensor({ module: 'lm_head', op: 'mm', bytes: 512, count: 1 }), tensor({ category: 'weights', op: 'parameter', bytes: 512 })];
const entry = (category: string): LedgerEntry => entriesOf(rows).find((one) => one.category === category) as LedgerEntry;

it('each level of the ledger sums to the one above it', () => {
  const modules = modulesOf(entry('mlp'), rows, '', 'size');
  expect(modules.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(entry('mlp').bytes);
  for (const module of modules) expect(module.leaves.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(module.bytes);
  expect(modules.map(({ module }) => module)).toEqual(['model.layers.*.mlp', 'lm_head']);
  expect(modulesOf(entry('mlp'), undefined, '', 'name').map(({ module }) => module)).toEqual(['lm_head', 'model.layers.*.mlp']);
});

it('is searched by parts of modules and ops', () => {
  expect(modulesOf(entry('mlp'), rows, 'layers MUL', 'size').map(({ bytes }) => bytes)).toEqual([4096]);
  expect(modulesOf(entry('mlp'), rows, 'nothing', 'size')).toEqual([]);
});

it('shows its arithmetic, which comes to what was asked for', () => {
  expect(arithmetic(tensor({}))).toBe('4 × 2 × 3 × 2 bytes');
  expect(arithmetic(tensor({ shape: [] }))).toBeUndefined();
  const [count = 0, ...sizes] = [4, 2, 3, 2];
  expect(sizes.reduce((product, size) => product * size, count)).toBe(tensor({}).asked);
});

const report = (needed: number, ledger: LedgerEntry[], rank = 0): Report =>
  ({ verdict: { needed, rank, status: 'fits', sentence: `${needed}` }, ranks: [{ ranks: [0], ledger, device_total: needed }] }) as unknown as Report;

it('the stage that needs most speaks for a pipeline', () => {
  const answer = combined([
    { kind: 'report', report: report(5, [], 0) },
    { kind: 'report', report: report(9, [], 7) },
  ]);
  expect(answer.kind === 'report' && answer.report.verdict.sentence).toBe('9');
  expect(answer.kind === 'report' && answer.report.ranks.map(({ ranks }) => ranks)).toEqual([[0], [7]]);
  expect(combined([{ kind: 'report', report: report(5, []) }, { kind: 'problems', problems: [] }]).kind).toBe('problems');
});

it('two runs differ row by row, and say what was changed', () => {
  const run = (one: Report, over: object): Run => ({ name: 'FSDP2 × 8', method: 'fsdp2', report: one, choice: { ...arrival(), settings: { ...arrival().settings, ...over } } });
  const a = run(report(2560, [entry('weights'), entry('mlp')]), {});
  const b = run(report(512, [entry('weights')]), { checkpointing: 'full', micro_batch: 2 });
  expect(differences(a.report, b.report).map(({ key, before, after }) => [key, before, after])).toEqual([
    ['weights', 512, 512],
    ['mlp', 6656, 0],
  ]);
  expect(changes(a, b)).toEqual(['Micro-batch: 1 → 2', 'Checkpointing: none → full']);
});
