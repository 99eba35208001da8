import { methodName } from '../choice/methods';
import { decidingRank, type Note, type RankReport } from '../core/answer';
import { best, choice, results, selected } from '../store';
import { exactBytes, gib, pointName } from './format';
import { Ledger } from './Ledger';
import { Points } from './Points';
import { focusControl, labels } from './Control';
import { controlOf } from './Problems';

/** What is behind the chosen bar. */
export function Details() {
  const method = selected.value;
  const { answer } = results.value[method];
  if (answer?.kind !== 'report') return null;
  const rank = decidingRank(answer.report);
  return (
    <section class="details" aria-labelledby="details-title">
      <h2 id="details-title">{methodName(method, choice.value.settings)}, in detail</h2>
      {method !== best.value && <p>{answer.report.verdict.sentence}</p>}
      <ThreeNumbers rank={rank} />
      <Moment peak={rank.peak} />
      <Ledger rank={rank} />
      <Points rank={rank} />
      <Notes title="Warnings" notes={answer.report.warnings} />
      <Notes title="Assumptions" notes={answer.report.assumptions} />
    </section>
  );
}

/** Allocated, reserved and what nvidia-smi shows are three numbers: always named, never mixed. */
function ThreeNumbers({ rank }: { rank: RankReport }) {
  const { outside, peak_allocated, peak_reserved, device_total } = rank;
  return (
    <dl class="three">
      <Number name="Allocated" bytes={peak_allocated} meaning="in tensors, at the peak" />
      <Number name="Reserved" bytes={peak_reserved} meaning="held by PyTorch’s allocator, at most" />
      <Number
        name="nvidia-smi shows"
        bytes={device_total}
        meaning={`with the context and libraries: ${gib(peak_reserved + outside.low)} to ${gib(peak_reserved + outside.high)}`}
      />
    </dl>
  );
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
      The peak comes in {lowerFirst(pointName(peak.phase))}
      {peak.module && (
        <>
          , at <code>{peak.module}</code>
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
      {labels[control]}
    </button>
  );
}
