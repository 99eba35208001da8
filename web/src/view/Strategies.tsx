import { useSignal } from '@preact/signals';
import { scaleLinear, scaleLog } from 'd3-scale';
import { useEffect, useRef } from 'preact/hooks';
import type { JsonObject } from '../choice/choice';
import type { Enumerated, Ranked, Screened } from '../core/search';
import { gpus as kinds } from '../gpus';
import { choice } from '../store';
import { advice as text, chart as chartText } from '../text/views';
import { apply, Numbers } from './Advice';
import { askMany, readyToAskMany } from './askMany';
import { ChartExports, useWidth, Waiting } from './Chart';
import { count, GIB, gib, perSecond } from './format';
import { costOf, countsOf, failedOf, foundOf, leftOutOf, pricesOf, searchFor, speedOf, type Asks, type Found, type Search } from './search';

const SHOWN = 12; // rows; as many of the order the core wants exact
const HEIGHT = 260;
const LEFT = 60; // px, of the numbers at the axis

// All of it in the search's own workers: the one beside the bars may be busy with advice.
function asksUntil(signal: AbortSignal): Asks {
  const one = async <Value,>(call: 'enumerate' | 'rank', question: object): Promise<Value> => {
    let answer: Value | undefined;
    await askMany<Value>(call, [question], signal, (_, value) => (answer = value));
    return answer as Value;
  };
  return {
    enumerate: (question) => one<Enumerated>('enumerate', question),
    screen: (questions, each) => askMany<Screened[]>('screen', questions, signal, each),
    rank: (all) => one<Ranked>('rank', all),
  };
}

/** Every way to use the GPUs, or so many of other kinds and numbers. */
export function Strategies({ spec }: { spec: string }) {
  const search = useSignal<Search | undefined>(undefined);
  const of = useSignal('');
  const failed = useSignal('');
  const running = useSignal<AbortController | undefined>(undefined);
  const all = useSignal(false);
  useEffect(readyToAskMany, []);
  const gpus = useSignal('');
  const batch = useSignal('');
  const prices = useSignal('');
  const { settings } = choice.value;
  const counts = gpus.value.trim() === '' ? [settings.gpus] : countsOf(gpus.value);
  const rows = batch.value.trim() === '' ? undefined : countsOf(batch.value)?.[0];
  const priced = pricesOf(
    prices.value,
    kinds.filter(({ unsupported }) => !unsupported).map(({ id }) => id),
  );
  const unread = !counts ? gpus.value : batch.value.trim() !== '' && !rows ? batch.value : !priced ? prices.value : undefined;
  const asked = JSON.stringify([spec, counts, rows, priced]);
  const stale = of.value !== '' && of.value !== asked;

  const start = () => {
    running.value?.abort();
    const controller = new AbortController();
    running.value = controller;
    search.value = undefined;
    failed.value = '';
    all.value = false;
    of.value = asked;
    const question = { gpus: counts, ...(rows && { global_batch: rows }), ...(priced && Object.keys(priced).length > 0 && { prices: priced }) };
    searchFor(JSON.parse(spec) as JsonObject, question, asksUntil(controller.signal), (now) => (search.value = now)).then(
      () => (running.value = undefined),
      (error: unknown) => {
        if (!controller.signal.aborted) failed.value = error instanceof Error ? error.message : String(error);
        if (running.peek() === controller) running.value = undefined;
      },
    );
  };
  const found = search.value ? foundOf(search.value) : [];
  const { value: now } = search;
  const shown = all.value || !now ? found : found.filter(({ strategy }, row) => row < SHOWN || marksOf(now, strategy).length > 0);
  return (
    <>
      <h3>{text.which}</h3>
      <div class="search-inputs">
        <Typed name={text.gpus} value={gpus} hint={`${settings.gpus}. ${text.gpusHelp}`} />
        <Typed name={text.batch} value={batch} hint={text.batchHelp(count((counts ? Math.max(...counts) : settings.gpus) * settings.micro_batch * settings.accumulation))} />
        <Typed name={text.prices} value={prices} hint={text.pricesHelp} />
      </div>
      {unread !== undefined && <p class="fault">{text.unread(unread)}</p>}
      <div class="curve-state">
        {running.value ? (
          <>
            <progress max={now?.strategies.length ?? 1} value={now?.done ?? 0} aria-label={text.screened} />
            <Waiting>{!now ? text.enumerating : now.done < now.strategies.length ? text.progress(now.done, now.strategies.length) : text.settling}</Waiting>
            <button type="button" onClick={() => running.value?.abort()}>
              {chartText.cancel}
            </button>
          </>
        ) : (
          <>
            <button type="button" onClick={start} disabled={unread !== undefined}>
              {now ? text.searchAgain : text.search((counts ?? [settings.gpus]).map(count).join(', '))}
            </button>
            {stale && <span class="quiet">{text.stale}</span>}
          </>
        )}
      </div>
      {failed.value && <p class="fault">{failed.value}</p>}
      {now && found.length === 0 && !running.value && <p>{text.nothing(count(now.strategies.length))}</p>}
      {now && found.length > 0 && (
        <>
          {now.ranked && <Scatter search={now} />}
          <Table spec={spec} search={now} found={shown} />
          {found.length > shown.length && (
            <p>
              <button type="button" class="plain" onClick={() => (all.value = true)}>
                {text.more(found.length - shown.length)}
              </button>
            </p>
          )}
        </>
      )}
      {now?.ranked && <LeftOut search={now} />}
    </>
  );
}

function Typed({ name, value, hint }: { name: string; value: { value: string }; hint: string }) {
  return (
    <label>
      <span>{name}</span>
      <input type="text" autocomplete="off" spellcheck={false} value={value.value} placeholder={hint} onInput={(event) => (value.value = event.currentTarget.value)} />
    </label>
  );
}

