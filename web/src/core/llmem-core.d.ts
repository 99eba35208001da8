// What the WebAssembly build exports (wasm/); vite.config.ts says where it lies.
declare module 'llmem-core' {
  interface Core {
    /** A spec in the wire format, as JSON text → the envelope, as JSON text. */
    estimate(spec: string): string;
    /** What happens along the step of a spec: core/report/README.md. */
    timeline(spec: string, question: string): string;
    // Which way to train: core/search/README.md.
    enumerate(question: string): string;
    screen(question: string): string;
    rank(summaries: string): string;
    largest(question: string): string;
    advise(spec: string): string;
    paper(question: string): string;
  }
  export default function createCore(options: {
    locateFile?: (file: string) => string;
    wasmBinary?: Uint8Array;
    restBinary?: Uint8Array;
  }): Promise<Core>;
}

declare module 'llmem-core-binary?url' {
  const url: string;
  export default url;
}

declare module 'llmem-core-rest?url' {
  const url: string;
  export default url;
}
