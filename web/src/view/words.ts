import { modelName } from '../choice/choice';
import { methodName, methods, type Method } from '../choice/methods';
import { decidingRank, type Report } from '../core/answer';
import { best, choice, results } from '../store';
import { outcomes } from '../text/page';
import { clusterInWords, recipeInWords } from './asked';
import { categories } from './categories';
import { gib } from './format';

// What the page says, for elsewhere: as Markdown, as a table of numbers, as a drawing of its own.

export interface Answered {
  method: Method;
  name: string;
  report: Report;
}

export function answered(): Answered[] {
  return methods.flatMap((method) => {
    const { answer } = results.value[method];
    return answer?.kind === 'report' ? [{ method, name: methodName(method, choice.value.settings), report: answer.report }] : [];
  });
}

export function askedInWords(): string {
  const { model, settings } = choice.value;
  return `${modelName(model)} · ${recipeInWords(settings)} · ${clusterInWords(settings)}`;
}

export function markdown(address: string): string {
  const said = best.value && results.value[best.value].answer;
  const verdict = said?.kind === 'report' ? `${said.report.verdict.sentence}\n\n` : '';
  const rows = answered().map(({ name, report }) => {
    const { needed, capacity, status } = report.verdict;
    const rank = decidingRank(report);
    return `| ${name} | ${gib(rank.peak_allocated)} | ${gib(rank.peak_reserved)} | ${gib(needed)} | ${capacity === null ? 'not known' : gib(capacity)} | ${outcomes[status]} |`;
  });
  return `**${askedInWords()}**\n\n${verdict}| Method | Allocated, GiB | Reserved, GiB | nvidia-smi, GiB | GPU, GiB | Verdict |\n| --- | ---: | ---: | ---: | ---: | --- |\n${rows.join('\n')}\n\n[Open in LLMem](${address})\n`;
}

/** In bytes. */
export function barsTable(): string[][] {
  const all = answered();
  const keys = categories.map(({ key }) => key);
  return [
    ['method', 'status', 'needed', 'capacity', 'peak_allocated', 'peak_reserved', ...keys],
    ...all.map(({ name, report }) => {
      const rank = decidingRank(report);
      const parts = keys.map((key) => rank.ledger.find(({ category }) => category === key)?.bytes ?? 0);
      const { status, needed, capacity } = report.verdict;
      return [name, status, ...[needed, capacity ?? '', rank.peak_allocated, rank.peak_reserved, ...parts].map(String)];
    }),
  ];
}
