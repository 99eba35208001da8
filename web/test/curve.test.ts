import { expect, it } from 'vitest';
import { arrival } from '../src/choice/choice';
import { between, firstValues, limitOf, moved, walk, type Axis, type CurvePoint } from '../src/view/curve';

/** Memory that grows along the axis and fits up to a value. */
function answers(upTo: number, asked: number[] = []) {
  return (value: number): Promise<CurvePoint> => {
    asked.push(value);
    return Promise.resolve({ value, needed: value, capacity: upTo, fits: value <= upTo, status: value <= upTo ? 'fits' : 'does_not_fit' });
  };
}

it.each([
  ['micro_batch', 1],
  ['micro_batch', 13],
  ['micro_batch', 511],
  ['sequence', 4096 + 128],
  ['sequence', 99_968],
] as [Axis, number][])('the last %s that fits is found exactly: %i', async (axis, upTo) => {
  const asked: number[] = [];
  const curve = await walk(axis, firstValues(axis, arrival().settings, limitOf(axis, 131_072)), answers(upTo, asked), () => undefined);
  expect(curve.last).toBe(upTo);
  expect(asked.length).toBeLessThan(30);
  expect(curve.points.map(({ value }) => value)).toEqual([...curve.points.map(({ value }) => value)].sort((a, b) => a - b));
});

it('where everything fits there is no last value', async () => {
  const curve = await walk('micro_batch', [1, 2, 4], answers(100), () => undefined);
  expect(curve.last).toBeUndefined();
  expect(curve.points).toHaveLength(3);
});

it('of GPUs the fewest that fit count', async () => {
  const at = (value: number): Promise<CurvePoint> =>
    Promise.resolve({ value, needed: 100 / value, capacity: 30, fits: value >= 4, status: value >= 4 ? 'fits' : 'does_not_fit' });
  expect(await walk('gpus', [2, 4, 8], at, () => undefined)).toMatchObject({ least: 4 });
});

it('values without an answer are left out', async () => {
  const curve = await walk('gpus', [2, 3, 4], (value) => (value === 3 ? Promise.resolve(undefined) : answers(9)(value)), () => undefined);
  expect(curve.points.map(({ value }) => value)).toEqual([2, 4]);
});

it('sequences are tried in steps of 128', () => {
  expect(between('sequence', 4096, 8192)).toBe(6144);
  expect(between('sequence', 4096, 4224)).toBeUndefined();
});

it('a method that a value rules out is not asked', () => {
  expect(moved(arrival(), 'fsdp2', 'gpus', 1)).toBeUndefined();
  expect(moved(arrival(), 'fsdp2', 'gpus', 4)?.settings.gpus).toBe(4);
});
