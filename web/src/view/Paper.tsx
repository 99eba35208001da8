import { useSignal } from '@preact/signals';
import { askCore } from '../aside';
import type { Json, JsonObject } from '../choice/choice';
import { DESCRIBED } from '../choice/fields';
import type { Largest, Paper as Answer, PaperMethod } from '../core/search';
import { choice } from '../store';
import { paper as text } from '../text/views';
import { Waiting } from './Chart';
import { count, gib, perSecond } from './format';
import { paperQuestion, specUnder, whyDifferent, type Side } from './paperChoice';
import { speedOf } from './search';

/** Algorithm 1 of the paper over its own estimates, beside ours of the same methods. */
export function Paper({ spec }: { spec: string }) {
  const sides = useSignal<{ of: string; answer: Answer; sides: Side[] } | undefined>(undefined);
  const state = useSignal('');
  const { settings } = choice.value;
  if (settings.gpu === DESCRIBED) return null;
  const start = async () => {
    state.value = text.waits;
    const { signal } = new AbortController();
    try {
      const base = JSON.parse(spec) as JsonObject;
      const answer = await askCore<Answer>('paper', [paperQuestion(base, settings)], signal);
      const found: Side[] = [];
      for (const paper of answer.methods) {
        const under: Json = specUnder(base, paper.method, settings.gpus);
        const ours = await askCore<Largest>('largest', [{ of: 'micro_batch', spec: under }], signal).catch(() => undefined);
        found.push({ paper, ours });
      }
      sides.value = { of: spec, answer, sides: found };
      state.value = '';
    } catch (error) {
      state.value = error instanceof Error ? error.message : String(error);
    }
  };
  const shown = sides.value?.of === spec ? sides.value : undefined;
  return (
    <>
      <h3>{text.title}</h3>
      <p>{text.about}</p>
      {!shown && (
        <div class="curve-state">
          <button type="button" onClick={() => void start()} disabled={state.value === text.waits}>
            {text.start}
          </button>
          {state.value && <Waiting>{state.value}</Waiting>}
        </div>
      )}
      {shown && <Beside {...shown} />}
    </>
  );
}

const name = (method: PaperMethod | 'offload') => (method === 'offload' ? text.offload : text.names[method]);

function Beside({ answer, sides }: { answer: Answer; sides: Side[] }) {
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={text.table}>
        <table class="advice">
          <thead>
            <tr>
              <th scope="col">{text.method}</th>
              {[text.batch, text.ours, text.peak, text.score, text.speed].map((column) => (
                <th key={column} scope="col" class="number">
                  {column}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sides.map(({ paper, ours }) => (
              <tr key={paper.method}>
                <th scope="row">{name(paper.method)}</th>
                <td class="number">{count(paper.largest_batch)}</td>
                <td class="number">{ours ? count(ours.largest) : '–'}</td>
                <td class="number">{gib(paper.peak)}</td>
                <td class="number">{count(paper.score / 2)}</td>
                <td class="number">{ours?.there ? perSecond(speedOf(ours.there)) : '–'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul class="notes">
        {whyDifferent(answer, sides, name).map((why) => (
          <li key={why}>{why}</li>
        ))}
      </ul>
    </>
  );
}
