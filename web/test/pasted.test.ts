import { expect, it } from 'vitest';
import { placeOf, readPasted } from '../src/choice/pasted';

const faults = (text: string) => readPasted(text).faults.map(({ line, column, message }) => `${line}:${column} ${message}`);

it('reads what JSON.parse reads', () => {
  const text = '{"a": [1, -2.5e3, true, null, "x\\n\\u00e9"], "b": {"c": {}}, "__proto__": 1}';
  expect(readPasted(text)).toMatchObject({ faults: [] });
  expect(JSON.stringify(readPasted(text).config)).toBe(JSON.stringify(JSON.parse(text)));
});

it('lists every fault with its place', () => {
  expect(
    faults(`{
  'model_type': "llama",
  hidden_size: 4096
  "use_cache": True,
  "tie": None, // never
  "layers": 32x,
  "list": [1, 2,],
  "layers": 3,
}`),
  ).toEqual([
    '2:3 Text stands in double quotes: "model_type".',
    '3:3 A name stands in double quotes: "hidden_size".',
    '4:3 A “,” is missing before this.',
    '4:16 “True” is Python; JSON writes true.',
    '5:10 “None” is Python; JSON writes null.',
    '5:16 JSON has no comments.',
    '6:13 “32x” is no JSON value.',
    '7:16 A “,” may not stand before “]”.',
    '8:3 “layers” is given twice.',
    '8:14 A “,” may not stand before “}”.',
  ]);
});

it.each([
  ['', '1:1 Nothing is pasted yet.'],
  ['[1]', '1:1 A config.json is an object: { "model_type": … }.'],
  ['{"a": 1', '1:8 A “}” is missing.'],
  ['{"a": "b', '1:7 The text that begins here has no closing ".'],
  ['{"a": }', '1:7 A value is missing here.'],
  ['{} {}', '1:4 Nothing may follow the end, but “{}” does.'],
  ['{"a": Infinity}', '1:7 “Infinity” is no JSON value.'],
])('%s', (text, fault) => {
  expect(faults(text)[0]).toBe(fault);
  expect(readPasted(text).config).toBeUndefined();
});

it('comes to an end on any text', () => {
  const letters = '{}[]",:\'\\ \n/*#1aT-';
  let seed = 7;
  const random = (below: number) => (seed = (seed * 48271) % 2147483647) % below;
  for (let round = 0; round < 2000; ++round) {
    const text = Array.from({ length: random(30) }, () => letters[random(letters.length)]).join('');
    const { config, faults: found } = readPasted(text);
    if (found.length === 0) expect(config).toEqual(JSON.parse(text));
  }
});

it('finds a place in the text for a pointer, or for the nearest thing around it', () => {
  const text = '{\n  "a/b": {\n    "c": [1,\n 2]\n  }\n}';
  const { places } = readPasted(text);
  expect(placeOf(text, places, '/a~1b/c/1')).toEqual({ line: 4, column: 2 });
  expect(placeOf(text, places, '/a~1b/missing')).toEqual({ line: 2, column: 10 });
  expect(placeOf(text, places, '')).toEqual({ line: 1, column: 1 });
});
