// Reads a timeline container (RTC1, internal/timeline/FORMAT.md): a head in JSON, then blobs that hold
// columns. Columns become typed arrays, strings stay bytes until one is asked for: nothing is made per item.

export interface ColumnHead {
  name: string;
  type: "u8" | "u16" | "u32" | "i32" | "f32" | "f64" | "str";
  enc: "raw" | "uv" | "zv" | "dv" | "ov" | "str";
  count: number;
  blob: number;
  offset: number;
  bytes: number;
}

export interface BlobHead {
  offset: number;
  bytes: number;
  raw: number;
  enc: "none" | "deflate";
}

export interface Dicts {
  name: string[];
  status: string[];
  source: string[];
  label: string[];
  why: string[];
  finish: string[];
  clip: string[];
  class: string[];
}

export interface Head {
  format: string;
  version: number;
  tool: string;
  dump: { name: string; bytes: number; fingerprint: string; kind: string; rollout_id: number | null; shape: string };
  detail: string;
  note: string;
  /** ns since 1970, as text: it does not fit a double */
  t0: string;
  unit_ns: number;
  counts: Record<string, number>;
  extent: [number, number] | null;
  dicts: Dicts;
  step: unknown;
  columns: ColumnHead[];
  blobs: BlobHead[];
  attrs: { from: number; rows: number; blob: number }[];
  /** what the sample panel shows beside the columns */
  details: { from: number; rows: number; blob: number }[];
  texts: { rows: number[]; blob: number }[];
}

export type NumberColumn = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

const decoder = new TextDecoder();

/** Strings as the UTF-8 bytes of all and where each begins; one is decoded when asked for. */
export class Strings {
  constructor(readonly bytes: Uint8Array, readonly starts: Uint32Array) {}
  get length(): number {
    return this.starts.length - 1;
  }
  at(i: number): string {
    return i < 0 || i >= this.length ? "" : decoder.decode(this.bytes.subarray(this.starts[i], this.starts[i + 1]));
  }
}

/** The columns of a container by name. Each is decoded when it is first asked for, and is an error only then. */
export class Columns {
  private made = new Map<string, NumberColumn | Strings>();
  private left = new Map<string, { head: ColumnHead; blob: Uint8Array }>();

  add(head: ColumnHead, blob: Uint8Array): void {
    this.left.set(head.name, { head, blob });
  }
  has(name: string): boolean {
    return this.made.has(name) || this.left.has(name);
  }
  get(name: string): NumberColumn | Strings | undefined {
    const c = this.left.get(name);
    if (!c) return this.made.get(name);
    const col = decodeColumn(c.head, c.blob);
    this.left.delete(name);
    this.made.set(name, col);
    return col;
  }
  /** How many values a column has; 0 when there is none. */
  count(name: string): number {
    return this.left.get(name)?.head.count ?? this.made.get(name)?.length ?? 0;
  }
  /** All of them. */
  *[Symbol.iterator](): Generator<[string, NumberColumn | Strings]> {
    for (const name of [...this.made.keys(), ...this.left.keys()]) yield [name, this.get(name) as NumberColumn | Strings];
  }
  /** Lets go of all. */
  clear(): void {
    this.made.clear();
    this.left.clear();
  }
}

export interface Container {
  head: Head;
  columns: Columns;
  /** the bytes of a blob of attributes, details or texts, inflated */
  blob: (index: number) => Promise<Uint8Array>;
  /** how many bytes the container has */
  size: number;
}

/** What a container says wrong, and where. */
export class ContainerError extends Error {
  override name = "ContainerError";
}

const fail = (what: string): never => {
  throw new ContainerError(`timeline container: ${what}`);
};

const MAX_BLOB = 2 ** 31 - 1;

/**
 * Decodes a container. Blobs that hold columns are inflated now, those of attributes and texts when asked for.
 * The latter may be missing from bytes: rest then gives all bytes that follow.
 */
