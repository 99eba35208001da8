import { Complaints } from './Complaints';
import { Details } from './Details';
import { Bars } from './Bars';
import { Inputs } from './Inputs';
import { ProblemList } from './Problems';
import { Share } from './Share';
import { Verdict } from './Verdict';

export function Page() {
  return (
    <>
      <header class="masthead">
        <h1>LLMem</h1>
        <p>GPU memory for training a language model, played allocation by allocation</p>
      </header>
      <div class="columns">
        <Inputs />
        <main class="answers">
          <Complaints />
          <Verdict />
          <ProblemList />
          <Bars />
          <Share />
          <Details />
        </main>
      </div>
    </>
  );
}
