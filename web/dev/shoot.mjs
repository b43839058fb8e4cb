// Screenshots while working on the page: node dev/shoot.mjs BASE OUTDIR [WxH] PATH=NAME...
import { chromium } from "playwright-core";
import { mkdirSync } from "node:fs";
const [base, out, ...rest] = process.argv.slice(2);
const size = rest.find((r) => /^\d+x\d+$/.test(r)) ?? "1600x1000";
const [width, height] = size.split("x").map(Number);
mkdirSync(out, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
for (const shot of rest.filter((r) => r.includes("="))) {
  const at = shot.lastIndexOf("=");
  const page = await browser.newPage({ viewport: { width, height } });
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && console.log(shot, m.type(), m.text()));
  page.on("pageerror", (e) => console.log(shot, "page error", e.stack));
  await page.goto(base + shot.slice(0, at));
  await page.waitForTimeout(Number(process.env.WAIT ?? 1500));
  if (process.env.DO) await new Function("page", `return (async () => { ${process.env.DO} })()`)(page);
  await page.screenshot({ path: `${out}/${shot.slice(at + 1)}.png` });
  await page.close();
}
await browser.close();
