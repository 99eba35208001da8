import { signal } from '@preact/signals';
import certainty from 'virtual:certainty';
import { kindOf } from '../choice/kind';
import { methodName, type Method } from '../choice/methods';
import { specOf } from '../choice/spec';
import { decidingRank, type HostMemory, type Note, type Problem, type RankReport, type Report } from '../core/answer';
import { best, changeSettings, choice, config, results, selected } from '../store';
import { details as text, views } from '../text/page';
import { focusControl, label } from './Control';
import { exactBytes, gib, pointName, seconds } from './format';
import { Lazy } from './Lazy';
import { Ledger } from './Ledger';
import { controlOf, Place } from './Problems';

type View = keyof typeof views;

const view = signal<View>('ledger');

/** What is behind the chosen bar. */
export function Details() {
  const method = selected.value;
  const { answer } = results.value[method];
  if (answer?.kind === 'problems' && best.value) return <Refused method={method} problems={answer.problems} />;
  if (answer?.kind !== 'report') return null;
  const rank = decidingRank(answer.report);
  return (
    <section class="details" aria-labelledby="details-title">
      <h2 id="details-title">{text.title(methodName(method, choice.value.settings))}</h2>
      {method !== best.value && <p>{answer.report.verdict.sentence}</p>}
      <Numbers rank={rank} report={answer.report} />
      <Moment peak={rank.peak} />
      <HowSure method={method} />
      <Tabs />
      <div role="tabpanel" id="view-panel" aria-labelledby={`tab-${view.value}`} class="panel">
        {view.value === 'ledger' && <Ledger rank={rank} />}
        {view.value === 'timeline' && <Lazy key="timeline" load={() => import('./Timeline')} with={{ rank, method }} height={420} />}
        {view.value === 'curves' && <Lazy key="curves" load={() => import('./Curves')} with={{ method }} height={420} />}
        {view.value === 'advice' && <Lazy key="advice" load={() => import('./Advice')} with={{ method }} height={300} />}
        {view.value === 'compare' && <Lazy key="compare" load={() => import('./Compare')} with={{ method, report: answer.report }} height={300} />}
        {view.value === 'ranks' && <Lazy key="ranks" load={() => import('./Ranks')} with={{ method, report: answer.report }} height={300} />}
      </div>
      <Notes title={text.warnings} notes={answer.report.warnings} />
      <Notes title={text.assumptions} notes={answer.report.assumptions} />
    </section>
  );
}

/** The chosen method is one that the core does not answer for this recipe: why, and where to change it. */
function Refused({ method, problems }: { method: Method; problems: readonly Problem[] }) {
  return (
    <section class="details" aria-labelledby="details-title">
      <h2 id="details-title">{text.refused(methodName(method, choice.value.settings))}</h2>
      <ul class="notes">
        {problems.map(({ at, message }) => (
          <li key={at + message}>
            <Place at={at} /> {message}
          </li>
        ))}
      </ul>
      <p>
        <button type="button" onClick={() => changeSettings({ data: 'best' })}>
          {text.showBest}
        </button>
      </p>
    </section>
  );
}

/** Left and right go from one to the next, as in any list of tabs. */
function Tabs() {
  const keys = Object.keys(views) as View[];
  const go = (by: number) => {
    const at = (keys.indexOf(view.value) + by + keys.length) % keys.length;
    view.value = keys[at] ?? 'ledger';
    document.getElementById(`tab-${view.value}`)?.focus();
  };
  return (
    <div
      role="tablist"
      aria-label={text.views}
      class="tabs"
      onKeyDown={(event) => {
        const rtl = getComputedStyle(event.currentTarget).direction === 'rtl' ? -1 : 1;
        if (event.key === 'ArrowRight') go(rtl);
        else if (event.key === 'ArrowLeft') go(-rtl);
        else return;
        event.preventDefault();
      }}
    >
      {keys.map((key) => (
        <button
          key={key}
          type="button"
          role="tab"
          id={`tab-${key}`}
          aria-selected={view.value === key}
          aria-controls="view-panel"
          tabIndex={view.value === key ? 0 : -1}
          onClick={() => (view.value = key)}
        >
          {views[key]}
        </button>
      ))}
    </div>
  );
}

/** Allocated, reserved and what nvidia-smi shows are three numbers: always named, never mixed. */
function Numbers({ rank, report: { step_time: time, host } }: { rank: RankReport; report: Report }) {
  const { outside, peak_allocated, peak_reserved, device_total, late } = rank;
  const most = late?.peak_reserved ?? peak_reserved;
  return (
    <dl class="three">
      <Number name={text.allocated} bytes={peak_allocated} meaning={text.allocatedMeaning} />
      <Number name={text.reserved} bytes={peak_reserved} meaning={most > peak_reserved ? text.reservedLate(gib(most)) : text.reservedMeaning} />
      <Number name={text.shown} bytes={device_total} meaning={text.shownMeaning(gib(peak_reserved + outside.low), gib(most + outside.high))} />
      {time && (
        <div>
          <dt>{text.step}</dt>
          <dd>
            <strong>{seconds(time.microseconds)}</strong>{' '}
            <span class="quiet">
              {text.stepMeaning(seconds(time.low_microseconds), seconds(time.high_microseconds), Math.round(time.flops_utilisation / 10))}
            </span>
          </dd>
        </div>
      )}
      {host && <Number name={text.host} bytes={host.needed} meaning={text.hostMeaning(host.points.map(hostPoint).join('; '))} />}
    </dl>
  );
}

function hostPoint({ at, bytes }: HostMemory['points'][number]): string {
  return `${text.hostPoint[at]} ${gib(bytes)}`;
}

function Number({ name, bytes, meaning }: { name: string; bytes: number; meaning: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd title={exactBytes(bytes)}>
        <strong>{gib(bytes)}</strong> GiB <span class="quiet">{meaning}</span>
      </dd>
    </div>
  );
}

function Moment({ peak }: { peak: RankReport['peak'] }) {
  return (
    <p>
      {text.peak}
      {lowerFirst(pointName(peak.phase))}
      {peak.module && (
        <>
          {text.at}
          <code>{peak.module}</code>
        </>
      )}
      {peak.op && (
        <>
          {' '}
          (<code>{peak.op}</code>)
        </>
      )}
      .
    </p>
  );
}

/** By how many recorded runs of this kind the core was checked. */
function HowSure({ method }: { method: Method }) {
  const loaded = config.value;
  if (loaded.state !== 'ready') return null;
  const kind = kindOf(specOf(choice.value, {}, method));
  const [equal, all] = certainty[kind] ?? [0, 0];
  return <p class="quiet">{all === 0 ? text.unsure : text.sure(equal, all)}</p>;
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

function Notes({ title, notes }: { title: string; notes: Note[] }) {
  if (notes.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="notes">
        {notes.map(({ at, text }) => (
          <li key={at + text}>
            {text} <Where at={at} />
          </li>
        ))}
      </ul>
    </>
  );
}

/** The way to the control that a note is about. */
function Where({ at }: { at: string }) {
  const control = controlOf(at);
  if (!control) return null;
  return (
    <button type="button" class="plain" onClick={() => focusControl(control)}>
      {label(control)}
    </button>
  );
}
