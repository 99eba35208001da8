import { modelName } from '../choice/choice';
import { choice, link } from '../store';
import { clusterInWords, recipeInWords } from './asked';
import { Bars } from './Bars';
import { Complaints } from './Complaints';
import { ProblemList } from './Problems';
import { Verdict } from './Verdict';

export function Embed() {
  const { model, settings } = choice.value;
  return (
    <main class="answers embed">
      <Complaints />
      <Verdict />
      <ProblemList />
      <Bars />
      <p class="quiet">
        {modelName(model)} · {recipeInWords(settings)} · {clusterInWords(settings)}{' '}
        <a href={`./index.html${link.value}`} target="_blank" rel="noopener">
          Open in LLMem
        </a>
      </p>
    </main>
  );
}
