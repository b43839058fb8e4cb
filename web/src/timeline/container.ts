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

export interface Container {
  head: Head;
  columns: Map<string, NumberColumn | Strings>;
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

/** Decodes a container. Blobs that hold columns are inflated now, those of attributes and texts when asked for. */
export async function decode(bytes: Uint8Array): Promise<Container> {
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
  blobs.forEach((b, i) => {
    if (!(b.offset >= 0 && b.bytes >= 0 && b.offset + b.bytes <= body.length)) fail(`blob ${i} lies outside of the file: it is cut`);
  });
  const bytesOf = (i: number): Uint8Array => {
    const b = blobs[i] ?? fail(`blob ${i} of ${blobs.length}`);
    return body.subarray(b.offset, b.offset + b.bytes);
  };
  const inflateBlob = async (i: number, raw: Uint8Array): Promise<Uint8Array> => {
    const b = blobs[i] as BlobHead;
    if (b.enc === "none") return raw;
    if (b.enc !== "deflate") fail(`blob ${i}: encoding ${String(b.enc)}`);
    if (!(b.raw >= 0 && b.raw <= MAX_BLOB)) fail(`blob ${i}: says it has ${b.raw} bytes`);
    return inflate(raw, b.raw, i);
  };
  const columns = new Map<string, NumberColumn | Strings>();
  const used = [...new Set((head.columns ?? []).map((c) => c.blob))];
  for (const i of used) if (!blobs[i]) fail(`blob ${i} of ${blobs.length}`);
  // A few at a time: what is inflated is larger than its columns, and goes once they are read.
  let next = 0;
  const work = async () => {
    while (next < used.length) {
      const i = used[next++] as number;
      const data = await inflateBlob(i, bytesOf(i));
      for (const c of head.columns) if (c.blob === i) columns.set(c.name, decodeColumn(c, data));
    }
  };
  await Promise.all([work(), work(), work()]);
  const { attrs, details, texts } = head;
  // What is read later is kept apart, so that the whole of the bytes can go.
  const later = new Map<number, Uint8Array>();
  for (const b of [...(attrs ?? []), ...(details ?? []), ...(texts ?? [])]) if (!later.has(b.blob) && blobs[b.blob]) later.set(b.blob, bytesOf(b.blob).slice());
  const blob = (i: number) => inflateBlob(i, later.get(i) ?? fail(`blob ${i} holds no attributes, details or texts`));
  return { head: { ...head, attrs: attrs ?? [], details: details ?? [], texts: texts ?? [] }, columns, blob, size: bytes.length };
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

function make(type: ColumnHead["type"], n: number): NumberColumn {
  switch (type) {
    case "u8":
      return new Uint8Array(n);
    case "u16":
      return new Uint16Array(n);
    case "u32":
      return new Uint32Array(n);
    case "i32":
      return new Int32Array(n);
    case "f32":
      return new Float32Array(n);
    case "f64":
      return new Float64Array(n);
    default:
      return fail(`type ${String(type)}`);
  }
}

export function decodeColumn(c: ColumnHead, blob: Uint8Array): NumberColumn | Strings {
  const where = `column ${c.name}`;
  if (!(c.offset >= 0 && c.bytes >= 0 && c.offset + c.bytes <= blob.length)) fail(`${where} lies outside of its blob`);
  if (!Number.isInteger(c.count) || c.count < 0) fail(`${where}: count ${c.count}`);
  const data = blob.subarray(c.offset, c.offset + c.bytes);
  if (c.enc === "raw") {
    if (c.type === "str") fail(`${where}: raw strings`);
    const size = SIZE[c.type as keyof typeof SIZE] ?? fail(`${where}: type ${String(c.type)}`);
    if (size * c.count !== c.bytes) fail(`${where}: ${c.count} numbers in ${c.bytes} bytes`);
    const copy = data.slice().buffer; // aligned, and the blob can go
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
  const out = make(c.type, c.count);
  const end = varints(data, c.count, c.enc, out);
  if (end !== data.length) fail(end < 0 ? `${where} is cut` : `${where} has ${data.length - end} bytes too many`);
  return out;
}

/** Reads n varints into out and returns where it stopped; -1 when the bytes ended before. */
function varints(data: Uint8Array, n: number, enc: string, out: NumberColumn): number {
  switch (enc) {
    case "uv":
      return unsigned(data, n, out);
    case "dv":
      return deltas(data, n, out);
    default:
      return signed(data, n, enc === "ov", out);
  }
}

// One loop for each encoding: these run once for each number of a page. A varint of one byte is the rule;
// the next four bytes are integers, and only beyond that is it arithmetic of doubles.
let stopped = 0;

/** The varint at `at`, whose first byte b has a next one; where it ends goes to `stopped`, -1 when it is cut. */
function long(data: Uint8Array, at: number, b: number): number {
  let v = b & 0x7f;
  let scale = 128;
  do {
    const next = data[at++];
    if (next === undefined || scale > 2 ** 70) {
      stopped = -1;
      return 0;
    }
    b = next;
    v += (b & 0x7f) * scale;
    scale *= 128;
  } while (b >= 0x80);
  stopped = at;
  return v;
}

function unsigned(data: Uint8Array, n: number, out: NumberColumn): number {
  let at = 0;
  for (let i = 0; i < n; i++) {
    if (at >= data.length) return -1;
    let v = data[at++] as number;
    if (v >= 0x80) {
      v = long(data, at, v);
      if (stopped < 0) return -1;
      at = stopped;
    }
    out[i] = v;
  }
  return at;
}

function deltas(data: Uint8Array, n: number, out: NumberColumn): number {
  let at = 0;
  let last = 0;
  for (let i = 0; i < n; i++) {
    if (at >= data.length) return -1;
    let v = data[at++] as number;
    if (v < 0x80) last += (v >>> 1) ^ -(v & 1);
    else {
      v = long(data, at, v);
      if (stopped < 0) return -1;
      at = stopped;
      last += v % 2 === 1 ? -(v + 1) / 2 : v / 2;
    }
    out[i] = last;
  }
  return at;
}

function signed(data: Uint8Array, n: number, optional: boolean, out: NumberColumn): number {
  let at = 0;
  for (let i = 0; i < n; i++) {
    if (at >= data.length) return -1;
    let v = data[at++] as number;
    if (v >= 0x80) {
      v = long(data, at, v);
      if (stopped < 0) return -1;
      at = stopped;
    }
    if (optional) {
      if (v === 0) {
        out[i] = NaN;
        continue;
      }
      v -= 1;
    }
    out[i] = v % 2 === 1 ? -(v + 1) / 2 : v / 2;
  }
  return at;
}

function strings(c: ColumnHead, data: Uint8Array): Strings {
  const lengths = new Uint32Array(c.count);
  let at = varintsUntil(data, c.count, lengths);
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

const varintsUntil = (data: Uint8Array, n: number, out: Uint32Array) => varints(data, n, "uv", out);

/** Bytes of base64 text; throws a ContainerError when it is none. */
export function fromBase64(text: string): Uint8Array {
  const native = (Uint8Array as unknown as { fromBase64?: (s: string) => Uint8Array }).fromBase64;
  try {
    if (native) return native.call(Uint8Array, text);
    const binary = atob(text);
    const out = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
    return out;
  } catch (err) {
    return fail(`the embedded data is no base64: ${(err as Error).message}`);
  }
}
