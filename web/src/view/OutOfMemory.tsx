import { methodName } from '../choice/methods';
import { decidingRank } from '../core/answer';
import { explainOutOfMemory, type OutOfMemoryMessage } from '../files/oom';
import { choice, results, selected } from '../store';
import { oom as text } from '../text/files';
import { exactBytes, gib } from './format';

/** An out-of-memory message in words, beside what is estimated. */
export function OutOfMemory({ message }: { message: OutOfMemoryMessage | undefined }) {
  if (!message) {
    return (
      <>
        <h3>{text.bare}</h3>
        <p>{text.bareWhy}</p>
      </>
    );
  }
  const { shares, reasons } = explainOutOfMemory(message);
  const total = shares.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <div class="oom">
      <h3>{text.title(message.device, gib(message.tried), message.where)}</h3>
      {reasons.map((reason) => (
        <p key={reason}>{reason}</p>
      ))}
      {shares.length > 0 && (
        <table>
          <caption class="quiet">{text.shares}</caption>
          <thead>
            <tr>
              <th scope="col">{text.part}</th>
              <th scope="col" class="number">
                {text.gib}
              </th>
              <td aria-hidden="true" />
            </tr>
          </thead>
          <tbody>
            {shares.map((share) => (
              <tr key={share.name}>
                <th scope="row">
                  {share.name} <span class="quiet">{share.meaning}</span>
                </th>
                <td class="number" title={exactBytes(share.bytes)}>
                  {gib(share.bytes)}
                </td>
                <td class="gauge" aria-hidden="true">
                  <svg width="100%" height={10}>
                    <rect class="part-of" width={`${(100 * share.bytes) / total}%`} height={10} />
                  </svg>
                </td>
              </tr>
            ))}
          </tbody>
          {message.capacity !== null && (
            <tfoot>
              <tr>
                <th scope="row">{text.gpu}</th>
                <td class="number" title={exactBytes(message.capacity)}>
                  {gib(message.capacity)}
                </td>
                <td aria-hidden="true" />
              </tr>
            </tfoot>
          )}
        </table>
      )}
      <BesideEstimate message={message} />
    </div>
  );
}

function BesideEstimate({ message }: { message: OutOfMemoryMessage }) {
  const method = selected.value;
  const { answer } = results.value[method];
  if (answer?.kind !== 'report') return <p class="quiet">{text.none}</p>;
  const rank = decidingRank(answer.report);
  const { capacity } = answer.report.verdict;
  const { allocated, unallocated, tried } = message;
  const { allocated: one, reserved: two, outside: three, gpu: four } = text.rows;
  const rows: [...(typeof one | typeof two | typeof three | typeof four), number | null, number | null][] = [
    [...one, allocated === null ? null : allocated + tried, rank.peak_allocated],
    [...two, allocated === null ? null : allocated + (unallocated ?? 0), rank.peak_reserved],
    [...three, outsideOf(message), rank.outside.used],
    [...four, message.capacity, capacity],
  ];
  const needs = allocated !== null ? allocated + tried - rank.peak_allocated : 0;
  return (
    <>
      <table>
        <caption class="quiet">{text.beside(methodName(method, choice.value.settings))}</caption>
        <thead>
          <tr>
            <td />
            <th scope="col" class="number">
              {text.message}
            </th>
            <th scope="col" class="number">
              {text.estimate}
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, meaning, said, estimated]) => (
            <tr key={name}>
              <th scope="row">
                {name} <span class="quiet">{meaning}</span>
              </th>
              <td class="number" title={said === null ? undefined : exactBytes(said)}>
                {said === null ? '—' : gib(said)}
              </td>
              <td class="number" title={estimated === null ? undefined : exactBytes(estimated)}>
                {estimated === null ? '—' : gib(estimated)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {allocated !== null && (
        <p>
          {needs > 0.02 * rank.peak_allocated
            ? text.more(gib(needs))
            : answer.report.verdict.status.startsWith('fits')
              ? text.fits
              : text.doesNot(rank.out_of_memory?.what)}
        </p>
      )}
    </>
  );
}

function outsideOf({ process, allocated, unallocated }: OutOfMemoryMessage): number | null {
  return process === null || allocated === null ? null : Math.max(0, process - allocated - (unallocated ?? 0));
}
