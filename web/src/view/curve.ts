import type { Choice } from '../choice/choice';
import { withSetting, type FieldKey, type Settings } from '../choice/fields';
import { whyNot, type Method } from '../choice/methods';
import type { Status } from '../core/answer';

// Memory against one setting: doubled until it does not fit, then narrowed down to the last value that does.

export type Axis = Extract<FieldKey, 'micro_batch' | 'sequence' | 'gpus' | 'lora_rank'>;

export interface CurvePoint {
  value: number;
  needed: number; // bytes
  capacity: number | null;
  fits: boolean;
  status: Status;
}

export interface Curve {
  axis: Axis;
  points: CurvePoint[]; // by value
  last: number | undefined; // the largest value tried that fits, with one step more that does not
  least: number | undefined; // of GPUs: the smallest that fits
}

const DOUBLINGS = 11;
const SEQUENCE_STEP = 128; // tokens: what sequences are cut to, mostly

/** The values that a curve begins with. */
export function firstValues(axis: Axis, settings: Settings, most: number): number[] {
  const from = axis === 'sequence' ? 256 : axis === 'gpus' ? 2 : axis === 'lora_rank' ? 4 : 1;
  const values = Array.from({ length: DOUBLINGS }, (_, power) => from * 2 ** power).filter((value) => value <= most);
  return [...new Set([...values, settings[axis]])].filter((value) => value <= most).sort((a, b) => a - b);
}

export function limitOf(axis: Axis, longest: number | undefined): number {
  return axis === 'sequence' ? Math.max(longest ?? 131_072, 2048) : axis === 'gpus' ? 512 : axis === 'lora_rank' ? 1024 : 512;
}

/** The value between two to try next; undefined where nothing is between them. */
export function between(axis: Axis, fits: number, fails: number): number | undefined {
  const step = axis === 'sequence' ? SEQUENCE_STEP : 1;
  const middle = Math.floor((fits + fails) / 2 / step) * step;
  return middle > fits && middle < fails ? middle : undefined;
}

/** The choice with another value on an axis; undefined where it makes no sense under the method. */
export function moved(choice: Choice, method: Method, axis: Axis, value: number): Choice | undefined {
  const settings = withSetting(choice.settings, axis, String(value));
  return settings && !whyNot(method, settings) ? { ...choice, settings } : undefined;
}

/** Walks along the axis; `at` gives a point, or undefined where there is no answer. Tells of every point as it comes. */
export async function walk(
  axis: Axis,
  values: readonly number[],
  at: (value: number) => Promise<CurvePoint | undefined>,
  told: (points: CurvePoint[], done: number, of: number) => void,
): Promise<Curve> {
  const points: CurvePoint[] = [];
  let beyond = 0;
  for (const [index, value] of values.entries()) {
    // Two values that do not fit show where it goes; more GPUs may fit where fewer did not.
    if (beyond >= 2 && axis !== 'gpus') break;
    const point = await at(value);
    if (point) points.push(point);
    if (point && !point.fits) beyond += 1;
    told([...points], index + 1, values.length);
  }
  if (axis !== 'gpus') await narrow(axis, points, at, told);
  const fitting = points.filter(({ fits }) => fits).map(({ value }) => value);
  const failing = points.filter(({ fits }) => !fits).map(({ value }) => value);
  const last = fitting.length > 0 && failing.length > 0 ? Math.max(...fitting) : undefined;
  return { axis, points, last, least: axis === 'gpus' && fitting.length > 0 ? Math.min(...fitting) : undefined };
}

async function narrow(axis: Axis, points: CurvePoint[], at: (value: number) => Promise<CurvePoint | undefined>, told: (points: CurvePoint[], done: number, of: number) => void): Promise<void> {
  for (;;) {
    const fits = Math.max(0, ...points.filter((point) => point.fits).map(({ value }) => value));
    const fails = Math.min(...points.filter((point) => !point.fits).map(({ value }) => value));
    const value = fits > 0 && Number.isFinite(fails) ? between(axis, fits, fails) : undefined;
    const point = value === undefined ? undefined : await at(value);
    if (!point) return;
    points.push(point);
    points.sort((a, b) => a.value - b.value);
    told([...points], points.length, points.length + Math.ceil(Math.log2(Math.max(1, fails - fits))));
  }
}
