// An answer beside what was measured.
import { metrics, secondMetrics, units } from './tables.mjs';

const text = (value) => String(value ?? '').toLowerCase();

// Bytes that a published number may mean: a "GB" may be 1e9 or 2^30.
function range(value, unit) {
  const [low, high] = units[String(unit ?? '').split(' ')[0]] ?? units.GB;
  return /printed as gb/i.test(unit ?? '') ? [value * 2 ** 30, value * 2 ** 30] : [value * low, value * high];
}

function measuredRange(row) {
  if (Number.isFinite(row.value_gib_low) && Number.isFinite(row.value_gib_high)) {
    if (row.unit === 'bytes') return [row.value, row.value];
    return [row.value_gib_low * 2 ** 30, row.value_gib_high * 2 ** 30];
  }
  return range(row.value, row.unit);
}

// Everything that the row says was measured: [{metric, low, high, second}], the row's own first.
export function measurementsOf(row) {
  const own = metrics.find(([pattern]) => pattern.test(text(row.metric)))?.[1] ?? { metric: 'unstated' };
  const found = [];
  if (Number.isFinite(row.value) && row.value > 0) {
    const [low, high] = measuredRange(row);
    const first = /first iteration/.test(text(row.packing));  // the longest rows come first, and only there
    const firstStep = /only step 1 logged/.test(text(row.note));
    found.push({ ...own, low, high, second: false, first, firstStep, steady: /reset each|memory:/.test(text(row.metric)) });
  }
  for (const [name, value] of Object.entries(row.also ?? {})) {
    const metric = secondMetrics.find(([pattern]) => pattern.test(name.toLowerCase()))?.[1];
    if (!metric || !Number.isFinite(value) || value <= 0 || metric === own.metric) continue;
    if (own.metric === 'loaded' && metric !== 'allocated') continue;
    const [low, high] = range(value, /mib/i.test(name) ? 'MiB' : /gib/i.test(name) ? 'GiB' : /gb/i.test(name) ? 'GB' : 'bytes');
    found.push({ metric, low, high, second: true, steady: false, loaded: own.metric === 'loaded' });
  }
  return found;
}

// The rank that was read: the one that was asked for where the metric names one, else the one with the most.
function rankOf(report, row) {
  const rank = /last rank|last pp|rank.?0/.test(text(row.metric)) || Number.isInteger(row.parallel?.rank_shown);
  const wanted = rank ? report.ranks.find(({ ranks }) => ranks.includes(report.asked ?? 0)) : null;
  return wanted ?? report.ranks.reduce((most, each) => (each.device_total > most.device_total ? each : most));
}

function steadyPeak(rank, key) {
  const step = /^step(\d+)\./;
  const last = Math.max(...rank.points.map(({ at }) => Number(step.exec(at)?.[1] ?? -1)));
  const peaks = rank.points.filter(({ at }) => Number(step.exec(at)?.[1] ?? -1) === last).map((point) => point[key]);
  return Math.max(...peaks);
}

const firstPeak = (rank, key) => Math.max(...rank.points.filter(({ at }) => /^step0\./.test(at)).map((point) => point[key]));

function answered(rank, { metric, steady, loaded, first, firstStep }) {
  if (loaded) return rank.points[0]?.allocated;
  const backward = rank.points.find(({ at }) => at === 'step0.backward0');
  if (first && backward) return backward[metric === 'allocated' ? 'peak_allocated' : 'peak_reserved'];
  if (firstStep) return firstPeak(rank, metric === 'allocated' ? 'peak_allocated' : 'peak_reserved');
  switch (metric) {
    case 'loaded': return rank.points[0]?.reserved;
    case 'allocated': return steady ? steadyPeak(rank, 'peak_allocated') : rank.peak_allocated;
    case 'device': return rank.device_total;
    default: return steady ? steadyPeak(rank, 'peak_reserved') : rank.peak_reserved;
  }
}

// What it may be where memory that other streams have used comes back as late as it can; null: that has nothing to do with it.
function atMost(rank, { metric, steady, loaded, first }) {
  if (!rank.late || metric === 'allocated' || metric === 'loaded' || loaded || first) return null;
  return metric === 'device' ? rank.late.device_total : steady ? steadyPeak(rank.late, 'peak_reserved') : rank.late.peak_reserved;
}

// How far outside what was measured; 0 within it.
function errorOf(ours, { low, high }) {
  if (ours < low) return ours / low - 1;
  return ours > high ? ours / high - 1 : 0;
}

// "may not fit" says of itself that it does not know.
const ran = { fits: true, fits_barely: true, fits_after_retry: true, does_not_fit: false };

// {errors: [{metric, second, measured, ours, error}], verdict: 'right' | 'false fits' | 'false does not fit' | null}
export function score(row, report, gpuKnown, asked) {
  const rank = rankOf({ ...report, asked }, row);
  const errors = measurementsOf(row).map((measured) => {
    const ours = answered(rank, measured);
    const most = atMost(rank, measured), withinRange = most !== null && ours < measured.low && most >= measured.low;
    return { ...measured, measured: (measured.low + measured.high) / 2, ours, withinRange, error: errorOf(ours, measured) };
  });
  const says = gpuKnown ? ran[report.verdict.status] : undefined;
  const did = row.oom ? false : true;
  const verdict = says === undefined ? null : says === did ? 'right' : says ? 'false fits' : 'false does not fit';
  return { errors, verdict };
}

export function quantile(values, q) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)];
}
