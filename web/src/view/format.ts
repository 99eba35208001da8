export const GIB = 2 ** 30;
const exact = new Intl.NumberFormat('en');
const three = new Intl.NumberFormat('en', { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });

/** GiB with three significant figures, without the unit. */
export function gib(bytes: number): string {
  const value = bytes / GIB;
  if (value !== 0 && Math.abs(value) < 0.001) return '< 0.001';
  return value === 0 ? '0' : value >= 1000 ? exact.format(Math.round(value)) : three.format(value);
}

export function exactBytes(bytes: number): string {
  return `${exact.format(bytes)} bytes`;
}

export function count(value: number): string {
  return exact.format(value);
}

/** 8030261248 → "8.03 B" */
export function parameterCount(value: number): string {
  return value >= 1e9 ? `${three.format(value / 1e9)} B` : `${three.format(value / 1e6)} M`;
}

/** "step0.forward0" → "Step 0, forward"; the micro-batch is named from the second on. */
export function pointName(at: string): string {
  const match = /^step(\d+)\.([a-z_]+?)(\d*)$/.exec(at);
  if (!match) return at === 'loaded' ? 'Loaded' : at;
  const [, step, phase = '', index = ''] = match;
  return `Step ${step}, ${phase.replace('_', ' ')}${index === '' || index === '0' ? '' : ` ${Number(index) + 1}`}`;
}

/** 2310000 → "2.31 s" */
export function seconds(microseconds: number): string {
  const value = microseconds / 1e6;
  if (value < 0.001) return `${three.format(microseconds)} µs`;
  return value < 1 ? `${three.format(value * 1000)} ms` : value < 1000 ? `${three.format(value)} s` : `${exact.format(Math.round(value))} s`;
}
