// Colours and fonts of the theme in force, read from the element's CSS variables; in forced colours the
// furniture takes the system's.
import type { Colours, Paint } from "./colours";
import { strengths } from "./colours";

export interface Ink {
  bg: string;
  surface: string;
  raised: string;
  text: string;
  text2: string;
  text3: string;
  grid: string;
  border: string;
  strong: string;
  accent: string;
  onAccent: string;
  selected: string;
  warn: string;
  crit: string;
  error: string;
  open: string;
  wait: string;
  sync: string;
  band: string;
  family: string;
  px: number;
  /** the system's colours are in force: what a background would tell needs an outline */
  forced: boolean;
  /** hatch of waiting, at the scale of the canvas */
  hatch: CanvasPattern | null;
  token: (name: string) => string;
}

export function readInk(el: Element, px = devicePixelRatio || 1): Ink {
  const style = getComputedStyle(el);
  const token = (name: string) => style.getPropertyValue(name).trim();
  const forced = matchMedia("(forced-colors: active)").matches;
  const own = (name: string, system: string) => (forced ? system : token(name) || system);
  const wait = own("--ph-wait", "GrayText");
  return {
    bg: own("--sunken", "Canvas"), surface: own("--surface", "Canvas"), raised: own("--raised", "Canvas"),
    text: own("--text", "CanvasText"), text2: own("--text-2", "CanvasText"), text3: own("--text-3", "CanvasText"),
    grid: own("--grid", "GrayText"), border: own("--border", "GrayText"), strong: own("--border-strong", "CanvasText"),
    accent: own("--accent", "Highlight"), onAccent: own("--on-accent", "HighlightText"), selected: own("--selected", "Canvas"),
    warn: own("--warn", "CanvasText"), crit: own("--crit", "CanvasText"),
    error: token("--ph-error") || "red", open: own("--ph-open", "CanvasText"), wait, sync: token("--ph-sync"), band: token("--band-sync"),
    family: token("--font") || "sans-serif", px, forced,
    hatch: hatch(wait, px), token,
  };
}

/** Diagonal lines of 1 px, 5 apart. */
function hatch(color: string, px: number): CanvasPattern | null {
  const size = Math.max(2, Math.round(5 * px));
  const c = document.createElement("canvas");
  c.width = c.height = size;
  const ctx = c.getContext("2d");
  if (!ctx) return null;
  ctx.strokeStyle = color;
  ctx.lineWidth = px;
  for (const shift of [-size, 0, size]) {
    ctx.beginPath();
    ctx.moveTo(shift - 1, size + 1);
    ctx.lineTo(shift + size + 1, -1);
    ctx.stroke();
  }
  return ctx.createPattern(c, "repeat");
}

let probe: CanvasRenderingContext2D | null = null;

/** Red, green and blue of any CSS colour. */
export function rgbOf(css: string): [number, number, number] {
  probe ??= document.createElement("canvas").getContext("2d");
  if (!probe) return [128, 128, 128];
  probe.fillStyle = "#808080";
  probe.fillStyle = css;
  const s = String(probe.fillStyle);
  if (s.startsWith("#")) return [parseInt(s.slice(1, 3), 16), parseInt(s.slice(3, 5), 16), parseInt(s.slice(5, 7), 16)];
  const m = s.match(/[\d.]+/g) ?? [];
  return [Number(m[0] ?? 128), Number(m[1] ?? 128), Number(m[2] ?? 128)];
}

/** A palette as colours; its last three bytes of rgb are the error's. */
export function paintOf(c: Colours, ink: Ink, lit: ReadonlySet<string>, hidden: ReadonlySet<string>): Paint {
  const n = c.entries.length;
  const rgb = new Uint8Array(3 * n + 3);
  const css: string[] = [];
  c.entries.forEach((e, i) => {
    const base = rgbOf(ink.token(e.token) || "gray");
    const to = e.shade > 0 ? 255 : 0;
    for (let k = 0; k < 3; k++) rgb[3 * i + k] = Math.round((base[k] as number) + (to - (base[k] as number)) * Math.abs(e.shade));
    css.push(`rgb(${rgb[3 * i]} ${rgb[3 * i + 1]} ${rgb[3 * i + 2]})`);
  });
  rgbOf(ink.error).forEach((v, k) => (rgb[3 * n + k] = v));
  return { rgb, css, alpha: strengths(c.entries, lit, hidden) };
}

/** Whether dark text is read better on a colour. */
export function darkText(rgb: Uint8Array, i: number): boolean {
  const lin = (v: number) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const l = 0.2126 * lin(rgb[3 * i] as number) + 0.7152 * lin(rgb[3 * i + 1] as number) + 0.0722 * lin(rgb[3 * i + 2] as number);
  return l > 0.18;
}
