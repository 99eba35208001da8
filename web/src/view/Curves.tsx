import { useSignal } from '@preact/signals';
import { scaleLinear, scaleLog } from 'd3-scale';
import { line } from 'd3-shape';
import { useEffect, useRef } from 'preact/hooks';
import { askEstimate, specFor } from '../aside';
import { methodName, type Method } from '../choice/methods';
import { changeSettings, choice, config } from '../store';
import { names } from '../text/names';
import { outcomes } from '../text/page';
import { chart as chartText, curves as text } from '../text/views';
import { ChartExports, NumbersTable, useWidth, Waiting } from './Chart';
import { firstValues, limitOf, moved, walk, type Axis, type Curve, type CurvePoint } from './curve';
import { count, exactBytes, GIB, gib } from './format';

const HEIGHT = 260;
const LEFT = 44;
const RIGHT = 24;
const TOP = 22;
const BOTTOM = 30;

/** Memory against one setting at a time, with the last value that fits. */
export default function Curves({ method }: { method: Method }) {
  const axis = useSignal<Axis>('micro_batch');
  const curve = useSignal<Curve | undefined>(undefined);
  const progress = useSignal<{ done: number; of: number } | undefined>(undefined);
  const cancel = useRef<AbortController | undefined>(undefined);
  const { settings, model } = choice.value;
  const axes: Axis[] = ['micro_batch', 'sequence', ...(method === 'none' ? [] : (['gpus'] as Axis[])), ...(settings.method === 'lora' ? (['lora_rank'] as Axis[]) : [])];
  const along = axes.includes(axis.value) ? axis.value : 'micro_batch';
  // The value on the axis itself is no reason to ask again.
  const key = JSON.stringify([along, method, model, { ...settings, [along]: 0, data: 0 }, config.value.state]);

  const start = () => {
    cancel.current?.abort();
    const controller = new AbortController();
    cancel.current = controller;
    progress.value = { done: 0, of: 1 };
    const asked = choice.peek();
    const at = async (value: number): Promise<CurvePoint | undefined> => {
      const there = moved(asked, method, along, value);
      const spec = there && specFor(there, method);
      if (!spec) return undefined;
      const answer = await askEstimate(spec, controller.signal);
      if (answer.kind !== 'report') return undefined;
      const { needed, capacity, status } = answer.report.verdict;
      return { value, needed, capacity, status, fits: status.startsWith('fits') || status === 'unknown' };
    };
    curve.value = { axis: along, points: [], last: undefined, least: undefined };
    walk(along, firstValues(along, asked.settings, limitOf(along, longest())), at, (points, done, of) => {
      progress.value = { done, of };
      curve.value = { axis: along, points, last: undefined, least: undefined };
    }).then(
      (all) => {
        curve.value = all;
        progress.value = undefined;
      },
      () => (progress.value = undefined),
    );
  };
  useEffect(() => {
    start();
    return () => cancel.current?.abort();
  }, [key]);

  const running = progress.value;
  const drawn = curve.value;
  return (
    <>
      <fieldset class="choice">
        <legend>{text.against(methodName(method, settings))}</legend>
        {axes.map((one) => (
          <label key={one}>
            <input type="radio" name="axis" checked={one === along} onChange={() => (axis.value = one)} /> {names[one].toLowerCase()}
          </label>
        ))}
      </fieldset>
      {drawn && drawn.points.length > 0 && drawn.axis === along ? <Drawing curve={drawn} now={settings[along]} /> : <div class="curve-waits" />}
      <div class="curve-state">
        {running ? (
          <>
            <progress max={running.of} value={running.done} aria-label={text.done} /> <Waiting>{text.progress(running.done, running.of)}</Waiting>{' '}
            <button type="button" onClick={() => cancel.current?.abort()}>
              {chartText.cancel}
            </button>
          </>
        ) : (
          drawn && <Outcome curve={drawn} />
        )}
      </div>
    </>
  );
}

/** As far as the model goes, where its configuration says so. */
function longest(): number | undefined {
  const loaded = config.peek();
  const most = loaded.state === 'ready' ? loaded.config.max_position_embeddings : undefined;
  return typeof most === 'number' && most > 0 ? most : undefined;
}

