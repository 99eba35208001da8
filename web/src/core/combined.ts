import { decidingRank, type Report } from './answer';
import type { Answer } from './estimator';

/** The answers to one method, rank by rank, as one: the rank that needs most decides, and what is wrong with any is wrong with all. */
export function combined(answers: readonly Answer[]): Answer {
  const [first, ...rest] = answers;
  if (!first) throw new Error('no answers to combine');
  const wrong = answers.find((answer) => answer.kind !== 'report');
  if (wrong || rest.length === 0) return wrong ?? first;
  const reports = answers.flatMap((answer) => (answer.kind === 'report' ? [answer.report] : []));
  const worst = reports.reduce((most, report) => (report.verdict.needed > most.verdict.needed ? report : most));
  return { kind: 'report', report: { ...worst, ranks: reports.map(playedRank) } };
}

/** The one rank a report is about, under its own number. */
function playedRank(report: Report) {
  const rank = decidingRank(report);
  return { ...rank, ranks: [report.verdict.rank] };
}
