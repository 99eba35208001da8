declare module 'virtual:gpus' {
  const gpus: readonly { id: string; name: string; unsupported: boolean }[];
  export default gpus;
}

declare module 'virtual:arrival' {
  const url: string;
  export default url;
}

declare module 'virtual:certainty' {
  /** By kind of run: equal to the byte, answered. */
  const certainty: Readonly<Record<string, readonly [number, number]>>;
  export default certainty;
}