export async function decode(bytes: Uint8Array, rest: (() => Promise<Uint8Array>) | null = null): Promise<Container> {
  if (bytes.length < 8 || decoder.decode(bytes.subarray(0, 4)) !== "RTC1") fail(`does not begin with RTC1 (${bytes.length} bytes)`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headLength = view.getUint32(4, true);
  if (8 + headLength > bytes.length) fail(`the head of ${headLength} bytes is cut at ${bytes.length}`);
  let head: Head;
  try {
    head = JSON.parse(decoder.decode(bytes.subarray(8, 8 + headLength))) as Head;
  } catch (err) {
    return fail(`the head is no JSON: ${(err as Error).message}`);
  }
  if (head.format !== "rollscope-timeline") fail(`format ${JSON.stringify(head.format)}, want rollscope-timeline`);
  if (head.version !== 1) fail(`version ${head.version} is not known here: open it with the rollscope that wrote it`);
  const body = bytes.subarray(8 + headLength);
  const blobs = head.blobs ?? [];
  const here = (b: BlobHead) => b.offset + b.bytes <= body.length;
  blobs.forEach((b, i) => {
    if (!(b.offset >= 0 && b.bytes >= 0 && (here(b) || (rest !== null && b.offset >= body.length)))) fail(`blob ${i} lies outside of the file: it is cut`);
  });
  const bytesOf = (i: number): Uint8Array => {
    const b = blobs[i] ?? fail(`blob ${i} of ${blobs.length}`);
    if (!here(b)) fail(`blob ${i} of columns stands behind them`);
    return body.subarray(b.offset, b.offset + b.bytes);
  };
  const columns = new Columns();
  const used = [...new Set((head.columns ?? []).map((c) => c.blob))];
  for (const i of used) if (!blobs[i]) fail(`blob ${i} of ${blobs.length}`);
  // A few at a time.
  let next = 0;
  const work = async () => {
    while (next < used.length) {
      const i = used[next++] as number;
      const data = await inflateBlob(blobs[i] as BlobHead, i, bytesOf(i));
      for (const c of head.columns) if (c.blob === i) columns.add(c, data);
    }
  };
  await Promise.all([work(), work(), work()]);
  const { attrs, details, texts } = head;
  const later = new Map<number, Uint8Array | null>();
  for (const { blob } of [...(attrs ?? []), ...(details ?? []), ...(texts ?? [])]) {
    const b = blobs[blob];
    if (b && !later.has(blob)) later.set(blob, here(b) ? bytesOf(blob).slice() : null);
  }
  return { head: { ...head, attrs: attrs ?? [], details: details ?? [], texts: texts ?? [] }, columns, blob: readLater(blobs, later, body.length, rest), size: bytes.length };
}

/** Reads what is asked for later. It is kept apart, by itself or in what follows from `at`, so that all other bytes can go. */
function readLater(blobs: BlobHead[], kept: Map<number, Uint8Array | null>, at: number, rest: (() => Promise<Uint8Array>) | null): (i: number) => Promise<Uint8Array> {
  return async (i) => {
    const b = blobs[i] as BlobHead;
    let data = kept.get(i);
    if (data === undefined) return fail(`blob ${i} holds no attributes, details or texts`);
    if (data === null) {
      const all = await (rest as () => Promise<Uint8Array>)();
      const from = b.offset - at;
      if (from + b.bytes > all.length) fail(`blob ${i} lies outside of the file: it is cut`);
      data = all.subarray(from, from + b.bytes);
    }
    return inflateBlob(b, i, data);
  };
}

async function inflateBlob(b: BlobHead, i: number, raw: Uint8Array): Promise<Uint8Array> {
  if (b.enc === "none") return raw;
  if (b.enc !== "deflate") fail(`blob ${i}: encoding ${String(b.enc)}`);
  if (!(b.raw >= 0 && b.raw <= MAX_BLOB)) fail(`blob ${i}: says it has ${b.raw} bytes`);
  return inflate(raw, b.raw, i);
}

/** Inflates raw deflate into exactly raw bytes; more or fewer is an error, so a bomb stops at its stated size. */
async function inflate(data: Uint8Array, raw: number, blob: number): Promise<Uint8Array> {
  const out = new Uint8Array(raw);
  let at = 0;
  // Written directly: a Blob's stream would carry the bytes to another process and back.
  const stream = new DecompressionStream("deflate-raw");
  const writer = stream.writable.getWriter();
  // Its failures are those of the reading side.
  writer.write(data as Uint8Array<ArrayBuffer>).catch(() => undefined);
  writer.close().catch(() => undefined);
  const reader = stream.readable.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length > raw) {
        await reader.cancel();
        fail(`blob ${blob} inflates to more than the ${raw} bytes it says`);
      }
      out.set(value, at);
      at += value.length;
    }
  } catch (err) {
    if (err instanceof ContainerError) throw err;
    fail(`blob ${blob} does not inflate: ${(err as Error).message}`);
  }
  if (at !== raw) fail(`blob ${blob} inflates to ${at} bytes, says ${raw}`);
  return out;
}

const SIZE = { u8: 1, u16: 2, u32: 4, i32: 4, f32: 4, f64: 8 };

