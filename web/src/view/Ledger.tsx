import { useSignal } from '@preact/signals';
import { Fragment } from 'preact';
import { askCore, presentSpec } from '../aside';
import type { Category, LedgerEntry, RankReport } from '../core/answer';
import type { TensorRow, Timeline } from '../core/timeline';
import { isStaged } from '../choice/methods';
import { choice, selected } from '../store';
import { ledger as text } from '../text/views';
import { Swatch } from './Bars';
import { categories, categoryOf } from './categories';
import { count, exactBytes, gib } from './format';
import { arithmetic, modulesOf, type Leaf, type ModuleNode, type Order } from './ledgerTree';
import { present, useAsked } from './useAnswer';

const SHOWN = 8; // modules of a category before the rest is folded
const FOLD_FROM = 3; // modules that are worth a fold

/** Every byte at the peak, in a labelled row: category, module, tensor. Each level sums to the one above. */
export function Ledger({ rank }: { rank: RankReport }) {
  const spec = presentSpec(selected.value, playedRank(rank)) ?? '';
  const touched = useSignal(false);
  // Shapes take another look at the step, so they come when someone opens a row.
  const asked = useAsked(touched.value ? `${rank.peak.event} ${spec}` : '', (signal) => {
    if (!touched.value || spec === '') return Promise.resolve(undefined);
    return tensorsAt(spec, rank.peak.event, signal);
  });
  return (
    <LedgerTree
      title={text.peak}
      ledger={rank.ledger}
      tensors={present(asked)}
      total={{ name: text.total, bytes: rank.device_total }}
      onOpen={() => (touched.value = true)}
    />
  );
}

/** The rank to name in a spec where ranks differ: a pipeline's. */
function playedRank({ ranks }: RankReport): number | undefined {
  return isStaged(selected.value, choice.value.settings) && ranks.length === 1 ? ranks[0] : undefined;
}

/** What is live after an event, with its shapes. */
export async function tensorsAt(spec: string, event: number, signal: AbortSignal): Promise<TensorRow[] | undefined> {
  return (await askCore<Timeline>('timeline', [spec, { samples: 1, ledger_at: event }], signal)).ledger;
}

interface LedgerTreeProps {
  title: string;
  ledger: readonly LedgerEntry[];
  tensors: readonly TensorRow[] | undefined;
  total: { name: string; bytes: number };
  onOpen?: () => void;
}

export function LedgerTree({ title, ledger, tensors, total, onOpen }: LedgerTreeProps) {
  const exact = useSignal(false);
  const find = useSignal('');
  const order = useSignal<Order>('size');
  const show = (bytes: number) => (exact.value ? count(bytes) : gib(bytes));
  return (
    <>
      <div class="title">
        <h3>{title}</h3>
        <label class="quiet">
          <input type="checkbox" checked={exact.value} onChange={(event) => (exact.value = event.currentTarget.checked)} /> {text.exact}
        </label>
      </div>
      <div class="ledger-tools">
        <input
          type="text"
          aria-label={text.find}
          placeholder={text.findHint}
          value={find.value}
          onInput={(event) => {
            find.value = event.currentTarget.value;
            onOpen?.();
          }}
        />
        <select aria-label={text.order} value={order.value} onChange={(event) => (order.value = event.currentTarget.value as Order)}>
          <option value="size">{text.bySize}</option>
          <option value="name">{text.byName}</option>
        </select>
      </div>
      <table class="ledger">
        <thead>
          <tr>
            <th scope="col">{text.what}</th>
            <th scope="col" class="number">
              {exact.value ? 'bytes' : 'GiB'}
            </th>
          </tr>
        </thead>
        {categories.map(({ key }) => {
          const entry = ledger.find(({ category }) => category === key);
          return entry && <Entry key={key} {...{ entry, tensors, show, find: find.value, order: order.value, onOpen }} />;
        })}
        <tfoot>
          <tr>
            <th scope="row">{total.name}</th>
            <td class="number" title={exactBytes(total.bytes)}>
              {show(total.bytes)}
            </td>
          </tr>
        </tfoot>
      </table>
    </>
  );
}

