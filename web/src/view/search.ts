import type { Choice, JsonObject } from '../choice/choice';
import { settingsOf } from '../choice/spec';
import type { Enumerated, Ranked, Screened, Strategy, Summary } from '../core/search';

// A search: every strategy a little, some at a time, so that it tells how far it is and can be stopped. What comes out in front is then
// estimated in full, and what comes to the front instead is, too.

export interface Found {
  strategy: Strategy;
  summary: Summary;
}

export interface Search {
  strategies: Strategy[];
  screened: (Screened | undefined)[]; // by strategy
  done: number; // of them
  leftOut: Enumerated['left_out'];
  ranked: Ranked | undefined; // once all are screened and what is in front is exact
}

export interface Asks {
  enumerate(question: object): Promise<Enumerated>;
  /** Several questions beside each other; `each` hears of them in any order. */
  screen(questions: readonly object[], each: (index: number, screened: Screened[]) => void): Promise<void>;
  rank(all: readonly object[]): Promise<Ranked>;
}

// The stages of a pipeline that play the same are played once where they are asked for together.
const AT_A_TIME = 96;

export async function searchFor(spec: JsonObject, question: object, asks: Asks, told: (search: Search) => void): Promise<Search> {
  const { strategies, left_out: leftOut } = await asks.enumerate({ ...question, spec });
  const screened: (Screened | undefined)[] = strategies.map(() => undefined);
  const tell = (ranked?: Ranked): Search => {
    const search = { strategies, screened: [...screened], done: screened.filter(Boolean).length, leftOut, ranked };
    told(search);
    return search;
  };
  tell();
  const starts = Array.from({ length: Math.ceil(strategies.length / AT_A_TIME) }, (_, index) => index * AT_A_TIME);
  const changes = (from: number, to: number) => strategies.slice(from, to).map(({ change }) => change);
  await asks.screen(
    starts.map((from) => ({ spec, changes: changes(from, from + AT_A_TIME) })),
    (index, some) => {
      some.forEach((one, at) => (screened[(starts[index] ?? 0) + at] = one));
      tell();
    },
  );
  const rank = () => asks.rank(screened.map((one, index) => ({ ...one, price: strategies[index]?.price ?? 0 })));
  let ranked = await rank();
  while (ranked.unsettled.length > 0) {
    const groups = beside(ranked.unsettled, strategies);
    await asks.screen(
      groups.map((group) => ({ spec, changes: group.map((index) => strategies[index]?.change), whole: true })),
      (at, some) => some.forEach((one, within) => (screened[groups[at]?.[within] ?? 0] = one)),
    );
    ranked = await rank();
  }
  return tell(ranked);
}

/** Those that differ in the kind of GPU alone, which stand beside each other: the core plays such once where they are asked for together. */
function beside(indices: readonly number[], strategies: readonly Strategy[]): number[][] {
  const groups = new Map<string, number[]>();
  for (const index of indices) {
    const { cluster, ...rest } = strategies[index]?.change ?? {};
    const key = JSON.stringify([rest, isObject(cluster) && { ...cluster, gpu: null }]);
    groups.set(key, [...(groups.get(key) ?? []), index]);
  }
  return [...groups.values()];
}

/** What fits, fastest first: as the core ranks it, and before that by what is known so far. */
export function foundOf({ strategies, screened, ranked }: Search): Found[] {
  const at = (index: number): Found[] => {
    const strategy = strategies[index];
    const summary = screened[index];
    return strategy && summary && !('problem' in summary) && summary.fits ? [{ strategy, summary }] : [];
  };
  if (ranked) return ranked.order.flatMap(at);
  return strategies.flatMap((_, index) => at(index)).sort((a, b) => speedOf(b.summary) - speedOf(a.summary));
}

/** How many were found not to fit. */
export function failedOf({ screened }: Search): number {
  return screened.filter((one) => one && !('problem' in one) && !one.fits).length;
}

/** What was left out: before it was tried, and when it was. */
export function leftOutOf({ leftOut, strategies, screened }: Search): Search['leftOut'] {
  const all = leftOut.map((one) => ({ ...one }));
  screened.forEach((one, index) => {
    if (!one || !('problem' in one)) return;
    const known = all.find(({ why }) => why === one.problem.message);
    if (known) known.count += 1;
    else all.push({ why: one.problem.message, count: 1, example: strategies[index]?.label ?? '' });
  });
  return all;
}

/** Money for a million tokens; undefined: no price or no speed is known. */
export function costOf({ strategy, summary }: Found): number | undefined {
  if (strategy.price === 0 || summary.tokens_per_second === 0) return undefined;
  return strategy.price / 3600 / summary.tokens_per_second;
}

/** "8, 16, 64" → numbers; undefined where it does not read. */
export function countsOf(text: string): number[] | undefined {
  const numbers = text.split(/[\s,;]+/).filter(Boolean).map(Number);
  return numbers.length > 0 && numbers.every((n) => Number.isInteger(n) && n >= 1) ? [...new Set(numbers)] : undefined;
}

/** "h100-sxm-80gb 2.5, l40s 0.8" → prices by id; undefined where it does not read. `known`: the ids there are. */
export function pricesOf(text: string, known: readonly string[]): Record<string, number> | undefined {
  const prices: Record<string, number> = {};
  for (const part of text.split(/[,;\n]+/).filter((one) => one.trim() !== '')) {
    const [, id = '', price = ''] = /^\s*([^\s:=]+)[\s:=]+([\d.]+)\s*$/.exec(part) ?? [];
    if (!known.includes(id.toLowerCase()) || !(Number(price) > 0)) return undefined;
    prices[id.toLowerCase()] = Number(price);
  }
  return prices;
}

/** Tokens a second, of all GPUs. */
export function speedOf({ tokens_per_second, gpus }: Summary): number {
  return tokens_per_second * gpus;
}

/** A spec with a change: its `parallel` is replaced, other sections member by member. */
export function changed(spec: JsonObject, change: JsonObject): JsonObject {
  const out: JsonObject = { ...spec };
  for (const [section, value] of Object.entries(change)) {
    const before = out[section];
    const merge = section !== 'parallel' && isObject(before) && isObject(value);
    out[section] = merge ? { ...before, ...value } : value;
  }
  return out;
}

/** The choice that asks for a changed spec. */
export function choiceOf(choice: Choice, spec: JsonObject, change: JsonObject): Choice {
  const { settings } = settingsOf(changed(spec, change));
  // Where the spec names no node it is as large as it was.
  return { ...choice, settings: { ...settings, gpus_per_node: choice.settings.gpus_per_node, nodes: null } };
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
