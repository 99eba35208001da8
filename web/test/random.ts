import { defaultSettings, field, fieldKeys, type FieldKey, type Settings } from '../src/choice/fields';

/** mulberry32: the same numbers for the same seed. */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const TEXTS = ['none', 'q_proj,k_proj', 'all-linear', 'lm_head', '1', '2', '3', '8', '16', '64', '128', '4096', '0', '0.1', '0.5', '1e-8', '0.9,0.95', '5.25', 'h100-sxm-80gb', 'rtx-4090', 'described', '{"a":{"b":[1]}}', '40 GiB'];

/** Settings of every kind, most of them not the defaults; each value is one that its text reads as. */
export function* randomSettings(times: number, seed = 1): Generator<Settings> {
  const random = randomNumbers(seed);
  const any = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  for (let i = 0; i < times; ++i) {
    const settings = defaultSettings();
    for (const key of fieldKeys) if (random() < 0.6) Object.assign(settings, { [key]: value(key, any) });
    yield settings;
  }
}

function value(key: FieldKey, any: <T>(list: readonly T[]) => T): Settings[FieldKey] {
  const { values, read, fallback } = field(key);
  return read(any(values ?? TEXTS.filter((text) => read(text) !== undefined))) ?? fallback;
}
