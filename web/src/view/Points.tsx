import type { Point, RankReport } from '../core/answer';
import { exactBytes, gib, pointName } from './format';

const columns: readonly { key: Exclude<keyof Point, 'at'>; name: string }[] = [
  { key: 'allocated', name: 'Allocated' },
  { key: 'peak_allocated', name: 'Peak allocated' },
  { key: 'reserved', name: 'Reserved' },
  { key: 'peak_reserved', name: 'Peak reserved' },
];

/** The counters of torch.cuda along the first two steps. */
export function Points({ rank }: { rank: RankReport }) {
  const most = Math.max(...rank.points.map((point) => point.peak_allocated));
  return (
    <>
      <h3>Along the step</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Memory at each point of the step">
        <table class="points">
          <thead>
            <tr>
              <th scope="col">After, GiB</th>
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
                {columns.map(({ key }) => (
                  <td
                    class={key === 'peak_allocated' && point[key] === most ? 'number peak' : 'number'}
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
      <p class="quiet">Peaks are since the step began: torch.cuda.max_memory_allocated() and max_memory_reserved().</p>
    </>
  );
}
