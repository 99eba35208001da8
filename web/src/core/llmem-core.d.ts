// What the WebAssembly build exports (wasm/); vite.config.ts says where it lies.
declare module 'llmem-core' {
  interface Core {
    /** A spec in the wire format, as JSON text → the envelope, as JSON text. */
    estimate(spec: string): string;
    /** What happens along the step of a spec: core/report/README.md. */
    timeline(spec: string, question: string): string;
  }
  export default function createCore(options: {
    locateFile?: (file: string) => string;
    wasmBinary?: Uint8Array;
  }): Promise<Core>;
}

declare module 'llmem-core-binary?url' {
  const url: string;
  export default url;
}
