import { useSignal } from '@preact/signals';
import { scaleLinear, scaleLog } from 'd3-scale';
import { useRef } from 'preact/hooks';
import { askCore, presentSpec } from '../aside';
import type { JsonObject } from '../choice/choice';
import { methodName, type Method } from '../choice/methods';
import type { Advised, Enumerated, Ranked, Screened, Summary } from '../core/search';
import { changeAll, choice } from '../store';
import { advice as text, chart as chartText } from '../text/views';
import { ChartExports, useWidth, Waiting } from './Chart';
import { count, exactBytes, GIB, gib, seconds } from './format';
import { choiceOf, foundOf, searchFor, speedOf, type Found, type Search } from './search';
import { present, useAsked } from './useAnswer';

const SHOWN = 12; // rows
const HEIGHT = 260;
const LEFT = 60; // px, of the numbers at the axis

/** What to change, and what else to run: each suggestion was estimated before it is made. */
export default function Advice({ method }: { method: Method }) {
  const spec = presentSpec(method);
  if (!spec) return <Waiting>{text.waitsForModel}</Waiting>;
  return (
    <>
      <WhatToChange spec={spec} method={method} />
      <WhatElse spec={spec} />
    </>
  );
}

function apply(spec: string, change: JsonObject): void {
  changeAll(choiceOf(choice.peek(), JSON.parse(spec) as JsonObject, change));
}

function WhatToChange({ spec, method }: { spec: string; method: Method }) {
  const asked = useAsked(spec, (signal) => askCore<Advised>('advise', [spec], signal));
  const advised = present(asked);
  const name = methodName(method, choice.value.settings);
  return (
    <>
      <h3>{text.what(name)}</h3>
      {asked.state === 'failed' && <p class="fault">{asked.message}</p>}
      {!advised && asked.state === 'waiting' && <Waiting>{text.trying}</Waiting>}
      {advised && advised.advice.length === 0 && <p>{'fits' in advised.now && advised.now.fits ? text.noneFaster : text.noneFits}</p>}
      {advised && advised.advice.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={text.table}>
          <table class="advice">
            <thead>
              <tr>
                <th scope="col">{text.change}</th>
                <th scope="col" class="number">
                  GiB
                </th>
                <th scope="col" class="number">
                  {text.step}
                </th>
                <td />
              </tr>
            </thead>
            <tbody>
              {advised.advice.map(({ label, change, changes_result, after }) => (
                <tr key={label}>
                  <th scope="row">
                    {label} {changes_result && <span class="quiet">{text.other}</span>}
                  </th>
                  <Numbers of={after} />
                  <td class="number">
                    <button type="button" onClick={() => apply(spec, change)} aria-label={text.applyThis(label)}>
                      {chartText.apply}
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function Numbers({ of }: { of: Summary }) {
  return (
    <>
      <td class="number" title={exactBytes(of.needed)}>
        {gib(of.needed)}
      </td>
      <td class="number">{of.microseconds > 0 ? seconds(of.microseconds) : '–'}</td>
    </>
  );
}

function WhatElse({ spec }: { spec: string }) {
  const search = useSignal<Search | undefined>(undefined);
  const of = useSignal('');
  const failed = useSignal('');
  const running = useSignal<AbortController | undefined>(undefined);
  const all = useSignal(false);
  const stale = of.value !== '' && of.value !== spec;

  const start = () => {
    running.value?.abort();
    const controller = new AbortController();
    running.value = controller;
    search.value = undefined;
    failed.value = '';
    of.value = spec;
    const ask = <Value,>(call: 'enumerate' | 'screen' | 'rank', question: object) => askCore<Value>(call, [question], controller.signal);
    const asks = {
      enumerate: (question: object) => ask<Enumerated>('enumerate', question),
      screen: (question: object) => ask<Screened[]>('screen', question),
      rank: (screened: readonly Screened[]) => ask<Ranked>('rank', screened),
    };
    searchFor(JSON.parse(spec) as JsonObject, { gpus: choice.peek().settings.gpus }, asks, (now) => (search.value = now)).then(
      (done) => {
        search.value = done;
        running.value = undefined;
      },
      (error: unknown) => {
        if (!controller.signal.aborted) failed.value = error instanceof Error ? error.message : String(error);
        if (running.peek() === controller) running.value = undefined;
      },
    );
  };
  const found = search.value ? foundOf(search.value) : [];
  const shown = all.value ? found : found.slice(0, SHOWN);
  return (
    <>
      <h3>{text.which}</h3>
      <div class="curve-state">
        {running.value ? (
          <>
            <progress max={search.value?.strategies.length ?? 1} value={search.value?.screened.length ?? 0} aria-label={text.screened} />
            <Waiting>{search.value ? text.progress(search.value.screened.length, search.value.strategies.length) : text.enumerating}</Waiting>
            <button type="button" onClick={() => running.value?.abort()}>
              {chartText.cancel}
            </button>
          </>
        ) : (
          <>
            <button type="button" onClick={start}>
              {search.value ? text.searchAgain : text.search(count(choice.value.settings.gpus))}
            </button>
            {stale && <span class="quiet">{text.stale}</span>}
          </>
        )}
      </div>
      {failed.value && <p class="fault">{failed.value}</p>}
      {search.value && found.length === 0 && !running.value && <p>{text.nothing(count(search.value.strategies.length))}</p>}
      {search.value && found.length > 0 && (
        <>
          <Scatter search={search.value} />
          <div class="scroll" tabIndex={0} role="region" aria-label={text.strategies}>
            <table class="advice">
              <thead>
                <tr>
                  <th scope="col">{text.fits}</th>
                  <th scope="col" class="number">
                    {text.speed}
                  </th>
                  <th scope="col" class="number">
                    GiB
                  </th>
                  <th scope="col" class="number">
                    {text.step}
                  </th>
                  <td />
                </tr>
              </thead>
              <tbody>
                {shown.map(({ strategy, summary }) => (
                  <tr key={strategy.label}>
                    <th scope="row">
                      {strategy.label} {isFront(search.value, strategy) && <span class="quiet">{text.front}</span>}
                    </th>
                    <td class="number">{summary.tokens_per_second > 0 ? count(Math.round(speedOf(summary))) : '–'}</td>
                    <Numbers of={summary} />
                    <td class="number">
                      <button type="button" onClick={() => apply(of.value, strategy.change)} aria-label={text.applyThis(strategy.label)}>
                        {chartText.apply}
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {found.length > shown.length && (
            <p>
              <button type="button" class="plain" onClick={() => (all.value = true)}>
                {text.more(found.length - shown.length)}
              </button>
            </p>
          )}
          <LeftOut search={search.value} />
        </>
      )}
    </>
  );
}

function isFront(search: Search | undefined, strategy: Found['strategy']): boolean {
  return search?.ranked?.front.some((index) => search.strategies[index] === strategy) ?? false;
}

function LeftOut({ search }: { search: Search }) {
  if (search.leftOut.length === 0) return null;
  return (
    <details class="more">
      <summary>{text.leftOut}</summary>
      <ul class="notes">
        {search.leftOut.map(({ why, count: times, example }) => (
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
              <title>{`${strategy.label}: ${gib(summary.needed)} GiB, ${count(Math.round(speedOf(summary)))} tokens/s`}</title>
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
