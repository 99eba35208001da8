import { expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import { specOf } from '../src/choice/spec';
import type { Screened, Summary } from '../src/core/search';
import type { Paper } from '../src/core/search';
import { paperQuestion, specUnder, whyDifferent } from '../src/view/paperChoice';
import { changed, choiceOf, costOf, countsOf, failedOf, foundOf, leftOutOf, pricesOf, searchFor, type Asks, type Search } from '../src/view/search';

const summary = (over: Partial<Summary>): Summary => ({ status: 'fits', fits: true, needed: 1, capacity: 9, gpus: 8, microseconds: 1, tokens_per_second: 1, exact: true, ...over });
const strategies = Array.from({ length: 100 }, (_, index) => ({ label: String(index), gpus: 8, price: 0, change: { parallel: { data: { kind: 'ddp', degree: index } } } }));
const indexOf = (change: unknown) => (change as { parallel: { data: { degree: number } } }).parallel.data.degree;

interface Question {
  changes: unknown[];
  whole?: boolean;
}

// A core in which strategy n has n tokens a second, odd ones do not fit, and 98 needs more in full than it seemed to.
function asksOf(questions: Question[]): Asks {
  const screened = (change: unknown, whole = false): Screened => {
    const n = indexOf(change);
    return summary({ tokens_per_second: n, needed: n, fits: n % 2 === 0 && !(whole && n === 98), exact: whole });
  };
  return {
    enumerate: () => Promise.resolve({ strategies, left_out: [] }),
    screen: (several, each) => {
      (several as Question[]).toReversed().forEach((question, index) => {
        questions.push(question);
        each(several.length - 1 - index, question.changes.map((change) => screened(change, question.whole)));
      });
      return Promise.resolve();
    },
    rank: (all) => {
      const known = all as Summary[];
      const order = known.map((_, index) => index).filter((index) => known[index]?.fits).reverse();
      const front = order.slice(0, 2);
      return Promise.resolve({ order, front, fewest_gpus: null, cheapest: null, unsettled: front.filter((index) => !known[index]?.exact) });
    },
  };
}

it('a search screens some at a time, tells how far it is, and estimates in full what comes to the front', async () => {
  const told: Search[] = [];
  const questions: Question[] = [];
  const done = await searchFor({}, {}, asksOf(questions), (search) => told.push(search));
  expect(told.map((search) => search.done)).toEqual([0, 4, 100, 100]);
  expect(told.slice(0, -1).every(({ ranked }) => ranked === undefined)).toBe(true);
  expect(foundOf(told[1] as Search).map(({ strategy }) => strategy.label)).toEqual(['98', '96']);
  expect(questions.filter(({ whole }) => whole).map(({ changes }) => indexOf(changes[0]))).toEqual([96, 98, 94]);
  expect(foundOf(done).slice(0, 3).map(({ strategy, summary: { exact } }) => [strategy.label, exact])).toEqual([['96', true], ['94', true], ['92', false]]);
  expect(failedOf(done)).toBe(51);
  const problem = (message: string): Screened => ({ problem: { at: '', code: '', message } });
  const wrong = { ...done, leftOut: [{ why: 'no', count: 2, example: 'x' }], screened: [problem('no'), problem('never'), problem('never')] };
  expect(leftOutOf(wrong)).toEqual([
    { why: 'no', count: 3, example: 'x' },
    { why: 'never', count: 2, example: '1' },
  ]);
});

it('what differs in the kind of GPU alone is estimated in full together', async () => {
  const kinds = ['a', 'b'].flatMap((gpu) => [1, 2].map((degree) => ({ label: `${gpu}${degree}`, gpus: 8, price: 1, change: { parallel: { degree }, cluster: { nodes: 1, gpu } } })));
  const whole: unknown[][] = [];
  const asks: Asks = {
    enumerate: () => Promise.resolve({ strategies: kinds, left_out: [] }),
    screen: (several, each) => {
      (several as Question[]).forEach((question, index) => {
        if (question.whole) whole.push(question.changes.map((change) => kinds.findIndex((one) => one.change === change)));
        each(index, question.changes.map((change) => summary({ exact: question.whole ?? false, needed: kinds.findIndex((one) => one.change === change) })));
      });
      return Promise.resolve();
    },
    rank: (all) => {
      const unsettled = (all as Summary[]).flatMap(({ exact }, index) => (exact ? [] : [index]));
      return Promise.resolve({ order: [0, 1, 2, 3], front: [0], fewest_gpus: null, cheapest: null, unsettled });
    },
  };
  const { screened } = await searchFor({}, {}, asks, () => undefined);
  expect(whole).toEqual([[0, 2], [1, 3]]);
  expect(screened.map((one) => (one as Summary).needed)).toEqual([0, 1, 2, 3]);
});

it('what is typed for a search is read, or not', () => {
  expect(countsOf('8, 16 64')).toEqual([8, 16, 64]);
  expect(countsOf('8, many')).toBeUndefined();
  expect(pricesOf('H100 2.5, l4: 0.8', ['h100', 'l4'])).toEqual({ h100: 2.5, l4: 0.8 });
  expect(pricesOf('', ['h100'])).toEqual({});
  for (const wrong of ['h100', 'h100 free', 'tpu 1', 'h100 0']) expect(pricesOf(wrong, ['h100'])).toBeUndefined();
});

it('a price an hour is one of a million tokens', () => {
  const strategy = { label: '', gpus: 8, price: 3_600_000, change: {} };
  expect(costOf({ strategy, summary: summary({ tokens_per_second: 1000 }) })).toBe(1); // 3.6 an hour, 3.6 million tokens
  expect(costOf({ strategy: { ...strategy, price: 0 }, summary: summary({}) })).toBeUndefined();
});

it('the paper’s methods become specs, and where its choice is another than ours it is said why', () => {
  const { settings } = arrival();
  expect(paperQuestion({ model: { name: 'm' } }, settings)).toEqual({ model: { name: 'm' }, gpu: 'h100-sxm-80gb', gpus: 8, sequence: settings.sequence });
  expect(specUnder({ training: { micro_batch: 2 } }, 'dp_tp', 8)).toMatchObject({ parallel: { data: { kind: 'fsdp2', degree: 4 }, tensor: { degree: 2 } }, training: { micro_batch: 2, checkpointing: 'full' } });
  const method = (name: 'cdp' | 'adp', largest_batch: number) => ({ method: name, largest_batch, score: 0, peak: 0, fits: true });
  const answer: Paper = { memory: 1, choice: 'cdp', methods: [method('cdp', 4), method('adp', 2)] };
  const sides = [
    { paper: method('cdp', 4), ours: { largest: 2, there: summary({ tokens_per_second: 10 }) } },
    { paper: method('adp', 2), ours: { largest: 3, there: summary({ tokens_per_second: 20 }) } },
  ];
  const why = whyDifferent(answer, sides, (name) => name);
  expect(why[0]).toContain('chooses cdp; the fastest here is adp');
  expect(why[1]).toContain('half as much again');
  expect(why.slice(2).map((one) => one.split(' batch is ')[0])).toEqual(['cdp: the paper’s', 'adp: the paper’s']);
  expect(whyDifferent({ ...answer, choice: 'offload' }, [], () => 'none')[0]).toContain('none of them fits');
});

it('a change replaces how the GPUs are used, and sets other members one by one', () => {
  const spec = { training: { micro_batch: 1, sequence: 2 }, parallel: { data: { kind: 'ddp' } } };
  expect(changed(spec, { parallel: { tensor: { degree: 2 } }, training: { micro_batch: 4 } })).toEqual({ training: { micro_batch: 4, sequence: 2 }, parallel: { tensor: { degree: 2 } } });
});

it('applying a change makes the page ask for just that', () => {
  const spec = specOf(arrival(), {}, 'ddp');
  const change = { training: { checkpointing: 'full', micro_batch: 4 }, parallel: { data: { kind: 'fsdp2', degree: 8 } } };
  const { settings, model } = choiceOf(arrival(), spec, change);
  expect(model).toEqual(arrival().model);
  expect(settings).toMatchObject({ data: 'fsdp2', gpus: 8, checkpointing: 'full', micro_batch: 4, gpu: 'h100-sxm-80gb' });
});
