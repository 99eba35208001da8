import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { count, gib, GIB } from '../src/view/format';

describe('numbers are written as Intl writes them in English', () => {
  const exact = new Intl.NumberFormat('en');
  const three = new Intl.NumberFormat('en', { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });

  it('whole', () => {
    fc.assert(fc.property(fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }), (value) => void expect(count(value)).toBe(exact.format(value))));
  });

  it('with three significant figures', () => {
    const numbers = fc.oneof(fc.double({ min: 0.001, max: 999.4, noNaN: true }), fc.integer({ min: 1, max: 999 }));
    fc.assert(fc.property(numbers, (value) => void expect(gib(value * GIB)).toBe(three.format((value * GIB) / GIB))));
    expect(gib(999.6 * GIB)).toBe(three.format(999.6));
  });
});
