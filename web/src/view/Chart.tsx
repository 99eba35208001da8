import { useSignal } from '@preact/signals';
import type { ComponentChildren, RefObject } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Copied, saveImage, saveText, svgText } from './exports';
import { chart as text } from '../text/views';

/** Width of an element in px, as it changes. */
export function useWidth<Kind extends HTMLElement>(): [RefObject<Kind | null>, number] {
  const element = useRef<Kind>(null);
  const width = useSignal(0);
  useLayoutEffect(() => {
    const { current } = element;
    if (!current) return undefined;
    const measure = () => (width.value = current.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  return [element, width.value];
}

/** What can be done with a chart: its picture, and its numbers. `svg`: the drawing that is on the page, or its text; none: a table alone. */
export function ChartExports({ name, svg, table }: { name: string; svg?: () => SVGSVGElement | string | null; table: () => string[][] }) {
  const said = useSignal('');
  const picture = () => {
    const drawn = svg?.() ?? null;
    return drawn === null ? '' : typeof drawn === 'string' ? drawn : svgText(drawn);
  };
  return (
    <p class="exports quiet">
      {text.save}{' '}
      {svg && (
        <>
          <button type="button" class="plain" onClick={() => saveText(`${name}.svg`, picture(), 'image/svg+xml')}>
            SVG
          </button>{' '}
          <button type="button" class="plain" onClick={() => void saveImage(`${name}.png`, picture())}>
            PNG
          </button>{' '}
        </>
      )}
      <button type="button" class="plain" onClick={() => saveText(`${name}.csv`, csv(table()), 'text/csv')}>
        CSV
      </button>
      <Copied said={said.value} />
    </p>
  );
}

export function csv(rows: readonly string[][]): string {
  return rows.map((row) => row.map((cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell)).join(',')).join('\n') + '\n';
}

/** A chart's numbers, behind a fold. */
export function NumbersTable({ rows, caption }: { rows: readonly string[][]; caption: string }) {
  const [head = [], ...body] = rows;
  return (
    <details class="more">
      <summary>{text.numbers}</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
        <table>
          <caption class="spoken">{caption}</caption>
          <thead>
            <tr>
              {head.map((cell) => (
                <th scope="col" key={cell} class="number">
                  {cell}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {body.map((row) => (
              <tr key={row[0]}>
                {row.map((cell, index) => (index === 0 ? <th scope="row">{cell}</th> : <td class="number">{cell}</td>))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

export function Waiting({ children }: { children: ComponentChildren }) {
  return (
    <p class="quiet" role="status">
      {children}
    </p>
  );
}
