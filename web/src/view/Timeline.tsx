import { useSignal } from '@preact/signals';
import { scaleLinear } from 'd3-scale';
import { area, curveStepAfter, line, stack, stackOrderNone } from 'd3-shape';
import { useRef } from 'preact/hooks';
import { askCore, presentSpec } from '../aside';
import { isStaged, type Method } from '../choice/methods';
import type { Category, RankReport } from '../core/answer';
import type { Sample, Timeline as Data } from '../core/timeline';
import { ledger as ledgerText, timeline as text } from '../text/views';
import { choice } from '../store';
import { Swatch } from './Bars';
import { categories, categoryOf } from './categories';
import { ChartExports, useWidth, Waiting } from './Chart';
import { count, exactBytes, GIB, gib, pointName } from './format';
import { LedgerTree, tensorsAt } from './Ledger';
import { entriesOf } from './ledgerTree';
import { Points } from './Points';
import { present, useAsked } from './useAnswer';

const HEIGHT = 300; // px, of the drawing
const LEFT = 44;
const TOP = 18;
const BOTTOM = 34;
const SAMPLES = 480;
const LETTER = 6.4; // px, about, of a phase's name

interface Window {
  from: number;
  to: number;
}

/** One run of the step: what is allocated by category, and what is reserved, in the order of the allocations. */
export default function Timeline({ rank, method }: { rank: RankReport; method: Method }) {
  const picked = useSignal<number | undefined>(undefined); // a stage of the pipeline; none: the one that decides
  const staged = isStaged(method, choice.value.settings);
  const stage = picked.value ?? rank.ranks[0] ?? 0;
  const spec = presentSpec(method, staged ? stage : undefined) ?? '';
  const window = useSignal<Window | undefined>(undefined); // none: the whole run
  const asked = useAsked(`${JSON.stringify(window.value ?? null)} ${spec}`, async (signal) => {
    if (spec === '') return undefined;
    return askCore<Data>('timeline', [spec, { ...window.value, samples: SAMPLES }], signal);
  });
  const data = present(asked);
  if (asked.state === 'failed') return <p class="fault">{text.failed(asked.message)}</p>;
  return (
    <>
      {staged && <StageChoice stage={stage} of={choice.value.settings.gpus} onChoose={(to) => (picked.value = to)} />}
      {data && data.samples.length > 0 ? (
        <Drawing data={data} spec={spec} onZoom={(to) => (window.value = to)} zoomed={window.value !== undefined} />
      ) : (
        <div class="timeline-waits">
          <Waiting>{text.waits}</Waiting>
        </div>
      )}
      <Points rank={rank} />
    </>
  );
}

