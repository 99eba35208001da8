import { useSignal } from '@preact/signals';
import type { Applied } from '../files/apply';
import { kindNames, type Import, type Line, type Status } from '../files/draft';
import type { Reading } from '../files/index';
import type { Fault } from '../files/tree';
import { imports as text, statuses } from '../text/files';
import { focusControl } from './Control';
import { controlOf, Place } from './Problems';

interface Props {
  readings: readonly (Reading & { name: string })[];
  applied: Applied | undefined;
  onUndo?: () => void;
}

/** What was understood, assumed and ignored, line by line. */
export function ImportList({ readings, applied, onUndo }: Props) {
  const some = readings.some((one) => one.ok);
  return (
    <div class="imports">
      {some && (
        <p>
          {text.filled}{' '}
          {onUndo && (
            <button type="button" class="plain" onClick={onUndo}>
              {text.undo}
            </button>
          )}
        </p>
      )}
      {readings.map((one, index) => (
        <OneFile key={index} reading={one} />
      ))}
      {applied && applied.complaints.length > 0 && (
        <>
          <h3>{text.notHere}</h3>
          <ul class="faults">
            {applied.complaints.map(({ at, text }) => (
              <li key={at}>
                <code>{at}</code> {text}
              </li>
            ))}
          </ul>
        </>
      )}
    </div>
  );
}

function OneFile({ reading }: { reading: Reading & { name: string } }) {
  if (!reading.ok) {
    return (
      <>
        <h3>{text.unread(reading.name)}</h3>
        <Faults faults={reading.faults} />
      </>
    );
  }
  const { kind, lines, faults } = reading.import;
  const asked = lines.filter(({ status }) => status === 'asked');
  return (
    <>
      <h3>
        {reading.name && `${reading.name}: `}
        {kindNames[kind]}
      </h3>
      {faults.length > 0 && (
        <>
          <p>{text.someUnread}</p>
          <Faults faults={faults} />
        </>
      )}
      {asked.length > 0 && (
        <>
          <p>{text.open}</p>
          <ul class="asked">
            {asked.map((line) => (
              <li key={line.key}>
                <Asked line={line} />
              </li>
            ))}
          </ul>
        </>
      )}
      <Lines made={reading.import} />
    </>
  );
}

function Asked({ line }: { line: Line }) {
  const at = line.at[0] === '/parallel/data/degree' ? 'gpus' : controlOf(line.at[0] ?? '');
  if (!at) return <>{line.text}</>;
  return (
    <>
      <button type="button" class="plain" onClick={() => focusControl(at)}>
        {line.key[0]?.toUpperCase() ?? ''}
        {line.key.slice(1)}
      </button>
      : {line.text}
    </>
  );
}

function Faults({ faults }: { faults: readonly Fault[] }) {
  return (
    <ul class="faults">
      {faults.map((fault, index) => (
        <li key={index} class="fault">
          {fault.line > 0 && `${text.atLine(fault.line)} `}
          {fault.key && <code>{fault.key}</code>} {fault.message}
          {fault.value && !fault.message.includes(fault.value) && (
            <>
              {' '}
              — <code>{fault.value}</code>
            </>
          )}
        </li>
      ))}
    </ul>
  );
}

function Lines({ made }: { made: Import }) {
  const shown = useSignal<Status | 'all'>('all');
  const lines = made.lines.filter(({ status }) => status !== 'asked' && (shown.value === 'all' || shown.value === status));
  const count = (status: Status) => made.lines.filter((line) => line.status === status).length;
  const present = (['understood', 'assumed', 'ignored'] as const).filter((status) => count(status) > 0);
  return (
    <>
      <div class="statuses" role="group" aria-label={text.which}>
        {(['all', ...present] as const).map((status) => (
          <button key={status} type="button" aria-pressed={shown.value === status} onClick={() => (shown.value = status)}>
            {status === 'all' ? text.all(made.lines.length - count('asked')) : `${count(status)} ${statuses[status].name}`}
          </button>
        ))}
      </div>
      <div class="lines" tabIndex={0} role="region" aria-label={text.byLine}>
        <table>
          <thead>
            <tr>
              <th scope="col" class="number">
                {text.columns.line}
              </th>
              <th scope="col">{text.columns.setting}</th>
              <th scope="col">{text.columns.became}</th>
            </tr>
          </thead>
          <tbody>
            {lines.map((line, index) => (
              <tr key={index}>
                <td class="number quiet">{line.line > 0 ? line.line : ''}</td>
                <th scope="row">
                  <code>{line.key}</code>
                  {line.value && (
                    <>
                      {' '}
                      <code class="quiet">{line.value}</code>
                    </>
                  )}
                </th>
                <td>
                  <span class={`status status-of-${line.status}`} title={statuses[line.status].meaning}>
                    {statuses[line.status].name}
                  </span>{' '}
                  {line.text} {line.at.length === 1 && <Place at={line.at[0] ?? ''} />}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
