import { signal, useSignal } from '@preact/signals';
import { Fragment } from 'preact';
import { methodName, type Method } from '../choice/methods';
import { decidingRank, type Category, type Report } from '../core/answer';
import { choice } from '../store';
import { compare as text } from '../text/views';
import { Swatch } from './Bars';
import { ChartExports } from './Chart';
import { changes, differences, type Difference, type Run } from './compareRows';
import { exactBytes, gib } from './format';

const pinned = signal<Run | undefined>(undefined);
const SHOWN = 12; // rows of a category

/** A run that stays, beside the one that is asked for now: what changed, row by row. */
export default function Compare({ method, report }: { method: Method; report: Report }) {
  const now: Run = { name: methodName(method, choice.value.settings), choice: choice.value, method, report };
  const before = pinned.value;
  return (
    <>
      <p>
        <button type="button" onClick={() => (pinned.value = now)}>
          {before ? text.pinAgain : text.pin}
        </button>{' '}
        {!before && <span class="quiet">{text.how}</span>}
      </p>
      {before && <Differences before={before} after={now} />}
    </>
  );
}

function Differences({ before, after }: { before: Run; after: Run }) {
  const rows = differences(before.report, after.report);
  const one = decidingRank(before.report).device_total;
  const other = decidingRank(after.report).device_total;
  const changed = changes(before, after);
  return (
    <>
      {changed.length === 0 ? (
        <p>{text.same}</p>
      ) : (
        <ul class="changes" aria-label={text.changes}>
          {changed.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label={text.table}>
        <table class="compare">
          <thead>
            <tr>
              <th scope="col">GiB</th>
              <th scope="col" class="number">
                {text.pinned(before.name)}
              </th>
              <th scope="col" class="number">
                {text.now(after.name)}
              </th>
              <th scope="col" class="number">
                {text.difference}
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={row.key} of={row} />
            ))}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">{text.total}</th>
              <Numbers before={one} after={other} />
            </tr>
          </tfoot>
        </table>
      </div>
      <ChartExports
        name="llmem-compare"
        table={() => [['what', 'pinned', 'now', 'difference'], ...rows.flatMap((row) => [row, ...row.rows]).map((row) => [row.name, row.before, row.after, row.after - row.before].map(String))]}
      />
    </>
  );
}

function Row({ of }: { of: Difference }) {
  const open = useSignal(false);
  return (
    <Fragment>
      <tr>
        <th scope="row">
          <button type="button" class="plain" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
            <Swatch category={of.key as Category} /> {of.name}
          </button>
        </th>
        <Numbers before={of.before} after={of.after} />
      </tr>
      {open.value &&
        of.rows.slice(0, SHOWN).map((row) => (
          <tr key={row.key} class="tensor">
            <td>
              <code>{row.name}</code>
            </td>
            <Numbers before={row.before} after={row.after} />
          </tr>
        ))}
    </Fragment>
  );
}

function Numbers({ before, after }: { before: number; after: number }) {
  const by = after - before;
  return (
    <>
      <td class="number" title={exactBytes(before)}>
        {gib(before)}
      </td>
      <td class="number" title={exactBytes(after)}>
        {gib(after)}
      </td>
      <td class={by > 0 ? 'number more-bytes' : 'number'} title={exactBytes(by)}>
        {by === 0 ? '0' : `${by > 0 ? '+' : '−'}${gib(Math.abs(by))}`}
      </td>
    </>
  );
}
