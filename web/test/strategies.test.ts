import { expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import { specOf } from '../src/choice/spec';
import type { Screened, Summary } from '../src/core/search';
import { changed, choiceOf, foundOf, searchFor, type Asks, type Search } from '../src/view/search';

const summary = (over: Partial<Summary>): Summary => ({ status: 'fits', fits: true, needed: 1, capacity: 9, gpus: 8, microseconds: 1, tokens_per_second: 1, exact: true, ...over });
const strategies = ['a', 'b', 'c', 'd', 'e'].map((label) => ({ label, gpus: 8, change: { parallel: { data: { kind: 'ddp', degree: 8 } } } }));

it('a search screens some at a time, tells how far it is, and ranks at the end', async () => {
  const screened: Screened[] = [summary({ tokens_per_second: 1 }), summary({ fits: false }), summary({ tokens_per_second: 3 }), { problem: { at: '', code: '', message: 'no' } }, summary({ tokens_per_second: 2 })];
  const told: Search[] = [];
  let at = 0;
  const asks: Asks = {
    enumerate: () => Promise.resolve({ strategies, left_out: [] }),
    screen: (question) => Promise.resolve(screened.slice(at, (at += (question as { changes: unknown[] }).changes.length))),
    rank: (all) => Promise.resolve({ order: [2, 4, 0], front: [2], fewest_gpus: 0, cheapest: 0, all: all.length }),
  };
  const done = await searchFor({}, {}, asks, (search) => told.push(search));
  expect(told.map((search) => search.screened.length)).toEqual([0, 4, 5]);
  expect(foundOf(told[1] as Search).map(({ strategy }) => strategy.label)).toEqual(['c', 'a']);
  expect(foundOf(done).map(({ strategy }) => strategy.label)).toEqual(['c', 'e', 'a']);
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