function Table({ spec, search, found }: { spec: string; search: Search; found: Found[] }) {
  const several = new Set(search.strategies.map(({ gpus }) => gpus)).size > 1;
  const priced = search.strategies.some(({ price }) => price > 0);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={text.strategies}>
      <table class="advice">
        <thead>
          <tr>
            <th scope="col">{text.fits}</th>
            {several && (
              <th scope="col" class="number">
                {text.each}
              </th>
            )}
            <th scope="col" class="number">
              {text.speed}
            </th>
            <th scope="col" class="number">
              GiB
            </th>
            <th scope="col" class="number">
              {text.step}
            </th>
            {priced && (
              <th scope="col" class="number">
                {text.cost}
              </th>
            )}
            <td />
          </tr>
        </thead>
        <tbody>
          {found.map(({ strategy, summary }) => (
            <tr key={strategy.label}>
              <th scope="row">
                {strategy.label} <span class="quiet">{marksOf(search, strategy).join(', ')}</span>
              </th>
              {several && <td class="number">{count(strategy.gpus)}</td>}
              <td class="number">{summary.tokens_per_second > 0 ? perSecond(speedOf(summary)) : '–'}</td>
              <Numbers of={summary} />
              {priced && <td class="number">{costOf({ strategy, summary })?.toPrecision(3) ?? '–'}</td>}
              <td class="number">
                <button type="button" onClick={() => apply(spec, strategy.change)} aria-label={text.applyThis(strategy.label)}>
                  {chartText.apply}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function isFront({ ranked, strategies }: Search, strategy: Found['strategy']): boolean {
  return ranked?.front.some((index) => strategies[index] === strategy) ?? false;
}

function marksOf(search: Search, strategy: Found['strategy']): string[] {
  const { ranked, strategies } = search;
  const is = (index: number | null | undefined) => typeof index === 'number' && strategies[index] === strategy;
  const several = strategies.some(({ gpus }) => gpus !== strategy.gpus);
  return [
    ...(isFront(search, strategy) ? [text.front] : []),
    ...(is(ranked?.cheapest) && (several || strategy.price > 0) ? [text.cheapest] : []),
    ...(is(ranked?.fewest_gpus) && several ? [text.fewest] : []),
  ];
}

function LeftOut({ search }: { search: Search }) {
  const failed = failedOf(search);
  const leftOut = leftOutOf(search);
  if (leftOut.length === 0 && failed === 0) return null;
  return (
    <details class="more">
      <summary>{text.leftOut}</summary>
      <ul class="notes">
        {failed > 0 && <li>{text.failed(count(failed), count(search.strategies.length))}</li>}
        {leftOut.map(({ why, count: times, example }) => (
          <li key={why}>
            {why} <span class="quiet">{text.example(count(times), example)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** Speed against memory; those that nothing beats in both are joined. */
function Scatter({ search }: { search: Search }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const svg = useRef<SVGSVGElement>(null);
  const found = foundOf(search).filter(({ summary }) => summary.tokens_per_second > 0);
  if (found.length < 2) return null;
  const capacity = found[0]?.summary.capacity ?? null;
  const most = Math.max(...found.map(({ summary }) => summary.needed), capacity ?? 0);
  const speeds = found.map(({ summary }) => speedOf(summary));
  const x = scaleLinear([0, most * 1.04], [LEFT, Math.max(LEFT + 1, width - 16)]);
  const y = scaleLog([Math.min(...speeds) * 0.9, Math.max(...speeds) * 1.1], [HEIGHT - 30, 16]);
  return (
    <>
      <div ref={frame} class="curve">
        <svg ref={svg} width={width} height={HEIGHT} viewBox={`0 0 ${width || 1} ${HEIGHT}`} role="img" aria-label={text.scatter}>
          {y.ticks(4).map((tick) => (
            <g key={tick} class="tick">
              <line class="grid" x1={LEFT} x2={width - 16} y1={y(tick)} y2={y(tick)} />
              <text class="tick-name" x={LEFT - 7} y={y(tick)} text-anchor="end" dominant-baseline="central">
                {count(tick)}
              </text>
            </g>
          ))}
          <text class="tick-name" x={0} y={9}>
            {text.speed}
          </text>
          {scaleLinear([0, (most * 1.04) / GIB], [0, 1])
            .ticks(6)
            .map((tick) => (
              <text key={tick} class="tick-name" x={x(tick * GIB)} y={HEIGHT - 14} text-anchor="middle">
                {tick}
              </text>
            ))}
          <text class="tick-name" x={width} y={HEIGHT} text-anchor="end">
            {text.memory}
          </text>
          {capacity !== null && <line class="capacity" x1={x(capacity)} x2={x(capacity)} y1={12} y2={HEIGHT - 28} />}
          {found.map(({ strategy, summary }) => (
            <circle key={strategy.label} class={isFront(search, strategy) ? 'fits' : 'other'} cx={x(summary.needed)} cy={y(speedOf(summary))} r={isFront(search, strategy) ? 5 : 3.5}>
              <title>{`${strategy.label}: ${gib(summary.needed)} GiB, ${perSecond(speedOf(summary))} tokens/s`}</title>
            </circle>
          ))}
        </svg>
      </div>
      <ChartExports
        name="llmem-strategies"
        svg={() => svg.current}
        table={() => [
          ['strategy', 'gpus', 'needed', 'microseconds', 'tokens_per_second_of_each_gpu', 'exact'],
          ...foundOf(search).map(({ strategy, summary }) => [strategy.label, summary.gpus, summary.needed, summary.microseconds, summary.tokens_per_second, summary.exact].map(String)),
        ]}
      />
    </>
  );
}
