import table from 'virtual:gpus';

/** The GPUs that can be named, as presets/gpus.json lists them; tools/site-data.ts cuts it down to this. */
export const gpus = table;

export function gpuName(id: string): string {
  return gpus.find((gpu) => gpu.id === id)?.name ?? id;
}
