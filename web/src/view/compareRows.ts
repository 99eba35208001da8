import { fieldKeys, settingText, type Settings } from '../choice/fields';
import { modelName, type Choice } from '../choice/choice';
import type { Method } from '../choice/methods';
import { decidingRank, type Report } from '../core/answer';
import { names } from '../text/names';
import { compare as text } from '../text/views';
import { categories, categoryOf } from './categories';

// Two runs, row by row.

export interface Run {
  name: string;
  choice: Choice;
  method: Method;
  report: Report;
}

export interface Difference {
  key: string;
  name: string;
  before: number; // bytes
  after: number;
  rows: Difference[]; // what it is made of
}

export function differences(before: Report, after: Report): Difference[] {
  const a = decidingRank(before).ledger;
  const b = decidingRank(after).ledger;
  return categories.flatMap(({ key }) => {
    const one = a.find(({ category }) => category === key);
    const other = b.find(({ category }) => category === key);
    if (!one && !other) return [];
    const rows = new Map<string, Difference>();
    const add = (side: 'before' | 'after') => (row: { module: string; op: string; bytes: number }) => {
      const name = `${row.module} ${row.op}`.trim();
      const known = rows.get(name) ?? { key: name, name, before: 0, after: 0, rows: [] };
      rows.set(name, { ...known, [side]: known[side] + row.bytes });
    };
    one?.rows.forEach(add('before'));
    other?.rows.forEach(add('after'));
    const sorted = [...rows.values()].sort((p, q) => Math.abs(q.after - q.before) - Math.abs(p.after - p.before));
    return [{ key, name: categoryOf(key).name, before: one?.bytes ?? 0, after: other?.bytes ?? 0, rows: sorted }];
  });
}

/** What was asked differently, in words. */
export function changes(before: Run, after: Run): string[] {
  const model = modelName(before.choice.model) === modelName(after.choice.model) ? [] : [text.model(modelName(before.choice.model), modelName(after.choice.model))];
  const method = before.name === after.name ? [] : [text.method(before.name, after.name)];
  return [...model, ...method, ...settingChanges(before.choice.settings, after.choice.settings)];
}

function settingChanges(before: Settings, after: Settings): string[] {
  return fieldKeys
    .filter((key) => key !== 'data' && before[key] !== after[key])
    .map((key) => `${names[key]}: ${settingText(before, key)} → ${settingText(after, key)}`);
}
