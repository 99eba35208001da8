import { modelName } from '../choice/choice';
import { fieldKeys, type FieldKey } from '../choice/fields';
import { choice, link } from '../store';
import { embed as text } from '../text/page';
import { clusterInWords, recipeInWords } from './asked';
import { Bars } from './Bars';
import { Complaints } from './Complaints';
import { SettingControl } from './Control';
import { Details } from './Details';
import { Inputs } from './Inputs';
import { ModelPicker } from './ModelPicker';
import { ProblemList } from './Problems';
import { Verdict } from './Verdict';

/** How much of it a host lets its readers change: nothing, the settings that it names, or everything. */
export type Mode = 'read-only' | 'pick' | 'full';

export interface Embedded {
  mode: Mode;
  pick: readonly (FieldKey | 'model')[];
}

/** embed.html?mode=pick&pick=gpus,micro_batch */
export function embeddedAs(query: URLSearchParams): Embedded {
  const mode = query.get('mode');
  const pick = (query.get('pick') ?? '')
    .split(/[\s,]+/)
    .flatMap((name): (FieldKey | 'model')[] => (name === 'model' ? ['model'] : fieldKeys.filter((key) => key === name && key !== 'data')))
    .slice(0, 6);
  if (mode === 'full') return { mode, pick: [] };
  return pick.length > 0 && mode !== 'read-only' ? { mode: 'pick', pick } : { mode: 'read-only', pick: [] };
}

export function Embed({ mode, pick }: Embedded) {
  const answers = (
    <main class="answers embed">
      <h1 class="spoken">{text.title}</h1>
      <Complaints />
      {mode === 'pick' && (
        <form class="picks" aria-label={text.picks} onSubmit={(event) => event.preventDefault()}>
          {pick.map((key) => (key === 'model' ? <ModelPicker key={key} /> : <SettingControl key={key} of={key} />))}
        </form>
      )}
      <Verdict />
      <ProblemList />
      <Bars />
      {mode === 'full' && <Details />}
      <Asked />
    </main>
  );
  if (mode !== 'full') return answers;
  return (
    <div class="columns embedded">
      <Inputs />
      {answers}
    </div>
  );
}

function Asked() {
  const { model, settings } = choice.value;
  return (
    <p class="quiet">
      {modelName(model)} · {recipeInWords(settings)} · {clusterInWords(settings)}{' '}
      <a href={`./index.html${link.value}`} target="_blank" rel="noopener">
        {text.open}
      </a>
    </p>
  );
}
