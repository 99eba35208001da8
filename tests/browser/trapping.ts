// A WebAssembly module in which every function traps at once: what a defect in the core looks like from outside.

const CODE_SECTION = 10;
const UNREACHABLE = 0x00;

export function trapping(wasm: Buffer): Buffer {
  const parts: Buffer[] = [wasm.subarray(0, 8)];
  for (let at = 8; at < wasm.length; ) {
    const id = wasm[at] ?? 0;
    const size = readLeb(wasm, at + 1);
    const body = wasm.subarray(size.end, size.end + size.value);
    const changed = id === CODE_SECTION ? trapEach(body) : body;
    parts.push(Buffer.from([id]), leb(changed.length), changed);
    at = size.end + size.value;
  }
  return Buffer.concat(parts);
}

function trapEach(section: Buffer): Buffer {
  const count = readLeb(section, 0);
  const parts = [leb(count.value)];
  let at = count.end;
  for (let index = 0; index < count.value; ++index) {
    const size = readLeb(section, at);
    const body = section.subarray(size.end, size.end + size.value);
    const start = afterLocals(body);
    const changed = Buffer.concat([body.subarray(0, start), Buffer.from([UNREACHABLE]), body.subarray(start)]);
    parts.push(leb(changed.length), changed);
    at = size.end + size.value;
  }
  return Buffer.concat(parts);
}

function afterLocals(body: Buffer): number {
  const groups = readLeb(body, 0);
  let at = groups.end;
  for (let group = 0; group < groups.value; ++group) at = readLeb(body, at).end + 1;
  return at;
}

function readLeb(bytes: Buffer, at: number): { value: number; end: number } {
  let value = 0;
  for (let shift = 0; ; shift += 7) {
    const byte = bytes[at++] ?? 0;
    value += (byte & 0x7f) * 2 ** shift;
    if (byte < 0x80) return { value, end: at };
  }
}

function leb(value: number): Buffer {
  const bytes: number[] = [];
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return Buffer.from([...bytes, value]);
}
