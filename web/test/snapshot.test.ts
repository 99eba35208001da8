import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { PickleError, readPickle } from '../src/files/pickle';
import { readSnapshot, SnapshotError } from '../src/files/snapshot';

const file = () => new Uint8Array(gunzipSync(readFileSync(new URL('../../tests/data/snapshot.pickle.gz', import.meta.url))));

/** Text in which \xNN is a byte. */
const bytes = (text: string) => Uint8Array.from(text, (character) => character.charCodeAt(0));

describe('a memory snapshot', () => {
  test('the peak of a real one, by category (tests/data/README.md)', () => {
    const summary = readSnapshot(file());
    expect(summary).toMatchObject({
      device: 0,
      events: 2022,
      allocated: 19374080,
      peakReserved: 25165824,
      end: { reserved: 25165824 },
      before: 0,
      outOfMemory: null,
    });
    const parts = Object.fromEntries(summary.parts.map(({ category, bytes }) => [category, bytes]));
    // Of these every tensor is told apart: the same bytes as the core's ledger of this run.
    expect(parts).toMatchObject({ weights: 282112, optimizer_states: 562176, attention: 104448, mlp: 262144, workspaces: 17039360 });
    expect(summary.parts.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(summary.allocated);
    expect(summary.parts.find(({ category }) => category === 'optimizer_states')?.largest[0]?.where).toMatch(
      /^_init_group \(optim\/adam\.py:\d+\)$/,
    );
  });

  test('without a recording there is the end alone', () => {
    // {"segments": [{"device": 0, "address": 4096, "total_size": 2097152, "blocks": [{"size": 1024, "state": "active_allocated"}, {"size": 2096128, "state": "inactive"}]}], "device_traces": [[]]}
    const text =
      '\x80\x04}(\x8c\x08segments](}(\x8c\x06deviceK\x00\x8c\x07addressM\x00\x10\x8c\x0atotal_sizeJ\x00\x00\x20\x00\x8c\x06blocks](}(\x8c\x04sizeM\x00\x04\x8c\x05state\x8c\x10active_allocatedu}(\x8c\x04sizeJ\x00\xfc\x1f\x00\x8c\x05state\x8c\x08inactiveueue\x8c\x0ddevice_traces](]eu.';
    const summary = readSnapshot(bytes(text));
    expect(summary).toMatchObject({ events: 0, allocated: 1024, reserved: 2097152, end: { allocated: 1024, reserved: 2097152 } });
  });

  test.each([
    ['a list', '\x80\x04].', /no “segments”/],
    ['a dictionary of others', '\x80\x04}\x8c\x01aK\x01s.', /no “segments”/],
    ['one that calls a function', "cos\nsystem\n(S'echo gotcha'\ntR.", /GLOBAL.*plain data/],
    ['one that calls a function, newer', '\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.', /STACK_GLOBAL/],
    ['one that breaks off', '\x80\x04}(\x8c\x08segments', /breaks off/],
    ['one with a length beyond its end', '\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f', /longer than the pickle/],
    ['one with a number of a million digits', '\x80\x04\x8b\x40\x42\x0f\x00', /too long/],
    ['an empty stack', '\x80\x04s.', /stack is empty/],
    ['a memo of nothing', '\x80\x04j\xff\xff\xff\x7f.', /no such entry/],
    ['a mark of nothing', '\x80\x04e.', /mark is missing/],
    ['text', 'hello', /.../],
  ])('%s is refused', (_, text, message) => {
    expect(() => readSnapshot(bytes(text))).toThrow(SnapshotError);
    expect(() => readSnapshot(bytes(text))).toThrow(message);
  });

  test('any byte changed, any part left out: a summary or a SnapshotError, soon', () => {
    const sound = file();
    let seed = 7;
    const random = (below: number) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % below;
    for (let round = 0; round < 24; round++) {
      const broken = round % 2 === 0 ? sound.slice(0, random(sound.length)) : sound.slice();
      for (let change = 0; change < 3 && broken.length > 0; change++) broken[random(broken.length)] = random(256);
      try {
        const summary = readSnapshot(broken);
        expect(Number.isFinite(summary.allocated)).toBe(true);
      } catch (error) {
        expect(error).toBeInstanceOf(SnapshotError);
      }
    }
  });
});

describe('pickles of plain data', () => {
  test.each<[string, string, unknown]>([
    ['protocol 0', '(lp0\nI1\naI-2\naL123456789012345678901234567890L\naF1.5\naI01\naVabc\nag0\na.', undefined],
    [
      'numbers',
      '\x80\x04(K\x07M\x01\x02J\xff\xff\xff\xff\x8a\x02\x00\x80G?\xf0\x00\x00\x00\x00\x00\x00\x88\x89Nt.',
      [7, 513, -1, -32768, 1, true, false, null],
    ],
    ['memo', '\x80\x04]\x94(h\x00e.', undefined],
    ['a large address', '\x80\x04\x8a\x06\x00\x00\x00\xae\x5d\x7f.', 0x7f5dae000000],
  ])('%s', (_, text, expected) => {
    const value = readPickle(bytes(text));
    if (expected !== undefined) expect(value).toEqual(expected);
  });

  test('a list in itself does not hang what reads it', () => {
    expect(() => readSnapshot(bytes('\x80\x04}(\x8c\x08segments]\x94(h\x00e\x8c\x0ddevice_traces](h\x00eu.'))).not.toThrow();
    expect(() => readPickle(bytes('\x80\x04c'))).toThrow(PickleError);
  });
});
