import { useSignal } from '@preact/signals';
import { Fragment } from 'preact';
import type { LedgerEntry, LedgerRow, RankReport } from '../core/answer';
import { Swatch } from './Bars';
import { categories, categoryOf } from './categories';
import { count, exactBytes, gib } from './format';

const SHOWN = 8; // rows of a category before the rest is folded
const FOLD_FROM = 3; // rows that are worth a fold

/** Every byte at the peak, in a labelled row. The rows of a category sum to it, and the categories to the total. */
export function Ledger({ rank }: { rank: RankReport }) {
  const exact = useSignal(false);
  const show = (bytes: number) => (exact.value ? count(bytes) : gib(bytes));
  return (
    <>
      <div class="title">
        <h3>Ledger at the peak</h3>
        <label class="quiet">
          <input type="checkbox" checked={exact.value} onChange={(event) => (exact.value = event.currentTarget.checked)} /> exact bytes
        </label>
      </div>
      <table class="ledger">
        <thead>
          <tr>
            <th scope="col">What</th>
            <th scope="col" class="number">
              {exact.value ? 'bytes' : 'GiB'}
            </th>
          </tr>
        </thead>
        {categories.map(({ key }) => {
          const entry = rank.ledger.find(({ category }) => category === key);
          return entry && <Entry key={key} entry={entry} show={show} />;
        })}
        <tfoot>
          <tr>
            <th scope="row">Total, what nvidia-smi shows</th>
            <td class="number" title={exactBytes(rank.device_total)}>
              {show(rank.device_total)}
            </td>
          </tr>
        </tfoot>
      </table>
    </>
  );
}

interface EntryProps {
  entry: LedgerEntry;
  show: (bytes: number) => string;
}

function Entry({ entry, show }: EntryProps) {
  const open = useSignal(false);
  const { name, meaning } = categoryOf(entry.category);
  return (
    <tbody>
      <tr class="category">
        <th scope="rowgroup">
          {entry.rows.length > 0 ? (
            <button type="button" class="plain" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
              <Swatch category={entry.category} /> {name}
            </button>
          ) : (
            <span class="unopened">
              <Swatch category={entry.category} /> {name}
            </span>
          )}
          <span class="quiet meaning">{meaning}</span>
        </th>
        <td class="number" title={exactBytes(entry.bytes)}>
          {show(entry.bytes)}
        </td>
      </tr>
      {open.value && <Rows rows={entry.rows} show={show} />}
    </tbody>
  );
}

function Rows({ rows, show }: { rows: LedgerRow[]; show: (bytes: number) => string }) {
  const all = useSignal(false);
  const sorted = rows.toSorted((a, b) => b.bytes - a.bytes);
  const folded = all.value || sorted.length < SHOWN + FOLD_FROM ? [] : sorted.slice(SHOWN);
  const shown = folded.length > 0 ? sorted.slice(0, SHOWN) : sorted;
  const rest = folded.reduce((sum, row) => sum + row.bytes, 0);
  return (
    <Fragment>
      {shown.map((row) => (
        <tr key={`${row.module} ${row.op}`}>
          <td>
            {row.module && <code>{row.module}</code>} <span class="quiet">{row.op}</span>
            {row.count > 1 && <span class="quiet"> × {count(row.count)}</span>}
          </td>
          <td class="number" title={exactBytes(row.bytes)}>
            {show(row.bytes)}
          </td>
        </tr>
      ))}
      {folded.length > 0 && (
        <tr>
          <td>
            <button type="button" class="plain" onClick={() => (all.value = true)}>
              {folded.length} others
            </button>
          </td>
          <td class="number" title={exactBytes(rest)}>
            {show(rest)}
          </td>
        </tr>
      )}
    </Fragment>
  );
}
