declare module 'virtual:gpus' {
  const gpus: readonly { id: string; name: string; unsupported: boolean }[];
  export default gpus;
}

declare module 'virtual:arrival' {
  const url: string;
  export default url;
}
