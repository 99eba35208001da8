import type { Choice, JsonObject } from '../choice/choice';
import { settingsOf } from '../choice/spec';
import type { Enumerated, Ranked, Screened, Strategy, Summary } from '../core/search';

// A search: every strategy a little, some at a time, so that it tells how far it is and can be stopped.

export interface Found {
  strategy: Strategy;
  summary: Summary;
}

export interface Search {
  strategies: Strategy[];
  screened: Screened[]; // of the first so many
  leftOut: Enumerated['left_out'];
  ranked: Ranked | undefined; // once all are screened
}

export interface Asks {
  enumerate(question: object): Promise<Enumerated>;
  screen(question: object): Promise<Screened[]>;
  rank(all: readonly Screened[]): Promise<Ranked>;
}

const AT_A_TIME = 4;

export async function searchFor(spec: JsonObject, question: object, asks: Asks, told: (search: Search) => void): Promise<Search> {
  const { strategies, left_out: leftOut } = await asks.enumerate({ ...question, spec });
  let search: Search = { strategies, screened: [], leftOut, ranked: undefined };
  told(search);
  for (let from = 0; from < strategies.length; from += AT_A_TIME) {
    const changes = strategies.slice(from, from + AT_A_TIME).map(({ change }) => change);
    const screened = await asks.screen({ spec, changes });
    search = { ...search, screened: [...search.screened, ...screened] };
    told(search);
  }
  return { ...search, ranked: await asks.rank(search.screened) };
}

/** What fits, fastest first: as the core ranks it, and before that by what is known so far. */
export function foundOf({ strategies, screened, ranked }: Search): Found[] {
  const all = strategies.flatMap((strategy, index): (Found & { index: number })[] => {
    const summary = screened[index];
    return summary && !('problem' in summary) ? [{ strategy, summary, index }] : [];
  });
  if (!ranked) return all.filter(({ summary }) => summary.fits).sort((a, b) => speedOf(b.summary) - speedOf(a.summary));
  return ranked.order.flatMap((index) => all.filter((one) => one.index === index));
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
