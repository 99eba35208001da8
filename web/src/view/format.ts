export const GIB = 2 ** 30;

// Not by Intl.NumberFormat: the first one that a page makes takes the browser some 50 ms, more than all else in the first view.

/** 1234567 → "1,234,567" */
function exact(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Three significant figures: 1.5 → "1.50", 12345 → "12,300" */
function three(value: number): string {
  return Math.abs(value) < 999.5 ? value.toPrecision(3) : exact(Number(value.toPrecision(3)));
}

/** GiB with three significant figures, without the unit. */
export function gib(bytes: number): string {
  const value = bytes / GIB;
  if (value !== 0 && Math.abs(value) < 0.001) return '< 0.001';
  return value === 0 ? '0' : value >= 1000 ? exact(Math.round(value)) : three(value);
}

export function exactBytes(bytes: number): string {
  return `${exact(bytes)} bytes`;
}

/** Of an estimate of some 25 % either way: three significant figures. */
export function perSecond(tokens: number): string {
  return three(tokens);
}

export function count(value: number): string {
  return exact(value);
}

/** 8030261248 → "8.03 B" */
export function parameterCount(value: number): string {
  return value >= 1e9 ? `${three(value / 1e9)} B` : `${three(value / 1e6)} M`;
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
  if (value < 0.001) return `${three(microseconds)} µs`;
  return value < 1 ? `${three(value * 1000)} ms` : value < 1000 ? `${three(value)} s` : `${exact(Math.round(value))} s`;
}