export function decodeColumn(c: ColumnHead, blob: Uint8Array): NumberColumn | Strings {
  const where = `column ${c.name}`;
  if (!(c.offset >= 0 && c.bytes >= 0 && c.offset + c.bytes <= blob.length)) fail(`${where} lies outside of its blob`);
  if (!Number.isInteger(c.count) || c.count < 0) fail(`${where}: count ${c.count}`);
  const data = blob.subarray(c.offset, c.offset + c.bytes);
  if (c.enc === "raw") {
    if (c.type === "str") fail(`${where}: raw strings`);
    const size = SIZE[c.type as keyof typeof SIZE] ?? fail(`${where}: type ${String(c.type)}`);
    if (size * c.count !== c.bytes) fail(`${where}: ${c.count} numbers in ${c.bytes} bytes`);
    const copy = alone(data).buffer;
    switch (c.type) {
      case "u8":
        return new Uint8Array(copy);
      case "u16":
        return new Uint16Array(copy);
      case "u32":
        return new Uint32Array(copy);
      case "i32":
        return new Int32Array(copy);
      case "f32":
        return new Float32Array(copy);
      default:
        return new Float64Array(copy);
    }
  }
  // Every varint has at least one byte: a count beyond that is a lie, and must not allocate.
  if (c.count > c.bytes) fail(`${where}: ${c.count} values in ${c.bytes} bytes`);
  if (c.enc === "str") return strings(c, data);
  if (!["uv", "zv", "dv", "ov"].includes(c.enc)) fail(`${where}: encoding ${String(c.enc)}`);
  if (!(c.type in SIZE)) fail(`${where}: type ${String(c.type)}`);
  const check = (end: number) => {
    if (end !== data.length) fail(end < 0 ? `${where} is cut` : `${where} has ${data.length - end} bytes too many`);
  };
  // Names, lanes, flags and the like are small: nearly all have one byte, which is the number.
  if ((c.enc === "uv" || c.enc === "zv") && c.bytes - c.count < c.count / 16) {
    const out = typed(c.type, c.count);
    check(shorts(alone(data), c.count, c.enc === "zv", out));
    return out;
  }
  const out = new Float64Array(c.count);
  check(varints(data, c.count, c.enc, out));
  return c.type === "f64" ? out : typed(c.type, out);
}

/** The bytes in a buffer of their own, aligned; a column that has one does not keep the others of its blob. */
const alone = (data: Uint8Array): Uint8Array => (data.byteLength === data.buffer.byteLength ? data : data.slice());

/** An array of a type, of a length or of other numbers, which the browser converts all at once. */
function typed(type: ColumnHead["type"], of: number | Float64Array): NumberColumn {
  // The constructors have one signature for each.
  const from = of as number;
  switch (type) {
    case "u8":
      return new Uint8Array(from);
    case "u16":
      return new Uint16Array(from);
    case "u32":
      return new Uint32Array(from);
    case "i32":
      return new Int32Array(from);
    case "f32":
      return new Float32Array(from);
    default:
      return new Float64Array(from);
  }
}

/**
 * Reads n varints most of which have one byte; data begin where their buffer does. Returns where it stopped, -1
 * when the bytes ended before. Runs of one byte each are found a word at a time and copied by the browser.
 */
function shorts(data: Uint8Array, n: number, zigzag: boolean, out: NumberColumn): number {
  const words = new Uint32Array(data.buffer, 0, data.length >> 2);
  const numbers = zigzag ? unzigzagAll(data, words) : data;
  let at = 0;
  for (let o = 0; ; ) {
    const end = nextLong(data, words, at);
    if (end - at > n - o) return at + n - o;
    out.set(numbers.subarray(at, end), o);
    o += end - at;
    if (end === data.length) return o === n ? end : -1;
    if (o === n) return end;
    const v = long(data, end);
    if (stopped < 0) return -1;
    at = stopped;
    out[o++] = zigzag ? unzigzag(v) : v;
  }
}

/** Where the next varint of more than one byte begins, at or after at. */
function nextLong(data: Uint8Array, words: Uint32Array, at: number): number {
  const n = data.length;
  for (; (at & 3) !== 0; at++) if (at >= n || (data[at] as number) >= 0x80) return Math.min(at, n);
  let w = at >> 2;
  while (w < words.length && ((words[w] as number) & 0x80808080) === 0) w++;
  for (at = w << 2; at < n; at++) if ((data[at] as number) >= 0x80) return at;
  return n;
}

/** The zigzag numbers of all bytes below 128, four at a time. */
function unzigzagAll(data: Uint8Array, words: Uint32Array): Int8Array {
  const out = new Int8Array(data.length);
  const to = new Uint32Array(out.buffer, 0, words.length);
  for (let i = 0; i < words.length; i++) {
    const w = words[i] as number;
    to[i] = ((w >>> 1) & 0x7f7f7f7f) ^ ((w & 0x01010101) * 255);
  }
  for (let i = words.length << 2; i < data.length; i++) out[i] = unzigzag(data[i] as number);
  return out;
}

