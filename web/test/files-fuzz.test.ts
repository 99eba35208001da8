import fc from 'fast-check';
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { arrival } from '../src/choice/choice';
import { specOf } from '../src/choice/spec';
import { apply } from '../src/files/apply';
import { readFile } from '../src/files/index';

// Whatever becomes of a file on its way (cut, mixed up, values of other types), it is answered: never an exception, and what is
// taken over can be sent to the core and shown.

const cases = new URL('../../tests/cases/', import.meta.url);
const files = readdirSync(cases)
  .filter((file) => /^(r\d|b14|b17|b27|b28)/.test(file))
  .map((name) => ({ name, text: readFileSync(new URL(name, cases), 'utf8') }));
const presets = ['meta-llama/Llama-3.1-8B', 'Qwen/Qwen2.5-7B'];
const RUNS = Number(process.env.RUNS ?? 120);

const odd = fc.constantFrom(
  '',
  'null',
  '-1',
  '1e999',
  '0',
  '9007199254740993',
  '[]',
  '{}',
  '[1, [2]]',
  '{a: {b: 1}}',
  '"',
  "'",
  '*a',
  '&a',
  '!!float x',
  '${x}',
  '$(x)',
  'true',
  '\u0000',
  '\u2028',
  '<b>',
  '__proto__',
  '0x10',
  '1:30',
  '2020-01-01',
  '|',
  '>-',
  '#',
  '%',
  '`',
  '@',
  '\\',
  ']]',
  '--',
  '---',
  '...',
  '=',
);

/** One change of a text: a value replaced, a piece cut out or put elsewhere, a line of another file. */
const changes = fc.array(
  fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    length: fc.integer({ min: 0, max: 40 }),
    kind: fc.constantFrom('value', 'cut', 'insert', 'line', 'twice'),
    text: fc.oneof(odd, fc.string({ maxLength: 20 })),
    other: fc.nat(),
  }),
  { minLength: 1, maxLength: 6 },
);

test('changed files are answered', async () => {
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...files), changes, async ({ name, text: sound }, list) => {
      let text = sound;
      for (const { at, length, kind, text: piece, other } of list) {
        const where = Math.floor(at * text.length);
        if (kind === 'cut') text = text.slice(0, where) + text.slice(where + length);
        else if (kind === 'insert') text = text.slice(0, where) + piece + text.slice(where);
        else if (kind === 'twice') text += text.slice(where, where + 200);
        else {
          const lines = text.split('\n');
          const index = Math.floor(at * lines.length);
          const foreign = (files[other % files.length]?.text ?? '').split('\n');
          if (kind === 'line') lines.splice(index, 0, foreign[other % foreign.length] ?? '');
          else lines[index] = (lines[index] ?? '').replace(/([:=]\s*).*$/, `$1${piece}`);
          text = lines.join('\n');
        }
      }
      const begin = performance.now();
      const reading = await readFile(text, { presets }, name);
      expect(performance.now() - begin).toBeLessThan(5000);
      if (!reading.ok) {
        expect(reading.faults.length).toBeGreaterThan(0);
        for (const { message } of reading.faults) expect(message).not.toContain('This could not be read (');
        return;
      }
      const { spec, lines, kind } = reading.import;
      expect(JSON.parse(JSON.stringify(spec))).toEqual(spec);
      for (const line of lines) expect(line.text, line.key).toMatch(/\S/);
      const { choice } = apply(arrival(), 'fsdp2', spec, [kind]);
      expect(Number.isSafeInteger(choice.settings.micro_batch) && choice.settings.micro_batch >= 1).toBe(true);
      expect(Number.isSafeInteger(choice.settings.gpus) && choice.settings.gpus >= 1).toBe(true);
      specOf(choice, {}, 'ddp');
    }),
    { numRuns: RUNS, seed: 1066 },
  );
}, 120_000);

test('any text is answered', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(
        fc.string({ maxLength: 300, unit: 'binary' }),
        fc.string({ maxLength: 300 }),
        fc.json({ maxDepth: 4 }),
        fc.array(fc.tuple(fc.string({ maxLength: 12 }), odd)).map((pairs) => pairs.map(([key, value]) => `${key}: ${value}`).join('\n')),
      ),
      fc.constantFrom('', 'x.yml', 'x.json', 'x.toml', 'x.sh', 'x.py'),
      async (text, name) => {
        const reading = await readFile(text, { presets }, name);
        if (!reading.ok) for (const { message } of reading.faults) expect(message).not.toContain('This could not be read (');
      },
    ),
    { numRuns: RUNS, seed: 1815 },
  );
}, 120_000);
