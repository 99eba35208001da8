import type { Json, JsonObject } from './choice';

// What kind of run a spec is, as far as it matters to how well it was checked: by how many recorded runs like it.

export function kindOf(spec: JsonObject): string {
  const training = object(spec.training);
  const parallel = object(spec.parallel);
  const several = (part: string) => Number(object(parallel[part]).degree ?? 1) > 1;
  const data = object(parallel.data);
  const kind = several('tensor') || several('pipeline') || Number(data.degree ?? 1) > 1 ? String(data.kind ?? 'none') : 'none';
  return [
    kind,
    several('tensor') ? 'tensor' : '',
    several('pipeline') ? 'pipeline' : '',
    training.method === 'lora' ? (training.base_quantization ? 'qlora' : 'lora') : 'full',
  ]
    .filter(Boolean)
    .join(' ');
}

function object(value: Json | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : {};
}