/** Reads n varints into out and returns where it stopped; -1 when the bytes ended before. */
function varints(data: Uint8Array, n: number, enc: string, out: Float64Array): number {
  switch (enc) {
    case "uv":
      return unsigned(data, n, out);
    case "dv":
      return deltas(data, n, out);
    default:
      return signed(data, n, enc === "ov", out);
  }
}

// One loop for each encoding: these run once for each number of a page. All write doubles: a loop that
// meets arrays of several types is compiled for none of them. Up to four bytes of a varint are integers,
// and only beyond that is it arithmetic of doubles.
let stopped = 0;

/** The varint at `at`, of which there is more than one byte; where it ends goes to `stopped`, -1 when it is cut. */
function long(data: Uint8Array, at: number): number {
  const n = data.length;
  let b = data[at++] as number;
  let v = b & 0x7f;
  for (let shift = 7; shift < 28; shift += 7) {
    if (at >= n) {
      stopped = -1;
      return 0;
    }
    b = data[at++] as number;
    v |= (b & 0x7f) << shift;
    if (b < 0x80) {
      stopped = at;
      return v;
    }
  }
  let scale = 2 ** 28;
  do {
    if (at >= n || scale > 2 ** 70) {
      stopped = -1;
      return 0;
    }
    b = data[at++] as number;
    v += (b & 0x7f) * scale;
    scale *= 128;
  } while (b >= 0x80);
  stopped = at;
  return v;
}

function unsigned(data: Uint8Array, n: number, out: Float64Array): number {
  let at = 0;
  for (let i = 0; i < n; i++) {
    if (at >= data.length) return -1;
    let v = data[at] as number;
    if (v < 0x80) at++;
    else {
      v = long(data, at);
      if (stopped < 0) return -1;
      at = stopped;
    }
    out[i] = v;
  }
  return at;
}

function deltas(data: Uint8Array, n: number, out: Float64Array): number {
  let at = 0;
  let last = 0;
  for (let i = 0; i < n; i++) {
    if (at >= data.length) return -1;
    let v = data[at] as number;
    if (v < 0x80) at++;
    else {
      v = long(data, at);
      if (stopped < 0) return -1;
      at = stopped;
    }
    last += unzigzag(v);
    out[i] = last;
  }
  return at;
}

function signed(data: Uint8Array, n: number, optional: boolean, out: Float64Array): number {
  let at = 0;
  for (let i = 0; i < n; i++) {
    if (at >= data.length) return -1;
    let v = data[at] as number;
    if (v < 0x80) at++;
    else {
      v = long(data, at);
      if (stopped < 0) return -1;
      at = stopped;
    }
    if (!optional) out[i] = unzigzag(v);
    else out[i] = v === 0 ? NaN : unzigzag(v - 1);
  }
  return at;
}

const unzigzag = (v: number) => (v < 2 ** 31 ? (v >>> 1) ^ -(v & 1) : v % 2 === 1 ? -(v + 1) / 2 : v / 2);

function strings(c: ColumnHead, data: Uint8Array): Strings {
  const lengths = new Float64Array(c.count);
  const at = unsigned(data, c.count, lengths);
  if (at < 0) fail(`column ${c.name} is cut`);
  const starts = new Uint32Array(c.count + 1);
  let sum = 0;
  for (let i = 0; i < c.count; i++) {
    starts[i] = sum;
    sum += lengths[i] as number;
  }
  starts[c.count] = sum;
  if (at + sum !== data.length) fail(`column ${c.name}: strings of ${sum} bytes in ${data.length - at}`);
  return new Strings(data.slice(at), starts);
}

/** Writes the bytes of base64 text into out and returns how many; throws a ContainerError when it is none. */
export function fromBase64(text: string, out: Uint8Array): number {
  const native = (out as unknown as { setFromBase64?: (s: string) => { read: number; written: number } }).setFromBase64;
  try {
    if (native) {
      const { read, written } = native.call(out, text);
      if (read < text.length) fail(`the embedded data has ${text.length} characters of base64, room for ${read}`);
      return written;
    }
    const binary = atob(text);
    if (binary.length > out.length) fail(`the embedded data has ${binary.length} bytes, room for ${out.length}`);
    for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
    return binary.length;
  } catch (err) {
    if (err instanceof ContainerError) throw err;
    return fail(`the embedded data is no base64: ${(err as Error).message}`);
  }
}
