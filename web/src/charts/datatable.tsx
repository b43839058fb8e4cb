// A chart's points as a table: newest first, every value with its state in words.
import { clock, dayClock, sameDay } from "../format/time";
import { now } from "../state/live";
import { valueText, type ChartModel } from "./model";

const MOST = 500;

export function DataTable({ model: m }: { model: ChartModel }) {
  const n = Math.max(0, ...m.lines.map((l) => l.values.length));
  const rows = Array.from({ length: Math.min(n, MOST) }, (_, i) => n - 1 - i);
  const today = sameDay(m.from, now()) && sameDay(m.to, now());
  return (
    <div class="datatable scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th>Time, UTC</th>
            {m.lines.map((l) => (
              <th class="n" key={l.name}>
                {l.name}
                {m.scale.unit && `, ${m.scale.unit}`}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((i) => (
            <tr key={i}>
              <td>{today ? clock(m.from + i * m.step, m.step < 60_000) : dayClock(m.from + i * m.step, now(), m.step < 60_000)}</td>
              {m.lines.map((l) => (
                <td class="n" key={l.name}>{valueText(l, i, m)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {n > MOST && <p class="mut">the newest {MOST} of {n} points; Explore has them all</p>}
    </div>
  );
}
