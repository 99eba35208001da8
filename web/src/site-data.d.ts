declare module 'virtual:gpus' {
  const gpus: readonly { id: string; name: string; unsupported: boolean }[];
  export default gpus;
}
