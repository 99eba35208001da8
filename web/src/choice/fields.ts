// Every setting that a link can carry besides the model: its key, its place in the wire format, its default, how its text reads.
//
// The defaults are those of link version 1, and of the wire format. They are FROZEN: a link says only what differs from them,
// so changing one would change what published links mean. What the page shows on arrival is in arrival.ts.

export interface Field<T> {
  at: string; // its place in the wire format, as a JSON pointer
  fallback: T;
  expected: string; // in words, for a text that does not read
  read(text: string): T | undefined;
  write(value: T): string;
}

function oneOf<const T extends string>(at: string, values: readonly T[], fallback: NoInfer<T>): Field<T> {
  return {
    at,
    fallback,
    expected: `one of ${values.join(', ')}`,
    read: (text) => values.find((value) => value === text),
    write: String,
  };
}

function wholeNumber(at: string, fallback: number): Field<number> {
  return {
    at,
    fallback,
    expected: 'a whole number from 1',
    read: (text) => {
      const value = /^\d{1,15}$/.test(text) ? Number(text) : 0;
      return value >= 1 ? value : undefined;
    },
    write: String,
  };
}

function flag(at: string): Field<boolean> {
  return {
    at,
    fallback: false,
    expected: 'true or false',
    read: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
    write: String,
  };
}

function optionalNumber(at: string): Field<number | null> {
  return {
    at,
    fallback: null,
    expected: 'a number above 0, or none',
    read: (text) => {
      if (text === 'none') return null;
      const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : 0;
      return value > 0 && Number.isFinite(value) ? value : undefined;
    },
    write: (value) => (value === null ? 'none' : String(value)),
  };
}

function identifier(at: string, fallback: string): Field<string> {
  return { at, fallback, expected: 'an id', read: (text) => (/^[\w.-]+$/.test(text) ? text : undefined), write: String };
}

export const fields = {
  method: oneOf('/training/method', ['full'], 'full'),
  weights: oneOf('/training/weights', ['bfloat16', 'float32', 'float16'], 'bfloat16'),
  autocast: oneOf('/training/autocast', ['none', 'bfloat16', 'float16'], 'none'),
  optimizer: oneOf('/training/optimizer/name', ['adamw'], 'adamw'),
  implementation: oneOf('/training/optimizer/implementation', ['foreach', 'fused', 'loop'], 'foreach'),
  micro_batch: wholeNumber('/training/micro_batch', 1),
  sequence: wholeNumber('/training/sequence', 2048),
  accumulation: wholeNumber('/training/accumulation', 1),
  checkpointing: oneOf('/training/checkpointing', ['none', 'full'], 'none'),
  attention: oneOf('/training/attention', ['sdpa', 'eager'], 'sdpa'),
  max_grad_norm: optionalNumber('/training/max_grad_norm'),
  gpu: identifier('/cluster/gpu', 'a100-sxm-80gb'),
  gpus: wholeNumber('/parallel/data/degree', 1),
  gpus_per_node: wholeNumber('/cluster/gpus_per_node', 8),
  expandable_segments: flag('/allocator/expandable_segments'),
  data: oneOf('/parallel/data/kind', ['best', 'none', 'ddp', 'fsdp2'], 'best'), // whose details are open
};

export type Fields = typeof fields;
export type FieldKey = keyof Fields;
export type Settings = { [K in FieldKey]: Fields[K]['fallback'] };

export const fieldKeys = Object.keys(fields) as FieldKey[];

export function defaultSettings(): Settings {
  return Object.fromEntries(fieldKeys.map((key) => [key, fields[key].fallback])) as Settings;
}

/** The text of a setting as a link writes it. */
export function settingText<K extends FieldKey>(settings: Settings, key: K): string {
  return (fields[key] as unknown as Field<Settings[K]>).write(settings[key]);
}

/** The settings with one of them read from text; undefined if the text does not read. */
export function withSetting(settings: Settings, key: FieldKey, text: string): Settings | undefined {
  const value = fields[key].read(text);
  return value === undefined ? undefined : { ...settings, [key]: value };
}
