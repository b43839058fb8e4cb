// Where rows lie: all have the same height but those that are expanded, which have a line for each lane.

export class Layout {
  /** top of each row and, last, the whole height; null when all rows are the same */
  private tops: Float64Array | null = null;
  readonly n: number;

  constructor(
    readonly order: Uint32Array,
    readonly rowH: number,
    readonly laneH: number,
    /** lanes of a row of the dump when it is expanded, 0 when it is not */
    lanes: ((row: number) => number) | null,
  ) {
    this.n = order.length;
    if (!lanes) return;
    const tops = new Float64Array(this.n + 1);
    let y = 0;
    for (let p = 0; p < this.n; p++) {
      tops[p] = y;
      const k = lanes(order[p] as number);
      y += rowH + (k > 0 ? k * laneH + 2 : 0);
    }
    tops[this.n] = y;
    this.tops = tops;
  }

  get height(): number {
    return this.tops ? (this.tops[this.n] as number) : this.n * this.rowH;
  }

  top(p: number): number {
    return this.tops ? (this.tops[Math.max(0, Math.min(this.n, p))] as number) : p * this.rowH;
  }

  /** The place in the order of what lies at y; -1 above, n below. */
  at(y: number): number {
    if (y < 0) return -1;
    if (!this.tops) return this.rowH > 0 ? Math.min(this.n, Math.floor(y / this.rowH)) : this.n;
    let lo = 0, hi = this.n;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if ((this.tops[mid + 1] as number) <= y) lo = mid + 1;
      else hi = mid;
    }
    return lo;
  }

  /** The lane at y within row p: -1 its bar, else the lane. */
  laneAt(p: number, y: number): number {
    const inRow = y - this.top(p) - this.rowH;
    return inRow < 0 ? -1 : Math.floor(inRow / this.laneH);
  }
}