function StageChoice({ stage, of, onChoose }: { stage: number; of: number; onChoose: (stage: number) => void }) {
  return (
    <div class="timeline-tools">
      <label>
        {text.lane}{' '}
        <select value={String(stage)} onChange={(event) => onChoose(Number(event.currentTarget.value))}>
          {Array.from({ length: of }, (_, one) => (
            <option key={one} value={String(one)}>
              {one}
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

function Drawing({ data, spec, onZoom, zoomed }: { data: Data; spec: string; onZoom: (to: Window | undefined) => void; zoomed: boolean }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const svg = useRef<SVGSVGElement>(null);
  const cursor = useSignal<number | undefined>(undefined); // an event
  const drag = useSignal<{ from: number; to: number } | undefined>(undefined); // events
  const ledgerAt = useSignal<number | undefined>(undefined);

  const x = scaleLinear([data.from, data.to], [LEFT, Math.max(width, LEFT + 1)]);
  const most = Math.max(...data.samples.map(({ reserved }) => reserved), 1);
  const y = scaleLinear([0, most * 1.06], [HEIGHT - BOTTOM, TOP]);
  const at = cursor.value ?? (data.peak.event >= data.from && data.peak.event < data.to ? data.peak.event : data.from);
  const index = indexAt(data.samples, at);
  const sample = data.samples[index];
  const eventAt = (clientX: number) => {
    const left = frame.current?.getBoundingClientRect().left ?? 0;
    return Math.round(Math.min(data.to - 1, Math.max(data.from, x.invert(clientX - left))));
  };
  const zoomBy = (factor: number, around: number) => {
    const length = Math.max(8, Math.round((data.to - data.from) * factor));
    if (length >= data.events) return onZoom(undefined);
    const share = (around - data.from) / Math.max(1, data.to - data.from);
    const from = Math.min(data.events - length, Math.max(0, Math.round(around - share * length)));
    onZoom({ from, to: from + length });
  };
  const pan = (share: number) => {
    const length = data.to - data.from;
    const from = Math.min(data.events - length, Math.max(0, data.from + Math.round(share * length)));
    onZoom({ from, to: from + length });
  };
  const step = (by: number) => {
    const next = data.samples[Math.min(data.samples.length - 1, Math.max(0, index + by))];
    if (next) cursor.value = next.event;
  };
  const keys: Record<string, () => void> = {
    ArrowRight: () => step(1),
    ArrowLeft: () => step(-1),
    PageDown: () => pan(0.5),
    PageUp: () => pan(-0.5),
    Home: () => (cursor.value = data.samples[0]?.event),
    End: () => (cursor.value = data.samples.at(-1)?.event),
    '+': () => zoomBy(0.5, at),
    '=': () => zoomBy(0.5, at),
    '-': () => zoomBy(2, at),
    '0': () => onZoom(undefined),
    Escape: () => onZoom(undefined),
  };
  return (
    <>
      <div class="timeline-tools">
        <Phases data={data} onZoom={onZoom} />
        <button type="button" class="plain" onClick={() => (cursor.value = undefined)}>
          {text.toPeak}
        </button>
        <button type="button" class="plain" onClick={() => zoomBy(0.5, at)} aria-label={text.zoomIn}>
          {text.closer}
        </button>
        <button type="button" class="plain" disabled={!zoomed} onClick={() => onZoom(undefined)}>
          {text.wholeRun}
        </button>
      </div>
      <div
        ref={frame}
        class="timeline"
        role="slider"
        tabIndex={0}
        aria-label={text.name}
        aria-valuemin={data.from}
        aria-valuemax={data.to - 1}
        aria-valuenow={sample?.event ?? data.from}
        aria-valuetext={sample ? spoken(sample, data) : ''}
        onKeyDown={(event) => {
          const act = keys[event.key];
          if (!act || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          act();
        }}
        onPointerMove={(event) => {
          const now = eventAt(event.clientX);
          if (drag.value) drag.value = { from: drag.value.from, to: now };
          else if (event.pointerType === 'mouse') cursor.value = now;
        }}
        onPointerDown={(event) => {
          cursor.value = eventAt(event.clientX);
          if (event.pointerType !== 'mouse') return;
          event.currentTarget.setPointerCapture(event.pointerId);
          drag.value = { from: eventAt(event.clientX), to: eventAt(event.clientX) };
        }}
        onPointerUp={() => {
          const { from, to } = drag.value ?? { from: 0, to: 0 };
          drag.value = undefined;
          if (Math.abs(x(to) - x(from)) > 8) onZoom({ from: Math.min(from, to), to: Math.max(from, to) + 1 });
        }}
        onWheel={(event) => {
          if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls on
          event.preventDefault();
          zoomBy(event.deltaY > 0 ? 1.5 : 1 / 1.5, eventAt(event.clientX));
        }}
      >
        <svg ref={svg} width={width} height={HEIGHT} viewBox={`0 0 ${width || 1} ${HEIGHT}`} aria-hidden="true" class="timeline-drawing">
          <Layers data={data} x={x} y={y} />
          <path class="reserved-line" d={line<Sample>((one) => x(one.event), (one) => y(one.reserved)).curve(curveStepAfter)(extended(data)) ?? ''} />
          <PhaseMarks data={data} x={x} right={width} />
          {y.ticks(5).map((tick) => (
            <g key={tick} class="tick">
              <line x1={LEFT - 4} x2={LEFT} y1={y(tick)} y2={y(tick)} />
            </g>
          ))}
          {scaleLinear([0, (most * 1.06) / GIB], [HEIGHT - BOTTOM, TOP]).ticks(5).map((tick) => (
            <text key={tick} class="tick-name" x={LEFT - 7} y={y(tick * GIB)} text-anchor="end" dominant-baseline="central">
              {tick}
            </text>
          ))}
          <text class="tick-name" x={0} y={9}>
            GiB
          </text>
          {data.peak.event >= data.from && data.peak.event < data.to && (
            <g class="peak-mark">
              <circle cx={x(data.peak.event)} cy={y(data.peak.allocated)} r={4} />
              <text x={x(data.peak.event)} y={y(data.peak.allocated) - 8} text-anchor={x(data.peak.event) > width - 130 ? 'end' : 'middle'}>
                {text.peak(gib(data.peak.allocated))}
              </text>
            </g>
          )}
          {drag.value && <rect class="selection" x={Math.min(x(drag.value.from), x(drag.value.to))} width={Math.abs(x(drag.value.to) - x(drag.value.from))} y={TOP} height={HEIGHT - TOP - BOTTOM} />}
          {sample && <line class="cursor" x1={x(sample.event)} x2={x(sample.event)} y1={TOP} y2={HEIGHT - BOTTOM} />}
        </svg>
      </div>
      {sample && <Readout sample={sample} data={data} onLedger={() => (ledgerAt.value = ledgerAt.value === sample.event ? undefined : sample.event)} open={ledgerAt.value === sample.event} />}
      {ledgerAt.value !== undefined && <LedgerThen spec={spec} event={ledgerAt.value} />}
      <ul class="legend" aria-label={text.legend}>
        {drawn(data).map((key) => (
          <li key={key}>
            <Swatch category={key} /> {categoryOf(key).name}
          </li>
        ))}
        <li>
          <svg class="swatch" width={16} height={12} aria-hidden="true">
            <line class="reserved-line" x1={0} x2={16} y1={6} y2={6} />
          </svg>{' '}
          {text.reserved}
        </li>
      </ul>
      <p class="quiet">
        {text.how(count(data.events))}
      </p>
      <ChartExports name="llmem-timeline" svg={() => svg.current} table={() => table(data)} />
    </>
  );
}

/** Which categories there is anything of, in the order of the chart. */
function drawn(data: Data): Category[] {
  return categories.map(({ key }) => key).filter((key) => data.samples.some(({ held }) => (held[data.categories.indexOf(key)] ?? 0) > 0));
}

/** The last instant lasts to the end. */
function extended(data: Data): Sample[] {
  const last = data.samples.at(-1);
  return last ? [...data.samples, { ...last, event: data.to }] : [];
}

type Scale = (value: number) => number;

function Layers({ data, x, y }: { data: Data; x: Scale; y: Scale }) {
  const keys = drawn(data);
  const layers = stack<Sample, Category>()
    .keys(keys)
    .value((sample, key) => sample.held[data.categories.indexOf(key)] ?? 0)
    .order(stackOrderNone)(extended(data));
  const shape = area<(typeof layers)[number][number]>(
    (point) => x(point.data.event),
    (point) => y(point[0]),
    (point) => y(point[1]),
  ).curve(curveStepAfter);
  return (
    <>
      {layers.map((layer) => {
        const d = shape(layer) ?? '';
        return (
          <g key={layer.key} class={`cat-${layer.key}`}>
            <path class="fill thin" d={d} />
            <path class="texture" d={d} fill={`url(#texture-${layer.key})`} />
          </g>
        );
      })}
    </>
  );
}

interface Stretch {
  name: string;
  from: number;
  to: number;
}

function stretches(data: Data): Stretch[] {
  return data.phases.map(({ name, from }, index) => ({ name, from, to: data.phases[index + 1]?.from ?? data.events }));
}

function PhaseMarks({ data, x, right }: { data: Data; x: Scale; right: number }) {
  return (
    <>
      {stretches(data)
        .filter(({ from, to }) => to > data.from && from < data.to)
        .map(({ name, from, to }, index) => {
          const left = x(Math.max(from, data.from));
          const room = Math.min(right, x(Math.min(to, data.to))) - left;
          const short = pointName(name).replace(/^Step (\d+), /, index === 0 || name.endsWith('forward0') ? '$1: ' : '');
          return (
            <g key={`${name} ${from}`} class="phase">
              <line x1={left} x2={left} y1={TOP} y2={HEIGHT - BOTTOM + 6} />
              {short.length * LETTER < room && (
                <text x={left + 4} y={HEIGHT - BOTTOM + 16}>
                  {short}
                </text>
              )}
            </g>
          );
        })}
    </>
  );
}

function Phases({ data, onZoom }: { data: Data; onZoom: (to: Window | undefined) => void }) {
  const list = stretches(data);
  const steps = [...new Set(list.flatMap(({ name }) => /^step(\d+)\./.exec(name)?.[1] ?? []))];
  const within = (prefix: string): Window | undefined => {
    const own = list.filter(({ name }) => name.startsWith(prefix));
    const first = own[0];
    return first && { from: first.from, to: own.at(-1)?.to ?? first.to };
  };
  return (
    <label>
      {text.show}{' '}
      <select
        onChange={(event) => {
          const { value } = event.currentTarget;
          onZoom(value === '' ? undefined : within(value));
        }}
      >
        <option value="">{text.whole}</option>
        <option value="loaded">{text.loading}</option>
        {steps.map((step) => (
          <option key={step} value={`step${step}.`}>
            {text.step(step)}
          </option>
        ))}
        {list
          .filter(({ name }) => name !== 'loaded')
          .map(({ name }) => (
            <option key={name} value={name}>
              {pointName(name)}
            </option>
          ))}
      </select>
    </label>
  );
}

function phaseAt(data: Data, event: number): string {
  return stretches(data).findLast(({ from }) => from <= event)?.name ?? '';
}

function spoken(sample: Sample, data: Data): string {
  const { allocated, reserved } = sample;
  const then = `${pointName(phaseAt(data, sample.event))}, ${text.event(count(sample.event))}`;
  return `${then}: ${text.allocated(gib(allocated))}, ${text.reservedThen(gib(reserved))}. ${happened(sample)}`;
}

function happened({ do: what, bytes, module, op, shape, dtype, until }: Sample): string {
  const tensor = shape.length > 0 ? `[${shape.join(', ')}] ${dtype}, ` : '';
  const made = op || text.aTensor;
  const name = module ? text.of(made, module) : made;
  if (what === 'free') return text.frees(name, tensor + size(bytes));
  return text.allocates(name, tensor + size(bytes), until === null ? text.stays : text.lives(count(until)));
}

function size(bytes: number): string {
  return bytes >= 2 ** 20 ? `${count(Math.round((bytes / 2 ** 20) * 10) / 10)} MiB` : `${count(bytes)} bytes`;
}

function Readout({ sample, data, onLedger, open }: { sample: Sample; data: Data; onLedger: () => void; open: boolean }) {
  return (
    <div class="readout">
      <p>
        <strong>{pointName(phaseAt(data, sample.event))}</strong>, {text.event(count(sample.event))}: <span title={exactBytes(sample.allocated)}>{text.allocated(gib(sample.allocated))}</span>,{' '}
        <span title={exactBytes(sample.reserved)}>{text.reservedThen(gib(sample.reserved))}</span>.{' '}
        <button type="button" class="plain" aria-expanded={open} onClick={onLedger}>
          {text.ledger}
        </button>
      </p>
      <p class="quiet">{happened(sample)}</p>
    </div>
  );
}

function LedgerThen({ spec, event }: { spec: string; event: number }) {
  const asked = useAsked(`${event} ${spec}`, (signal) => tensorsAt(spec, event, signal));
  const tensors = present(asked);
  if (!tensors) return <Waiting>{text.looking(count(event))}</Waiting>;
  const ledger = entriesOf(tensors);
  const bytes = ledger.reduce((sum, entry) => sum + entry.bytes, 0);
  return <LedgerTree title={ledgerText.at(count(event))} ledger={ledger} tensors={tensors} total={{ name: ledgerText.totalAllocated, bytes }} />;
}

function indexAt(samples: readonly Sample[], event: number): number {
  let low = 0;
  let high = samples.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((samples[middle]?.event ?? 0) <= event) low = middle;
    else high = middle - 1;
  }
  return low;
}

function table(data: Data): string[][] {
  return [
    ['event', 'phase', 'allocated', 'reserved', ...data.categories],
    ...data.samples.map((sample) => [String(sample.event), phaseAt(data, sample.event), String(sample.allocated), String(sample.reserved), ...sample.held.map(String)]),
  ];
}
