import { modelName } from '../choice/choice';
import { busy, choice, config } from '../store';
import { masthead } from '../text/page';
import { clusterInWords, recipeInWords } from './asked';
import { fromFile, openFromFile } from './fromFile';
import { Complaints } from './Complaints';
import { Details } from './Details';
import { Bars } from './Bars';
import { History } from './History';
import { Inputs } from './Inputs';
import { Later } from './Later';
import { Lazy } from './Lazy';
import { ProblemList } from './Problems';
import { Share } from './Share';
import { Verdict } from './Verdict';

/** On paper, where there are no controls. */
function Asked() {
  const { model, settings } = choice.value;
  return (
    <p class="only-print">
      {modelName(model)} · {recipeInWords(settings)} · {clusterInWords(settings)}
    </p>
  );
}

export function Page() {
  return (
    <>
      <header class="masthead">
        <h1>{masthead.name}</h1>
        <p>{masthead.claim}</p>
        <button type="button" class="plain from-file-open" aria-expanded={fromFile.value} onClick={openFromFile}>
          {masthead.fromFile}
        </button>
        <History />
      </header>
      <div class="columns">
        <Inputs />
        <main class="answers">
          {fromFile.value && <Lazy load={() => import('./FromFile')} with={{}} height={240} />}
          <Complaints />
          <Asked />
          <Verdict />
          <ProblemList />
          <Bars />
          <Later ready={!busy.value && config.value.state !== 'loading'}>
            <Share />
            <Details />
          </Later>
        </main>
      </div>
    </>
  );
}