interface EntryProps {
  entry: LedgerEntry;
  tensors: readonly TensorRow[] | undefined;
  show: (bytes: number) => string;
  find: string;
  order: Order;
  onOpen: (() => void) | undefined;
}

function Entry({ entry, tensors, show, find, order, onOpen }: EntryProps) {
  const open = useSignal(false);
  const all = useSignal(false);
  const { name, meaning } = categoryOf(entry.category);
  const opened = open.value || find !== '';
  const modules = opened ? modulesOf(entry, tensors, find, order) : [];
  const folded = all.value || find !== '' || modules.length < SHOWN + FOLD_FROM ? [] : modules.slice(SHOWN);
  const shown = folded.length > 0 ? modules.slice(0, SHOWN) : modules;
  const rest = folded.reduce((sum, module) => sum + module.bytes, 0);
  if (find !== '' && modules.length === 0) return null;
  return (
    <tbody>
      <tr class="category">
        <th scope="rowgroup">
          {entry.rows.length > 0 ? (
            <button
              type="button"
              class="plain"
              aria-expanded={opened}
              onClick={() => {
                open.value = !open.value;
                onOpen?.();
              }}
            >
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
      {shown.map((module) => (
        <ModuleRows key={module.module} of={module} category={entry.category} show={show} opened={find !== ''} />
      ))}
      {folded.length > 0 && (
        <tr>
          <td>
            <button type="button" class="plain" onClick={() => (all.value = true)}>
              {text.others(folded.length)}
            </button>
          </td>
          <td class="number" title={exactBytes(rest)}>
            {show(rest)}
          </td>
        </tr>
      )}
    </tbody>
  );
}

interface ModuleRowsProps {
  of: ModuleNode;
  category: Category;
  show: (bytes: number) => string;
  opened: boolean;
}

function ModuleRows({ of, category, show, opened }: ModuleRowsProps) {
  const open = useSignal(false);
  const unfolded = open.value || opened;
  return (
    <Fragment>
      <tr class="module">
        <td>
          <button type="button" class="plain" aria-expanded={unfolded} onClick={() => (open.value = !open.value)}>
            {of.module ? <code>{of.module}</code> : of.leaves.map(({ op }) => op || 'other').join(', ')}
          </button>{' '}
          {of.module && <span class="quiet">{[...new Set(of.leaves.map(({ op }) => op))].join(', ')}</span>}
          {of.count > 1 && <span class="quiet"> × {count(of.count)}</span>}
        </td>
        <td class="number" title={exactBytes(of.bytes)}>
          {show(of.bytes)}
        </td>
      </tr>
      {unfolded && of.leaves.map((leaf, index) => <LeafRow key={`${leaf.op} ${index}`} leaf={leaf} category={category} show={show} />)}
    </Fragment>
  );
}

function LeafRow({ leaf, category, show }: { leaf: Leaf; category: Category; show: (bytes: number) => string }) {
  const { tensor } = leaf;
  const why = useReason(category, leaf.op);
  const product = tensor && arithmetic(tensor);
  return (
    <tr class="tensor">
      <td>
        <code>{leaf.op || 'tensor'}</code> {leaf.count > 1 && <span class="quiet">× {count(leaf.count)} </span>}
        {tensor && tensor.shape.length > 0 && (
          <code>
            [{tensor.shape.join(', ')}] {tensor.dtype}
          </code>
        )}
        <span class="quiet reason">
          {why}
          {product && tensor && `. ${product} = ${count(tensor.asked)}${tensor.asked === tensor.bytes ? '' : text.blocks(count(tensor.bytes))}`}
        </span>
      </td>
      <td class="number" title={exactBytes(leaf.bytes)}>
        {show(leaf.bytes)}
      </td>
    </tr>
  );
}

/** The words come with the first row that needs them. */
function useReason(category: Category, op: string): string {
  const asked = useAsked('reasons', () => import('../text/reasons'));
  return present(asked)?.reason(category, op) ?? '';
}
