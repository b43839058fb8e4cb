// Chrome trace JSON of what is seen, for ui.perfetto.dev: a process per row, a thread per lane. Spans are
// cut at the window; one that is open at its end stays open there.
import type { Head } from "./container";
import { CLASS_NAMES, OPEN, ORPHAN, POINT, rowName, type Rows, type Table } from "./table";

/** Makes the file in pieces, so that no string holds all of it. Times are microseconds from head.t0. */
export function perfetto(head: Head, rows: Rows, t: Table, order: Uint32Array, t0: number, t1: number): Blob {
  const parts: string[] = ['{"displayTimeUnit":"ms","otherData":', JSON.stringify({ dump: head.dump.name, tool: head.tool, t0_ns: head.t0 }), ',"traceEvents":['];
  const buf: string[] = [];
  let first = true;
  const emit = (e: Record<string, unknown>) => {
    buf.push((first ? "" : ",\n") + JSON.stringify(e));
    first = false;
    if (buf.length >= 4096) parts.push(buf.splice(0).join(""));
  };
  const names = head.dicts.name;
  for (let p = 0; p < order.length; p++) {
    const r = order[p] as number;
    const a = t.itemFrom[r] as number, b = t.itemFrom[r + 1] as number;
    let any = false;
    for (let i = a; i < b; i++) {
      const start = t.start[i] as number, end = start + (t.dur[i] as number);
      if (end < t0 || start > t1) continue;
      const pid = (rows.ordinal[r] as number) + 1, tid = (t.lane[i] as number) + 1;
      if (!any) {
        any = true;
        emit({ ph: "M", name: "process_name", pid, args: { name: `sample ${rowName(rows, r)} ${head.dicts.status[rows.status[r] as number] ?? ""}`.trim() } });
        emit({ ph: "M", name: "process_sort_index", pid, args: { sort_index: p } });
      }
      const name = names[t.name[i] as number] || "(no name)";
      const cat = CLASS_NAMES[t.class[i] as number] ?? "other";
      const args: Record<string, unknown> = { attempt: t.attempt[i] };
      const state = t.state[i];
      if (state === POINT || state === ORPHAN) {
        emit({ ph: "i", s: "t", name: state === ORPHAN ? `${name} (end without start)` : name, cat, pid, tid, ts: start, args });
        continue;
      }
      const from = Math.max(start, t0), to = Math.min(end, t1);
      if (from > start) args["cut_start_us"] = start;
      if (state === OPEN) {
        args["open"] = true;
        emit({ ph: "B", name, cat, pid, tid, ts: from, args });
        continue;
      }
      if (to < end) args["cut_end_us"] = end;
      emit({ ph: "X", name, cat, pid, tid, ts: from, dur: to - from, args });
      for (let s = t.segFrom[i] as number, e = t.segFrom[i + 1] as number; s < e; s++) {
        const sa = Math.max(t.segStart[s] as number, t0), sb = Math.min((t.segStart[s] as number) + (t.segDur[s] as number), t1);
        if (sb > sa) emit({ ph: "X", name: CLASS_NAMES[t.segClass[s] as number] ?? "phase", cat: "phase", pid, tid, ts: sa, dur: sb - sa });
      }
    }
  }
  parts.push(buf.join(""), "]}\n");
  return new Blob(parts, { type: "application/json" });
}
