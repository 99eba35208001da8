import type { Point, RankReport } from '../core/answer';
import { points as text } from '../text/page';
import { exactBytes, gib, pointName } from './format';

const columns: readonly { key: Exclude<keyof Point, 'at'>; name: string }[] = [
  { key: 'allocated', name: text.allocated },
  { key: 'peak_allocated', name: text.peak_allocated },
  { key: 'reserved', name: text.reserved },
  { key: 'peak_reserved', name: text.peak_reserved },
];

/** The counters of torch.cuda along the first two steps. */
export function Points({ rank }: { rank: RankReport }) {
  const most = Math.max(...rank.points.map((point) => point.peak_reserved));
  const peak = rank.points.find((point) => point.peak_allocated === rank.peak_allocated);
  return (
    <>
      <h3>{text.title}</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={text.region}>
        <table class="points">
          <thead>
            <tr>
              <th scope="col">{text.after}</th>
              <td class="gauge" />
              {columns.map(({ key, name }) => (
                <th scope="col" class="number" key={key}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rank.points.map((point) => (
              <tr key={point.at}>
                <th scope="row">{pointName(point.at)}</th>
                <td class="gauge">
                  <Gauge point={point} most={most} />
                </td>
                {columns.map(({ key }) => (
                  <td
                    class={key === 'peak_allocated' && point === peak ? 'number peak' : 'number'}
                    key={key}
                    title={exactBytes(point[key])}
                  >
                    {gib(point[key])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="quiet">{text.how}</p>
    </>
  );
}

/** What stays allocated as a bar, its peak as a tick, what is reserved as a frame. */
function Gauge({ point, most }: { point: Point; most: number }) {
  const percent = (bytes: number) => `${(100 * bytes) / most}%`;
  return (
    <svg width="100%" height={14} aria-hidden="true">
      <rect class="reserved" x="0" y={3} width={percent(point.reserved)} height={8} />
      <rect class="allocated" x="0" y={3} width={percent(point.allocated)} height={8} />
      <line x1={percent(point.peak_allocated)} x2={percent(point.peak_allocated)} y1={0} y2={14} />
    </svg>
  );
}
