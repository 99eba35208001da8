import { useSignal } from '@preact/signals';
import { methodName } from '../choice/methods';
import { decidingRank, type Category } from '../core/answer';
import type { SnapshotSummary } from '../files/snapshot';
import { choice, results, selected } from '../store';
import { categories } from '../text/categories';
import { snapshot as text } from '../text/files';
import { exactBytes, GIB, gib } from './format';

/** A memory snapshot beside the estimate, category by category. */
export function SnapshotView({ name, summary }: { name: string; summary: SnapshotSummary }) {
  const open = useSignal<Category | null>(null);
  const method = selected.value;
  const { answer } = results.value[method];
  const rank = answer?.kind === 'report' ? decidingRank(answer.report) : undefined;
  const estimated = (category: Category) => rank?.ledger.find((entry) => entry.category === category)?.bytes ?? 0;
  const measured = (category: Category) => summary.parts.find((part) => part.category === category)?.bytes ?? 0;
  const rows = categories.filter(
    ({ key }) => key !== 'outside' && key !== 'allocator_overhead' && (measured(key) > 0 || estimated(key) > 0),
  );
  const overhead = Math.max(0, summary.reserved - summary.allocated);
  return (
    <div class="snapshot">
      <h3>{text.title(name, summary.device)}</h3>
      <p>
        {summary.events > 0
          ? text.replayed(summary.events.toLocaleString('en'), gib(summary.allocated), gib(summary.peakReserved))
          : text.bare(gib(summary.allocated), gib(summary.reserved))}
        {summary.outOfMemory && ` ${text.oom(gib(summary.outOfMemory.tried))}`}
        {summary.before > 0 && ` ${text.before(gib(summary.before))}`}
      </p>
      <p class="quiet">{text.how}</p>
      <table>
        <caption class="quiet">{text.caption(rank && methodName(method, choice.value.settings))}</caption>
        <thead>
          <tr>
            <th scope="col">{text.columns.part}</th>
            <th scope="col" class="number">
              {text.columns.snapshot}
            </th>
            {rank && (
              <>
                <th scope="col" class="number">
                  {text.columns.estimate}
                </th>
                <th scope="col" class="number">
                  {text.columns.difference}
                </th>
              </>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, name: word }) => {
            const part = summary.parts.find((one) => one.category === key);
            return (
              <>
                <tr key={key}>
                  <th scope="row">
                    <svg class="swatch" width={12} height={12} aria-hidden="true">
                      <rect class={`fill cat-${key}`} width={12} height={12} />
                    </svg>{' '}
                    {part ? (
                      <button
                        type="button"
                        class="plain"
                        aria-expanded={open.value === key}
                        onClick={() => (open.value = open.value === key ? null : key)}
                      >
                        {word}
                      </button>
                    ) : (
                      word
                    )}
                  </th>
                  <Bytes value={measured(key)} />
                  {rank && (
                    <>
                      <Bytes value={estimated(key)} />
                      <Bytes value={measured(key) - estimated(key)} signed />
                    </>
                  )}
                </tr>
                {open.value === key &&
                  part?.largest.map(({ where, bytes }) => (
                    <tr key={where} class="place">
                      <th scope="row">
                        <code>{where}</code>
                      </th>
                      <Bytes value={bytes} />
                      {rank && (
                        <>
                          <td />
                          <td />
                        </>
                      )}
                    </tr>
                  ))}
              </>
            );
          })}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">{text.allocated}</th>
            <Bytes value={summary.allocated} />
            {rank && (
              <>
                <Bytes value={rank.peak_allocated} />
                <Bytes value={summary.allocated - rank.peak_allocated} signed />
              </>
            )}
          </tr>
          <tr>
            <th scope="row">{text.overhead}</th>
            <Bytes value={overhead} />
            {rank && (
              <>
                <Bytes value={estimated('allocator_overhead')} />
                <Bytes value={overhead - estimated('allocator_overhead')} signed />
              </>
            )}
          </tr>
        </tfoot>
      </table>
    </div>
  );
}

function Bytes({ value, signed = false }: { value: number; signed?: boolean }) {
  const small = Math.abs(value) < GIB / 1000; // shown as “< 0.001”
  const sign = small ? '' : value < 0 ? '−' : signed ? '+' : '';
  return (
    <td class="number" title={exactBytes(value)}>
      {sign}
      {gib(Math.abs(value))}
    </td>
  );
}