function Outcome({ curve }: { curve: Curve }) {
  const { points, last, least, axis } = curve;
  const name = names[axis].toLowerCase();
  const target = axis === 'gpus' ? least : last;
  if (points.length === 0) return <p>{text.none}</p>;
  if (points.some(({ status }) => status === 'unknown')) return <p class="quiet">{text.unknown}</p>;
  if (target === undefined) {
    const fits = points.every((point) => point.fits);
    return <p>{fits ? text.all(count(points.at(-1)?.value ?? 0)) : text.nothing}</p>;
  }
  const value = points.find((point) => point.value === target);
  return (
    <p>
      {axis === 'gpus' ? text.fewest(count(target)) : text.largest(name, count(target))}
      {value && `, ${gib(value.needed)} GiB${value.status === 'fits' ? '' : ` (${outcomes[value.status]})`}`}.{' '}
      {choice.value.settings[axis] !== target && (
        <button type="button" onClick={() => changeSettings({ [axis]: target })}>
          {chartText.apply}
        </button>
      )}
    </p>
  );
}

function Drawing({ curve, now }: { curve: Curve; now: number }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const svg = useRef<SVGSVGElement>(null);
  const { points, last, least, axis } = curve;
  const first = points[0]?.value ?? 1;
  const end = points.at(-1)?.value ?? 2;
  const capacity = points.find((point) => point.capacity !== null)?.capacity ?? null;
  const most = Math.max(...points.map(({ needed }) => needed), capacity !== null ? capacity : 0);
  const x = scaleLog([first, Math.max(end, first * 2)], [LEFT + 8, Math.max(LEFT + 9, width - RIGHT)]).base(2);
  const y = scaleLinear([0, most * 1.06], [HEIGHT - BOTTOM, TOP]);
  const marked = axis === 'gpus' ? least : last;
  const labelled = spaced(points, x);
  return (
    <>
      <div ref={frame} class="curve">
        <svg ref={svg} width={width} height={HEIGHT} viewBox={`0 0 ${width || 1} ${HEIGHT}`} role="img" aria-label={text.name(names[axis].toLowerCase())}>
          {scaleLinear([0, (most * 1.06) / GIB], [0, 1])
            .ticks(5)
            .map((tick) => (
              <g key={tick} class="tick">
                <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(tick * GIB)} y2={y(tick * GIB)} />
                <text class="tick-name" x={LEFT - 7} y={y(tick * GIB)} text-anchor="end" dominant-baseline="central">
                  {tick}
                </text>
              </g>
            ))}
          <text class="tick-name" x={0} y={9}>
            GiB
          </text>
          {capacity !== null && (
            <g>
              <line class="capacity" x1={LEFT} x2={width - RIGHT} y1={y(capacity)} y2={y(capacity)} />
              <text class="capacity-name" x={LEFT + 6} y={y(capacity) - 6}>{text.capacity(gib(capacity))}</text>
            </g>
          )}
          <path class="curve-line" d={line<CurvePoint>(({ value }) => x(value), ({ needed }) => y(needed))(points) ?? ''} />
          {points.map((point) => (
            <circle key={point.value} class={point.fits ? 'fits' : 'fails'} cx={x(point.value)} cy={y(point.needed)} r={point.value === marked ? 6 : point.value === now ? 5 : 3}>
              <title>{`${count(point.value)}: ${gib(point.needed)} GiB (${exactBytes(point.needed)})`}</title>
            </circle>
          ))}
          {labelled.map((value) => (
            <text key={value} class="tick-name" x={x(value)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">
              {count(value)}
            </text>
          ))}
          {marked !== undefined && (
            <text class="curve-mark" x={x(marked)} y={y(points.find(({ value }) => value === marked)?.needed ?? 0) + 20} text-anchor={x(marked) > width - 120 ? 'end' : 'middle'}>
              {axis === 'gpus' ? text.from(count(marked)) : text.upTo(count(marked))}
            </text>
          )}
        </svg>
      </div>
      <NumbersTable
        caption={text.table(names[axis].toLowerCase())}
        rows={[
          [names[axis], ...text.columns],
          ...points.map((point) => [count(point.value), gib(point.needed), point.capacity === null ? '' : gib(point.capacity), point.fits ? text.yes : text.no]),
        ]}
      />
      <ChartExports
        name={`llmem-${axis}`}
        svg={() => svg.current}
        table={() => [[axis, 'needed', 'capacity', 'status'], ...points.map((point) => [point.value, point.needed, point.capacity ?? '', point.status].map(String))]}
      />
    </>
  );
}

/** Those values that have room for their number. */
function spaced(points: readonly CurvePoint[], x: (value: number) => number): number[] {
  const out: number[] = [];
  for (const { value } of points) {
    const last = out.at(-1);
    if (last === undefined || x(value) - x(last) > 42) out.push(value);
  }
  return out;
}
