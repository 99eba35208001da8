import { computed, effect, signal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { assumed, methodName, methods, whyNot, type Method } from '../choice/methods';
import { decidingRank, type Category, type LedgerEntry, type Report } from '../core/answer';
import { busy, changeSettings, choice, fastestFirst, results, selected, speedOf, type Result } from '../store';
import { gpuName } from '../gpus';
import { bars as text, outcomes } from '../text/page';
import { categories, categoryOf } from './categories';
import { exactBytes, GIB, gib, perSecond, seconds } from './format';
import { Textures } from './Textures';

const BAR = 30; // px, its height
const MARGIN = 7; // px above and below, where only the capacity line is
const CAPACITY_LABEL = 18; // px, its height
const LETTER = 6.6; // px, about, of a label
const ROOM = 1.04; // the scale ends a little beyond what it shows

const width = signal(0); // px, of the chart

const reports = computed<Report[]>(() =>
  methods.flatMap((method) => {
    const { answer } = results.value[method];
    return answer?.kind === 'report' ? [answer.report] : [];
  }),
);
const capacity = computed(() => reports.value.find((report) => report.verdict.capacity !== null)?.verdict.capacity ?? null);

/** Bytes at the end of the scale. */
const extent = computed(() => ROOM * Math.max(capacity.value ?? 0, ...reports.value.map((report) => decidingRank(report).device_total), 1));

/** Bytes → px. */
function x(bytes: number): number {
  return (bytes / extent.value) * width.value;
}

/** As wide as the chart. The view box lets print, which lays out anew without asking, shrink all of them alike. */
function canvas(height: number) {
  return { width: width.value, height, viewBox: `0 0 ${width.value || 1} ${height}`, 'aria-hidden': true } as const;
}

/** One bar for each method: the bytes on each GPU at the peak, by category, against the card's capacity. */
export function Bars() {
  const chart = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = chart.current;
    if (!element) return undefined;
    // It calls once before the first paint, when the layout is there anyway.
    const observer = new ResizeObserver(() => (width.value = element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return (
    <section class="bars" aria-label={text.name}>
      <h2>{text.title}</h2>
      <Textures />
      <CapacityLabel />
      <div ref={chart} role="group" aria-label={text.methods}>
        {/* In an element of their own: they change places, and nothing else is to do so with them. */}
        <div>
          {shown.value.map((method) => (
            <Bar key={method} method={method} />
          ))}
        </div>
        <Axis />
      </div>
      <Absent />
      <Legend />
    </section>
  );
}

/** Which methods have a bar. It changes only when all answers are there, so that nothing moves while they come in. */
const shown = signal<Method[]>([]);
effect(() => {
  const { settings } = choice.value;
  const asked = methods.filter((method) => !whyNot(method, settings));
  if (busy.value) {
    if (shown.peek().length === 0) shown.value = asked;
  } else {
    const answered = fastestFirst(results.value).flatMap(({ method }) => (asked.includes(method) ? [method] : []));
    const refused = asked.some((method) => results.value[method].answer);
    shown.value = answered.length > 0 ? answered : refused ? asked.slice(0, 3) : asked;
  }
});

function Bar({ method }: { method: Method }) {
  const { settings } = choice.value;
  const result = results.value[method];
  if (result.answer?.kind !== 'report') {
    return (
      <div class={`bar empty${result.stale ? ' stale' : ''}`}>
        <div class="bar-head">
          <strong>{methodName(method, settings)}</strong>
          <span class="quiet">{absent(result)}</span>
        </div>
      </div>
    );
  }
  const { report } = result.answer;
  return (
    <button
      type="button"
      class={`bar${selected.value === method ? ' chosen' : ''}${result.stale ? ' stale' : ''}`}
      aria-pressed={selected.value === method}
      aria-label={spoken(method, report)}
      aria-describedby={`assumed-${method}`}
      onClick={() => changeSettings({ data: method })}
    >
      <span class="bar-head">
        <strong>{methodName(method, settings)}</strong>
        <Speed method={method} report={report} />
        <Outcome report={report} />
      </span>
      <Segments report={report} />
      <span class="quiet" id={`assumed-${method}`}>
        {assumed(method, settings)}
      </span>
    </button>
  );
}

/** The methods without a bar, each with the reason, in the core's words where it is the core's. */
function Absent() {
  const { settings } = choice.value;
  const reasons = new Map<string, string[]>();
  for (const method of methods) {
    if (shown.value.includes(method)) continue;
    const reason = whyNot(method, settings) ?? absent(results.value[method]);
    reasons.set(reason, [...(reasons.get(reason) ?? []), methodName(method, settings)]);
  }
  if (reasons.size === 0 || busy.value) return <div class="absent" />;
  const left = [...reasons.values()].flat().length;
  return (
    <details class="absent more">
      <summary>
        {text.more(left)}
      </summary>
      <dl>
        {[...reasons].map(([reason, names]) => (
          <div key={reason}>
            <dt>{names.join(', ')}</dt>
            <dd class="quiet">{reason}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function absent({ answer }: Result): string {
  if (answer?.kind === 'problems') return answer.problems.map(({ message }) => sentence(message)).join(' ');
  if (answer?.kind === 'crashed') return text.broke(answer.message);
  return text.notYet;
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}

/** How long a step takes, and how many tokens a second go through all GPUs. */
function Speed({ method, report }: { method: Method; report: Report }) {
  const { step_time: time } = report;
  if (!time) return null;
  return (
    <span class="quiet speed" title={text.stepRange(seconds(time.low_microseconds), seconds(time.high_microseconds))}>
      {text.step(seconds(time.microseconds), perSecond(speedOf(method, report)))}
    </span>
  );
}

function Outcome({ report }: { report: Report }) {
  const { status, needed, needed_high: most = needed } = report.verdict;
  const range = gib(most) === gib(needed) ? gib(needed) : `${gib(needed)}–${gib(most)}`;
  return (
    <span class={`outcome status-${status}`}>
      <span title={exactBytes(needed)}>{range} GiB</span> {outcomes[status]}
    </span>
  );
}

function spoken(method: Method, report: Report): string {
  const parts = decidingRank(report)
    .ledger.toSorted((a, b) => b.bytes - a.bytes)
    .slice(0, 4)
    .map(({ category, bytes }) => `${categoryOf(category).name} ${gib(bytes)}`);
  const { verdict } = report;
  return text.spoken(methodName(method, choice.value.settings), gib(verdict.needed), outcomes[verdict.status], parts.join(', '));
}

function Segments({ report }: { report: Report }) {
  const rank = decidingRank(report);
  const limit = capacity.value;
  const height = BAR + 2 * MARGIN;
  const segments = stacked(rank.ledger);
  return (
    <svg class="segments" {...canvas(height)}>
      {segments.map((segment) => (
        <Segment key={segment.category} {...segment} />
      ))}
      {limit !== null && rank.device_total > limit && (
        <rect class={`overflow status-${report.verdict.status}`} x={x(limit)} y={MARGIN} width={x(rank.device_total) - x(limit)} height={BAR} fill="url(#overflow)" />
      )}
      {limit !== null && <line class="capacity" x1={x(limit)} x2={x(limit)} y1={0} y2={height} />}
      {segments.map((segment) => (
        <Label key={segment.category} {...segment} />
      ))}
    </svg>
  );
}

interface Span {
  category: Category;
  from: number; // bytes
  to: number;
}

/** One after the other, in the order of the chart. */
function stacked(ledger: readonly LedgerEntry[]): Span[] {
  let to = 0;
  return categories.flatMap(({ key: category }) => {
    const bytes = ledger.find((entry) => entry.category === category)?.bytes ?? 0;
    const from = to;
    to += bytes;
    return bytes > 0 ? [{ category, from, to }] : [];
  });
}

function Segment({ category, from, to }: Span) {
  const box = { x: x(from), y: MARGIN, width: x(to) - x(from), height: BAR };
  return (
    <g class={`cat-${category}`}>
      <title>{`${categoryOf(category).name}: ${gib(to - from)} GiB (${exactBytes(to - from)})`}</title>
      <rect class="fill" {...box} />
      <rect class="texture" {...box} fill={`url(#texture-${category})`} />
    </g>
  );
}

/** Its name and number, or its name, if there is room: before the capacity line, or behind it. */
function Label({ category, from, to }: Span) {
  const { short } = categoryOf(category);
  const line = capacity.value;
  const parts = line !== null && from < line && line < to ? [[from, line] as const, [line, to] as const] : [[from, to] as const];
  const fitting = [`${short} ${gib(to - from)}`, short].flatMap((label) =>
    parts.flatMap(([begin, end]) => (label.length * LETTER <= x(end) - x(begin) - 10 ? [{ label, begin }] : [])),
  );
  const [{ label, begin } = { label: '', begin: 0 }] = fitting;
  if (label === '') return null;
  return (
    <text class={`cat-${category}`} x={x(begin) + 6} y={MARGIN + BAR / 2} dominant-baseline="central">
      {label}
    </text>
  );
}

function CapacityLabel() {
  const { memory, gpu } = choice.value.settings;
  const limit = capacity.value;
  if (limit === null) return busy.value ? <div class="capacity-label" aria-hidden="true"><svg {...canvas(CAPACITY_LABEL)} /></div> : null;
  const at = x(limit);
  const before = at > width.value / 2;
  return (
    <div class="capacity-label" title={exactBytes(limit)}>
      <svg {...canvas(CAPACITY_LABEL)}>
        <line class="capacity" x1={at} x2={at} y1={0} y2={18} />
        <text x={before ? at - 6 : at + 6} y={9} dominant-baseline="central" text-anchor={before ? 'end' : 'start'}>
          {memory === null ? text.capacity(gpuName(gpu), gib(limit)) : text.limit(gib(memory), gib(limit))}
        </text>
      </svg>
      <span class="spoken">{text.capacitySpoken(gib(limit))}</span>
    </div>
  );
}

/** In round numbers of GiB. */
function Axis() {
  if (reports.value.length === 0) return null;
  return (
    <svg class="axis" {...canvas(20)}>
      {roundNumbers(extent.value / GIB, Math.max(2, width.value / 90)).map((tick) => (
        <g key={tick} transform={`translate(${x(tick * GIB)},0)`}>
          <line y2={4} />
          <text y={15} text-anchor={tick === 0 ? 'start' : 'middle'}>
            {tick}
          </text>
        </g>
      ))}
    </svg>
  );
}

/** From 0 to `most`, about `about` of them, 1, 2 or 5 times a power of ten apart. */
function roundNumbers(most: number, about: number): number[] {
  const power = 10 ** Math.floor(Math.log10(most / about));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= most / about) ?? 10);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, index) => index * step);
}

/** Only what is in some bar. */
function Legend() {
  const shown = new Set(reports.value.flatMap((report) => decidingRank(report).ledger.map(({ category }) => category)));
  return (
    <ul class="legend" aria-label={text.categories}>
      {categories
        .filter(({ key }) => shown.has(key))
        .map(({ key, name, meaning }) => (
          <li key={key} title={meaning}>
            <Swatch category={key} /> {name}
          </li>
        ))}
    </ul>
  );
}

export function Swatch({ category }: { category: Category }) {
  return (
    <svg class={`swatch cat-${category}`} width={12} height={12} aria-hidden="true">
      <rect class="fill" width={12} height={12} />
      <rect class="texture" width={12} height={12} fill={`url(#texture-${category})`} />
    </svg>
  );
}
