package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table lines columns up. A head that begins with ">" names a column of numbers, which go right.
type table struct {
	w     io.Writer
	right []bool
	rows  [][]string
}

func newTable(w io.Writer) *table { return &table{w: w} }

func (t *table) head(cols ...string) {
	row := make([]string, len(cols))
	for i, c := range cols {
		name, right := strings.CutPrefix(c, ">")
		row[i], t.right = name, append(t.right, right)
	}
	t.rows = append(t.rows, row)
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) flush() error {
	width := make([]int, len(t.right))
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if t.right[i] {
				b.WriteString(pad + c)
			} else {
				b.WriteString(c + pad)
			}
			b.WriteString("  ")
		}
		if _, err := fmt.Fprintln(t.w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// number shortens a value as Prometheus writes it.
func number(s string) string {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return formatFloat(f)
}

// formatFloat prints four significant digits, and whole numbers in full.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "idle"
	case f == math.Trunc(f) && math.Abs(f) < 1e15:
		return strconv.FormatFloat(f, 'f', -1, 64)
	case math.Abs(f) >= 1000:
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return strconv.FormatFloat(f, 'g', 4, 64)
}

var blocks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values in width columns; a gap (NaN) stays a gap. A column shows its greatest value,
// so that a spike is not averaged away.
func sparkline(vals []float64, width int) string {
	if len(vals) < width {
		width = len(vals)
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	cols := make([]float64, width)
	for i := range cols {
		cols[i] = math.NaN()
		for _, v := range vals[i*len(vals)/width : (i+1)*len(vals)/width] {
			if !math.IsNaN(v) && !math.IsInf(v, 0) && !(v < cols[i]) {
				cols[i] = v
			}
		}
		if !math.IsNaN(cols[i]) {
			lo, hi = min(lo, cols[i]), max(hi, cols[i])
		}
	}
	lo = min(lo, 0)
	var b strings.Builder
	for _, v := range cols {
		switch {
		case math.IsNaN(v):
			b.WriteByte(' ')
		case hi <= lo:
			b.WriteRune(blocks[0])
		default:
			b.WriteRune(blocks[int((v-lo)/(hi-lo)*float64(len(blocks)-1)+0.5)])
		}
	}
	return b.String()
}
