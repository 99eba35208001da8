import { scaleLinear } from 'd3-scale';
import { decidingRank } from '../core/answer';
import { best, choice, results } from '../store';
import { gpuName } from '../gpus';
import { outcomes } from '../text/page';
import { categories } from './categories';
import { GIB, gib } from './format';
import { answered, askedInWords } from './words';

// The bars as a drawing that stands alone: its title, its verdict, its legend, and what it was asked for.

const WIDTH = 960;
const EDGE = 24;
const ROW = 52;
const FONT = 'system-ui, sans-serif';

/** In the colours of the page's present theme. */
export function barsPicture(): string {
  const all = answered();
  const ink = colour('--ink');
  const quiet = colour('--quiet');
  const capacity = all.find(({ report }) => report.verdict.capacity !== null)?.report.verdict.capacity ?? null;
  const most = Math.max(capacity ?? 0, ...all.map(({ report }) => decidingRank(report).device_total), 1);
  const x = scaleLinear([0, most * 1.02], [EDGE, WIDTH - EDGE]);
  const said = best.value && results.value[best.value].answer;
  const sentence = said?.kind === 'report' ? (said.report.verdict.sentence.split(/(?<=\.) (?=[A-Z])/)[0] ?? '') : '';
  const top = 96;
  const shown = categories.filter(({ key }) => all.some(({ report }) => decidingRank(report).ledger.some(({ category, bytes }) => category === key && bytes > 0)));
  const bottom = top + all.length * ROW;
  const legendRows = Math.ceil(shown.length / 5);
  const height = bottom + 44 + legendRows * 20 + EDGE;
  const parts = [
    `<rect width="${WIDTH}" height="${height}" fill="${colour('--paper')}"/>`,
    text(EDGE, 40, sentence, ink, 22, 600),
    text(EDGE, 64, askedInWords(), quiet, 13),
    ...all.flatMap(({ name, report }, index) => {
      const y = top + index * ROW;
      const rank = decidingRank(report);
      let at = 0;
      const segments = categories.flatMap(({ key }) => {
        const bytes = rank.ledger.find(({ category }) => category === key)?.bytes ?? 0;
        const from = at;
        at += bytes;
        return bytes > 0 ? [`<rect x="${x(from).toFixed(2)}" y="${y + 8}" width="${(x(at) - x(from)).toFixed(2)}" height="24" fill="${fillOf(key)}" stroke="${colour('--paper')}"/>`] : [];
      });
      const { needed, status } = report.verdict;
      return [
        text(EDGE, y, name, ink, 14, 600),
        text(WIDTH - EDGE, y, `${gib(needed)} GiB ${outcomes[status]}`, status === 'does_not_fit' ? colour('--wrong') : ink, 14, 400, 'end'),
        ...segments,
      ];
    }),
    ...(capacity === null
      ? []
      : [
          `<line x1="${x(capacity)}" x2="${x(capacity)}" y1="${top - 2}" y2="${bottom}" stroke="${ink}" stroke-width="2"/>`,
          text(x(capacity) - 6, bottom + 2, `${gpuName(choice.value.settings.gpu)} has ${gib(capacity)} GiB`, ink, 12, 400, 'end'),
        ]),
    ...scaleLinear([0, (most * 1.02) / GIB], [EDGE, WIDTH - EDGE])
      .ticks(8)
      .map((tick) => text(x(tick * GIB), bottom + 18, String(tick), quiet, 12, 400, tick === 0 ? 'start' : 'middle')),
    ...shown.map(({ key, name }, index) => {
      const left = EDGE + (index % 5) * ((WIDTH - 2 * EDGE) / 5);
      const y = bottom + 44 + Math.floor(index / 5) * 20;
      return `<rect x="${left}" y="${y - 10}" width="12" height="12" fill="${fillOf(key)}"/>${text(left + 18, y, name, ink, 12)}`;
    }),
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" role="img" font-family="${FONT}"><title>${escaped(sentence)}</title>${parts.join('')}</svg>`;
}

function text(x: number, y: number, words: string, fill: string, size: number, weight = 400, anchor = 'start'): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" fill="${fill}" font-size="${size}" font-weight="${weight}" text-anchor="${anchor}">${escaped(words)}</text>`;
}

function escaped(words: string): string {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

/** What a custom property comes to in the present theme. */
function colour(property: string): string {
  return computed('', `var(${property})`);
}

function fillOf(category: string): string {
  return computed(`cat-${category}`, 'var(--fill)');
}

function computed(className: string, value: string): string {
  const probe = document.createElement('span');
  probe.className = className;
  probe.style.color = value;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
