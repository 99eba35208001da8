// Python's pickle, for data alone: numbers, text, bytes, lists, tuples, dictionaries, sets. What would make an object or call
// anything (GLOBAL, REDUCE, BUILD, …) is refused by its name, so that nothing in a file can act. Source: Lib/pickletools.py.

export type Pickled = null | boolean | number | bigint | string | Uint8Array | Pickled[] | Map<Pickled, Pickled> | Set<Pickled>;

export class PickleError extends Error {}

const MARK = Symbol('mark');
type Slot = Pickled | typeof MARK;

const OBJECTS: Record<number, string> = {
  0x63: 'GLOBAL',
  0x93: 'STACK_GLOBAL',
  0x52: 'REDUCE',
  0x62: 'BUILD',
  0x69: 'INST',
  0x6f: 'OBJ',
  0x81: 'NEWOBJ',
  0x92: 'NEWOBJ_EX',
  0x50: 'PERSID',
  0x51: 'BINPERSID',
  0x82: 'EXT1',
  0x83: 'EXT2',
  0x84: 'EXT4',
  0x97: 'NEXT_BUFFER',
  0x98: 'READONLY_BUFFER',
};

const MOST_MEMO = 50_000_000;

export function readPickle(data: Uint8Array): Pickled {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const utf8 = new TextDecoder('utf-8');
  const stack: Slot[] = [];
  const marks: number[] = []; // where in the stack each MARK lies
  const memo: Pickled[] = [];
  let at = 0;

  const fail = (message: string): never => {
    throw new PickleError(`${message} (at byte ${at.toLocaleString('en')})`);
  };
  const need = (count: number) => {
    if (!(count >= 0) || at + count > data.length) fail('The pickle breaks off');
    at += count;
    return at - count;
  };
  const u1 = () => view.getUint8(need(1));
  const u2 = () => view.getUint16(need(2), true);
  const u4 = () => view.getUint32(need(4), true);
  const i4 = () => view.getInt32(need(4), true);
  const u8 = () => {
    const value = Number(view.getBigUint64(need(8), true));
    if (value > data.length) fail('A length is longer than the pickle');
    return value;
  };
  const text = (length: number) => {
    const start = need(length);
    return utf8.decode(data.subarray(start, start + length));
  };
  const line = () => {
    const end = data.indexOf(10, at);
    if (end < 0 || end - at > 1 << 20) fail('A line has no end');
    const start = at;
    at = end + 1;
    return utf8.decode(data.subarray(start, end));
  };
  const pop = (): Pickled => {
    const value = stack.pop();
    if (value === undefined || value === MARK) return fail('The stack is empty');
    return value;
  };
  const top = (): Pickled => {
    const value = stack.at(-1);
    if (value === undefined || value === MARK) return fail('The stack is empty');
    return value;
  };
  const toMark = (): Pickled[] => {
    const mark = marks.pop();
    if (mark === undefined) return fail('A mark is missing');
    const values = stack.splice(mark + 1);
    stack.pop();
    return values as Pickled[];
  };
  const integer = (value: bigint): Pickled => (value >= -(2n ** 53n) && value <= 2n ** 53n ? Number(value) : value);
  const long = (length: number): Pickled => {
    if (length > 1024) fail('A number is too long');
    const start = need(length);
    let value = 0n;
    for (let index = length - 1; index >= 0; index--) value = (value << 8n) | BigInt(data[start + index] ?? 0);
    if (length > 0 && ((data[start + length - 1] ?? 0) & 0x80) !== 0) value -= 1n << BigInt(8 * length);
    return integer(value);
  };
  const pairs = (into: Pickled, values: Pickled[]) => {
    if (!(into instanceof Map) || values.length % 2 !== 0) fail('Items are set on what is no dictionary');
    else for (let index = 0; index < values.length; index += 2) into.set(values[index] as Pickled, values[index + 1] as Pickled);
  };
  const remember = (index: number) => {
    if (!(index >= 0) || index > MOST_MEMO || index > memo.length + 1_000_000) fail('The memo is out of bounds');
    memo[index] = top();
  };
  const recall = (index: number) => {
    const value = memo[index];
    if (value === undefined) fail('The memo has no such entry');
    else stack.push(value);
  };

  for (;;) {
    const code = u1();
    switch (code) {
      case 0x80:
        if (u1() > 5) fail('This protocol is newer than 5');
        break; // PROTO
      case 0x95:
        need(8);
        break; // FRAME: where the writer flushed
      case 0x2e: {
        // STOP
        const value = pop();
        return value;
      }
      case 0x28:
        marks.push(stack.length);
        stack.push(MARK);
        break;
      case 0x30:
        if (stack.at(-1) === MARK) marks.pop();
        stack.pop();
        break; // POP
      case 0x31:
        toMark();
        break; // POP_MARK
      case 0x32:
        stack.push(top());
        break; // DUP
      case 0x4e:
        stack.push(null);
        break;
      case 0x88:
        stack.push(true);
        break;
      case 0x89:
        stack.push(false);
        break;
      case 0x4a:
        stack.push(i4());
        break; // BININT
      case 0x4b:
        stack.push(u1());
        break;
      case 0x4d:
        stack.push(u2());
        break;
      case 0x8a:
        stack.push(long(u1()));
        break; // LONG1
      case 0x8b:
        stack.push(long(u4()));
        break;
      case 0x47:
        stack.push(view.getFloat64(need(8), false));
        break; // BINFLOAT
      case 0x8c:
        stack.push(text(u1()));
        break; // SHORT_BINUNICODE
      case 0x58:
        stack.push(text(u4()));
        break;
      case 0x8d:
        stack.push(text(u8()));
        break;
      case 0x55:
        stack.push(text(u1()));
        break; // SHORT_BINSTRING
      case 0x54:
        stack.push(text(u4()));
        break;
      case 0x43: {
        const length = u1();
        stack.push(data.slice(need(length), at));
        break;
      } // SHORT_BINBYTES
      case 0x42: {
        const length = u4();
        stack.push(data.slice(need(length), at));
        break;
      }
      case 0x8e:
      case 0x96: {
        const length = u8();
        stack.push(data.slice(need(length), at));
        break;
      }
      case 0x5d:
        stack.push([]);
        break;
      case 0x29:
        stack.push([]);
        break; // EMPTY_TUPLE
      case 0x7d:
        stack.push(new Map());
        break;
      case 0x8f:
        stack.push(new Set());
        break;
      case 0x85:
        stack.push([pop()]);
        break;
      case 0x86: {
        const second = pop();
        stack.push([pop(), second]);
        break;
      }
      case 0x87: {
        const third = pop();
        const second = pop();
        stack.push([pop(), second, third]);
        break;
      }
      case 0x74:
      case 0x6c:
        stack.push(toMark());
        break; // TUPLE, LIST
      case 0x64: {
        const values = toMark();
        const made = new Map<Pickled, Pickled>();
        pairs(made, values);
        stack.push(made);
        break;
      }
      case 0x91:
        stack.push(new Set(toMark()));
        break; // FROZENSET
      case 0x61: {
        const value = pop();
        const list = top();
        if (Array.isArray(list)) list.push(value);
        else fail('An item is added to what is no list');
        break;
      }
      case 0x65: {
        const values = toMark();
        const list = top();
        if (!Array.isArray(list)) fail('Items are added to what is no list');
        else for (const value of values) list.push(value);
        break;
      }
      case 0x73: {
        const value = pop();
        const key = pop();
        pairs(top(), [key, value]);
        break;
      }
      case 0x75: {
        const values = toMark();
        pairs(top(), values);
        break;
      }
      case 0x90: {
        const values = toMark();
        const set = top();
        if (!(set instanceof Set)) fail('Items are added to what is no set');
        else for (const value of values) set.add(value);
        break;
      }
      case 0x94:
        remember(memo.length);
        break; // MEMOIZE
      case 0x71:
        remember(u1());
        break;
      case 0x72:
        remember(u4());
        break;
      case 0x70:
        remember(Number(line()));
        break; // PUT
      case 0x68:
        recall(u1());
        break;
      case 0x6a:
        recall(u4());
        break;
      case 0x67:
        recall(Number(line()));
        break;
      case 0x49: {
        // INT
        const written = line();
        stack.push(written === '00' ? false : written === '01' ? true : number(written, fail));
        break;
      }
      case 0x4c:
        stack.push(number(line().replace(/L$/, ''), fail));
        break;
      case 0x46:
        stack.push(Number(line()));
        break;
      case 0x53:
        stack.push(line().replace(/^['"]|['"]$/g, ''));
        break; // STRING
      case 0x56:
        stack.push(line());
        break;
      default:
        if (OBJECTS[code])
          fail(
            `${OBJECTS[code]}: the pickle wants Python to make an object. Only plain data is read here, and a memory snapshot is plain data`,
          );
        fail(`0x${code.toString(16)} is no instruction of a pickle`);
    }
  }
}

function number(written: string, fail: (message: string) => never): number {
  const value = /^-?\d{1,400}$/.test(written.trim()) ? Number(written) : NaN;
  return Number.isFinite(value) ? value : fail('A number is not one');
}
