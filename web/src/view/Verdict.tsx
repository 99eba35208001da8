import { methodName, methods } from '../choice/methods';
import { best, busy, choice, config, estimateAll, results, selected, settled } from '../store';
import { verdict as text } from '../text/page';

/** The answer in one sentence. */
export function Verdict() {
  return (
    <section class="verdict" aria-live="polite" aria-atomic="true" aria-busy={busy.value}>
      <Sentence />
    </section>
  );
}

function Sentence() {
  const method = best.value;
  const answer = method && settled.value[method].answer;
  if (config.value.state === 'failed') return <p class="status-does_not_fit">{config.value.message}</p>;
  if (answer?.kind === 'report') {
    const { status, sentence } = answer.report.verdict;
    // "It fails in the first optimizer step, …" reads better below.
    const [answered, ...more] = sentence.split(/(?<=\.) (?=[A-Z])/);
    // One of the stages decides, and the sentence is about it.
    const others = answer.report.ranks.length - 1;
    if (others > 0) more.push(text.stages(others));
    return (
      <>
        <p class={`status-${status}`}>{answered}</p>
        {more.length > 0 && <p>{more.join(' ')}</p>}
        <Others />
        <Refused />
      </>
    );
  }
  if (busy.value || config.value.state === 'loading') return <p class="waiting">{text.waits}</p>;
  const crashed = methods.map((one) => results.value[one].answer).find((one) => one?.kind === 'crashed');
  if (crashed?.kind === 'crashed') return <Crash message={crashed.message} />;
  return <p class="status-does_not_fit">{text.none}</p>;
}

/** The method that was asked for, where the sentence has to be about another one. */
function Refused() {
  const method = selected.value;
  const { answer } = settled.value[method];
  if (choice.value.settings.data === 'best' || method === best.value || answer?.kind !== 'problems') return null;
  return <p class="status-does_not_fit">{text.refused(methodName(method, choice.value.settings), answer.problems.map(({ message }) => message).join('; '))}</p>;
}

function Others() {
  const statuses = methods.flatMap((method) => {
    const { answer } = settled.value[method];
    return answer?.kind === 'report' ? [answer.report.verdict.status] : [];
  });
  const named = best.value && settled.value[best.value].answer;
  const timed = named?.kind === 'report' && (named.report.step_time ?? null) !== null;
  const fitting = statuses.filter((status) => status.startsWith('fits')).length;
  if (statuses.length < 2 || statuses.includes('unknown')) return null;
  return <p class="quiet">{text.others(fitting, statuses.length, timed)}</p>;
}

function Crash({ message }: { message: string }) {
  return (
    <>
      <p class="status-does_not_fit">{text.broke}</p>
      <p class="quiet">
        <code>{message}</code>{' '}
        <button type="button" onClick={estimateAll}>
          {text.again}
        </button>
      </p>
    </>
  );
}
