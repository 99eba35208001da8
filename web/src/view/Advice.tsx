import { askCore, presentSpec } from '../aside';
import type { JsonObject } from '../choice/choice';
import { methodName, type Method } from '../choice/methods';
import type { Advised, Summary } from '../core/search';
import { changeAll, choice } from '../store';
import { outcomes } from '../text/page';
import { advice as text, chart as chartText } from '../text/views';
import { Waiting } from './Chart';
import { exactBytes, gib, seconds } from './format';
import { Paper } from './Paper';
import { choiceOf } from './search';
import { Strategies } from './Strategies';
import { present, useAsked } from './useAnswer';

/** What to change, and what else to run: each suggestion was estimated before it is made. */
export default function Advice({ method }: { method: Method }) {
  const spec = presentSpec(method);
  if (!spec) return <Waiting>{text.waitsForModel}</Waiting>;
  return (
    <>
      <WhatToChange spec={spec} method={method} />
      <Strategies spec={spec} />
      <Paper spec={spec} />
    </>
  );
}

export function apply(spec: string, change: JsonObject): void {
  changeAll(choiceOf(choice.peek(), JSON.parse(spec) as JsonObject, change));
}

function WhatToChange({ spec, method }: { spec: string; method: Method }) {
  const asked = useAsked(spec, (signal) => askCore<Advised>('advise', [spec], signal));
  const advised = present(asked);
  const name = methodName(method, choice.value.settings);
  return (
    <>
      <h3>{text.what(name)}</h3>
      {asked.state === 'failed' && <p class="fault">{asked.message}</p>}
      {!advised && asked.state === 'waiting' && <Waiting>{text.trying}</Waiting>}
      {advised && advised.advice.length === 0 && <p>{'fits' in advised.now && advised.now.fits ? text.noneFaster : text.noneFits}</p>}
      {advised && advised.advice.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label={text.table}>
          <table class="advice">
            <thead>
              <tr>
                <th scope="col">{text.change}</th>
                <th scope="col" class="number">
                  GiB
                </th>
                <th scope="col" class="number">
                  {text.step}
                </th>
                <td />
              </tr>
            </thead>
            <tbody>
              {advised.advice.map(({ label, change, changes_result, after }) => (
                <tr key={label}>
                  <th scope="row">
                    {label} {changes_result && <span class="quiet">{text.other}</span>}
                  </th>
                  <Numbers of={after} />
                  <td class="number">
                    <button type="button" onClick={() => apply(spec, change)} aria-label={text.applyThis(label)}>
                      {chartText.apply}
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

export function Numbers({ of }: { of: Summary }) {
  return (
    <>
      <td class="number" title={of.exact ? exactBytes(of.needed) : text.atLeast}>
        {(of.status === 'fits_barely' || of.status === 'fits_after_retry') && <span class="quiet">{outcomes[of.status]} </span>}
        {of.exact ? '' : '≥ '}
        {gib(of.needed)}
      </td>
      <td class="number">{of.microseconds > 0 ? seconds(of.microseconds) : '–'}</td>
    </>
  );
}
