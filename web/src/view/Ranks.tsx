import { askEstimate, presentSpec } from '../aside';
import { isStaged, type Method } from '../choice/methods';
import { decidingRank, type LedgerEntry, type RankReport, type Report } from '../core/answer';
import { choice } from '../store';
import { ranks as text } from '../text/views';
import { categories, categoryOf } from './categories';
import { NumbersTable, useWidth, Waiting } from './Chart';
import { count, exactBytes, gib } from './format';
import { present, useAsked } from './useAnswer';

const BAR = 18; // px
const NAME = 86; // px, of a stage's name
const MOST = 32; // stages that are looked at

/** Where ranks differ, each of them; the worst one decides. */
export default function Ranks({ method, report }: { method: Method; report: Report }) {
  if (isStaged(method, choice.value.settings)) return <Stages method={method} report={report} />;
  const { ranks } = decidingRank(report);
  const all = choice.value.settings.gpus;
  return (
    <p>
      {method === 'none'
        ? text.alone
        : text.same(count(Math.max(all, ranks.length)), report.verdict.rank)}
    </p>
  );
}

function Stages({ method, report }: { method: Method; report: Report }) {
  const { gpus } = choice.value.settings;
  const stages = Array.from({ length: Math.min(gpus, MOST) }, (_, stage) => stage);
  const asked = useAsked(presentSpec(method, 0) ?? '', async (signal) => {
    const reports: RankReport[] = [];
    for (const stage of stages) {
      const spec = presentSpec(method, stage);
      if (!spec) return undefined;
      const answer = await askEstimate(spec, signal);
      if (answer.kind !== 'report') throw new Error(text.noEstimate(stage));
      reports.push({ ...decidingRank(answer.report), ranks: [stage] });
    }
    return reports;
  });
  const reports = present(asked);
  if (asked.state === 'failed') return <p class="fault">{asked.message}</p>;
  if (!reports) return <Waiting>{text.waits(stages.length)}</Waiting>;
  return <StageBars reports={reports} capacity={report.verdict.capacity} />;
}

function StageBars({ reports, capacity }: { reports: RankReport[]; capacity: number | null }) {
  const [frame, width] = useWidth<HTMLDivElement>();
  const most = Math.max(...reports.map(({ device_total }) => device_total));
  const end = 1.04 * Math.max(most, capacity !== null && capacity < 1.6 * most ? capacity : 0);
  const x = (bytes: number) => NAME + (bytes / end) * Math.max(1, width - NAME - 64);
  const worst = reports.findIndex(({ device_total }) => device_total === most);
  const height = reports.length * (BAR + 8) + 4;
  return (
    <>
      <h3>{text.title}</h3>
      <p class="quiet">{text.worst(worst, gib(most))}</p>
      <div ref={frame}>
        <svg class="segments" width={width} height={height} viewBox={`0 0 ${width || 1} ${height}`} aria-hidden="true">
          {reports.map((rank, stage) => (
            <g key={stage} transform={`translate(0,${stage * (BAR + 8)})`}>
              <text class="stage-name" x={0} y={BAR / 2} dominant-baseline="central">
                {text.stage(stage)}
              </text>
              {spans(rank.ledger).map(({ category, from, to }) => (
                <g key={category} class={`cat-${category}`}>
                  <title>{`${categoryOf(category).name}: ${gib(to - from)} GiB (${exactBytes(to - from)})`}</title>
                  <rect class="fill" x={x(from)} width={x(to) - x(from)} height={BAR} />
                  <rect class="texture" x={x(from)} width={x(to) - x(from)} height={BAR} fill={`url(#texture-${category})`} />
                </g>
              ))}
              <text class={stage === worst ? 'stage-name worst' : 'stage-name'} x={x(rank.device_total) + 6} y={BAR / 2} dominant-baseline="central">
                {gib(rank.device_total)}
              </text>
            </g>
          ))}
          {capacity !== null && capacity <= end && <line class="capacity" x1={x(capacity)} x2={x(capacity)} y1={0} y2={height} />}
        </svg>
      </div>
      <NumbersTable
        caption={text.table}
        rows={[
          text.columns,
          ...reports.map((rank, stage) => [String(stage), gib(rank.peak_allocated), gib(rank.peak_reserved), gib(rank.device_total)]),
        ]}
      />
    </>
  );
}

function spans(ledger: readonly LedgerEntry[]) {
  let to = 0;
  return categories.flatMap(({ key: category }) => {
    const bytes = ledger.find((entry) => entry.category === category)?.bytes ?? 0;
    const from = to;
    to += bytes;
    return bytes > 0 ? [{ category, from, to }] : [];
  });
}
