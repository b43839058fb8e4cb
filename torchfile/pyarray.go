package torchfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// How numpy 1.x and torch show arrays: elements padded to one width, long arrays cut to their edges
// (from 1000 elements on), lines wrapped. A trace's attributes may hold arrays, and viewers show
// them as str() does.

const (
	summarizeAbove = 1000
	edgeItems      = 3
	numpyLine      = 75
	torchLine      = 80
	torchPrecision = 4
	numpyPrecision = 8
)

// array is str() or repr() of a tensor, a numpy array or a numpy scalar.
func (p *pyPrinter) array(v Value, repr bool) {
	var s string
	var err error
	switch v.Kind() {
	case KindTensor:
		var t Tensor
		if t, err = v.Tensor(); err == nil {
			s, err = tensorStr(t)
		}
	case KindNDArray:
		var a NDArray
		if a, err = v.NDArray(); err == nil {
			s, err = p.ndarrayStr(a, repr)
		}
	case KindNPScalar:
		var x NPScalar
		if x, err = v.NPScalar(); err == nil {
			s = p.elem(x.Elem(), repr)
		}
	}
	if err != nil {
		s = "<" + v.Kind().String() + " that cannot be read>"
	}
	p.s(s)
}

// shortFloat writes the fewest digits that give back a float of the given size in bytes.
func shortFloat(f float64, size int64, verb byte, prec int) string {
	bits := 64
	if size == 4 {
		bits = 32
	}
	if size == 2 && prec < 0 { // no shorter form is known for halves: try
		for d := 0; d < 8; d++ {
			s := strconv.FormatFloat(f, 'e', d, 64)
			if g, _ := strconv.ParseFloat(s, 64); toHalf(g) == f {
				g, _ := strconv.ParseFloat(s, 64)
				return strconv.FormatFloat(g, verb, -1, 64)
			}
		}
	}
	return strconv.FormatFloat(f, verb, prec, bits)
}

// toHalf rounds to the nearest binary16 number.
func toHalf(f float64) float64 {
	if f == 0 || math.IsInf(f, 0) || math.IsNaN(f) {
		return f
	}
	_, e := math.Frexp(f)
	unit := math.Ldexp(1, max(e-11, -24))
	return math.RoundToEven(f/unit) * unit
}

func elemFloatStr(f float64, size int64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return shortFloat(f, size, 'e', -1)
	}
	s := shortFloat(f, size, 'f', -1)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// elem is str() (or repr()) of a numpy scalar.
func (p *pyPrinter) elem(e Elem, repr bool) string {
	switch e.t.Kind {
	case 'b':
		if e.b[0] != 0 {
			return "True"
		}
		return "False"
	case 'i':
		i, _ := e.Int()
		return strconv.FormatInt(i, 10)
	case 'u':
		i, _ := e.Int()
		return strconv.FormatUint(uint64(i), 10)
	case 'f':
		f, ok := e.Number()
		if !ok {
			break
		}
		return elemFloatStr(f, e.t.Size)
	case 'c':
		if c, ok := e.Complex(); ok {
			return pyComplexSized(c, e.t.Size/2)
		}
	case 'U':
		s, _ := e.Text()
		if repr {
			return string(appendPyString(nil, []byte(s)))
		}
		return s
	case 'S':
		s, _ := e.Text()
		return string(appendPyBytes(nil, []byte(s)))
	case 'O':
		q := p.part()
		if repr {
			q.repr(e.obj)
		} else {
			q.str(e.obj)
		}
		return string(q.b)
	case 'M':
		i, _ := e.Int()
		return datetimeStr(i, e.t.Unit)
	case 'm':
		i, _ := e.Int()
		if i == math.MinInt64 {
			return "NaT"
		}
		n, unit := unitOf(e.t.Unit)
		return strconv.FormatInt(i*n, 10) + " " + unit
	case 'V':
		if len(e.t.Fields) > 0 {
			parts := make([]string, len(e.t.Fields))
			for i, f := range e.t.Fields {
				x := e.field(f)
				if f.Type.Sub != nil {
					var in []string
					_ = x.sub().Each(func(e Elem) error {
						in = append(in, p.elem(e, true))
						return nil
					})
					parts[i] = "[" + strings.Join(in, ", ") + "]"
					continue
				}
				parts[i] = p.elem(x, true)
			}
			if len(parts) == 1 {
				return "(" + parts[0] + ",)"
			}
			return "(" + strings.Join(parts, ", ") + ")"
		}
		return string(appendPyBytesHex(e.b))
	}
	return "<" + e.t.String() + ">"
}

func appendPyBytesHex(b []byte) []byte {
	out := []byte("b'")
	for _, c := range b {
		out = fmt.Appendf(out, `\x%02X`, c)
	}
	return append(out, '\'')
}

func pyComplexSized(c complex128, size int64) string {
	part := func(f float64) string { return strings.TrimSuffix(elemFloatStr(f, size), ".0") }
	if real(c) == 0 && !math.Signbit(real(c)) {
		return part(imag(c)) + "j"
	}
	im := part(imag(c))
	if !strings.HasPrefix(im, "-") {
		im = "+" + im
	}
	return "(" + part(real(c)) + im + "j)"
}

// unitOf splits a datetime unit into its count and the name of the unit.
func unitOf(u string) (int64, string) {
	i := 0
	for i < len(u) && u[i] >= '0' && u[i] <= '9' {
		i++
	}
	n := int64(1)
	if i > 0 {
		if v, err := strconv.ParseInt(u[:i], 10, 32); err == nil {
			n = v
		}
	}
	names := map[string]string{"Y": "years", "M": "months", "W": "weeks", "D": "days", "h": "hours", "m": "minutes",
		"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "ps": "picoseconds",
		"fs": "femtoseconds", "as": "attoseconds", "": "generic time units"}
	return n, names[u[i:]]
}

// datetimeStr is a datetime64 in ISO 8601, as precise as its unit.
func datetimeStr(i int64, u string) string {
	if i == math.MinInt64 {
		return "NaT"
	}
	n, _ := unitOf(u)
	i *= n
	at := func(per int64, sec int64, layout string) string {
		q, r := i/per, i%per
		if r < 0 {
			q, r = q-1, r+per
		}
		ns := r
		for k := per; k > 1 && k < 1e9; k *= 10 {
			ns *= 10
		}
		return time.Unix(q*sec, ns).UTC().Format(layout)
	}
	switch strings.TrimLeft(u, "0123456789") {
	case "Y":
		return time.Date(1970+int(i), 1, 1, 0, 0, 0, 0, time.UTC).Format("2006")
	case "M":
		return time.Date(1970, 1+time.Month(i), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
	case "W":
		return at(1, 7*86400, "2006-01-02")
	case "D":
		return at(1, 86400, "2006-01-02")
	case "h":
		return at(1, 3600, "2006-01-02T15")
	case "m":
		return at(1, 60, "2006-01-02T15:04")
	case "s":
		return at(1, 1, "2006-01-02T15:04:05")
	case "ms":
		return at(1e3, 1, "2006-01-02T15:04:05.000")
	case "us":
		return at(1e6, 1, "2006-01-02T15:04:05.000000")
	case "ns":
		return at(1e9, 1, "2006-01-02T15:04:05.000000000")
	}
	return strconv.FormatInt(i, 10)
}

// edges marks which of n positions along a dimension are shown.
func edges(n int64, cut bool) (lead, trail int64, dots bool) {
	if cut && n > 2*edgeItems {
		return edgeItems, edgeItems, true
	}
	return n, 0, false
}

// shown calls fn with the flat index of every element that is shown of an array of this shape.
func shown(shape []int64, cut bool, fn func(i int64)) {
	var walk func(dim int, base int64)
	walk = func(dim int, base int64) {
		if dim == len(shape) {
			fn(base)
			return
		}
		n := shape[dim]
		lead, trail, _ := edges(n, cut)
		for i := range lead {
			walk(dim+1, base*n+i)
		}
		for i := n - trail; i < n; i++ {
			walk(dim+1, base*n+i)
		}
	}
	walk(0, 0)
}

// ndarrayStr is str() of a numpy array, or its repr() without line breaks of its own.
func (p *pyPrinter) ndarrayStr(a NDArray, repr bool) (string, error) {
	n := a.Len()
	cut := n > summarizeAbove
	elems := make(map[int64]Elem)
	want := make(map[int64]bool)
	shown(a.Shape, cut, func(i int64) { want[i] = true })
	i := int64(0)
	if err := a.Each(func(e Elem) error {
		if want[i] {
			elems[i] = e
		}
		i++
		return nil
	}); err != nil {
		return "", err
	}
	if len(a.Shape) == 0 && !repr {
		return p.elem(elems[0], false), nil
	}
	var list []Elem
	shown(a.Shape, cut, func(i int64) { list = append(list, elems[i]) })
	format := p.numpyFormat(list)
	sep, prefix := " ", ""
	if repr {
		sep, prefix = ", ", "array("
	}
	var out string
	switch {
	case n == 0:
		out = "[]"
	case len(a.Shape) == 0:
		out = p.elem(elems[0], true)
	default:
		out = numpyLayout(a.Shape, cut, sep, prefix, func(i int64) string { return format(elems[i]) })
	}
	if repr {
		out = prefix + out
		if s := reprType(a, n); s != "" {
			out += ", dtype=" + s
		}
		out += ")"
	}
	return out, nil
}

// reprType is what repr() says of an element type that the elements do not show.
func reprType(a NDArray, n int64) string {
	t := a.Type
	if n > 0 && (t.Kind == 'b' || t.Kind == 'i' && t.Size == 8 || t.Kind == 'f' && t.Size == 8 || t.Kind == 'c' && t.Size == 16) {
		return ""
	}
	names := map[byte]string{'i': "int", 'u': "uint", 'f': "float", 'c': "complex"}
	switch {
	case names[t.Kind] != "":
		return names[t.Kind] + strconv.FormatInt(8*t.Size, 10)
	case t.Kind == 'O':
		return "object"
	case t.Kind == 'b':
		return "bool"
	}
	return "'" + t.String() + "'"
}

// numpyLayout puts the elements in brackets, separated and wrapped.
func numpyLayout(shape []int64, cut bool, sep, prefix string, elem func(int64) string) string {
	trimmed := strings.TrimRight(sep, " ")
	var walk func(dim int, base int64, hang string, width int) string
	walk = func(dim int, base int64, hang string, width int) string {
		if dim == len(shape) {
			return elem(base)
		}
		n := shape[dim]
		lead, trail, dots := edges(n, cut)
		if !dots {
			lead, trail = n, 0
		}
		var idx []int64 // -1 for the dots
		for i := range lead {
			idx = append(idx, i)
		}
		if dots {
			idx = append(idx, -1)
		}
		for i := n - trail; i < n; i++ {
			idx = append(idx, i)
		}
		nextHang, nextWidth := hang+" ", width-1
		var s strings.Builder
		if dim == len(shape)-1 {
			room := width - max(len(trimmed), 1)
			line := hang
			for k, i := range idx {
				word := "..."
				if i >= 0 {
					word = walk(dim+1, base*n+i, nextHang, nextWidth)
				}
				if len(line)+len([]rune(word)) > room && len(line) > len(hang) {
					s.WriteString(strings.TrimRight(line, " ") + "\n")
					line = hang
				}
				line += word
				if k < len(idx)-1 {
					line += sep
				}
			}
			s.WriteString(line)
		} else {
			lineSep := trimmed + strings.Repeat("\n", len(shape)-dim-1)
			for k, i := range idx {
				s.WriteString(hang)
				if i < 0 {
					s.WriteString("...")
				} else {
					s.WriteString(walk(dim+1, base*n+i, nextHang, nextWidth))
				}
				if k < len(idx)-1 {
					s.WriteString(lineSep)
				}
			}
		}
		out := s.String()
		if len(out) >= len(hang) {
			out = out[len(hang):]
		}
		return "[" + out + "]"
	}
	return walk(0, 0, " "+strings.Repeat(" ", len(prefix)), numpyLine)
}

// numpyFormat chooses how the elements of one array are written: with one width.
func (p *pyPrinter) numpyFormat(list []Elem) func(Elem) string {
	plain := func(e Elem) string {
		if e.obj.Kind() == KindList {
			return "list(" + p.text(e.obj) + ")"
		}
		return p.elem(e, true)
	}
	if len(list) == 0 {
		return plain
	}
	switch list[0].t.Kind {
	case 'i', 'u', 'b', 'M', 'm':
		write := plain
		switch list[0].t.Kind {
		case 'M':
			write = func(e Elem) string { return "'" + p.elem(e, true) + "'" }
		case 'm':
			write = func(e Elem) string {
				i, _ := e.Int()
				return strconv.FormatInt(i, 10)
			}
		}
		w := 0
		for _, e := range list {
			w = max(w, len(write(e)))
		}
		if list[0].t.Kind == 'b' {
			w = 5 // " True", "False"
		}
		return func(e Elem) string { return fmt.Sprintf("%*s", w, write(e)) }
	case 'f':
		f := newFloatFormat(list, func(e Elem) float64 { x, _ := e.Number(); return x })
		return func(e Elem) string { x, _ := e.Number(); return f.write(x) }
	case 'c':
		re := newFloatFormat(list, func(e Elem) float64 { c, _ := e.Complex(); return real(c) })
		im := newFloatFormat(list, func(e Elem) float64 { c, _ := e.Complex(); return imag(c) })
		im.sign = true
		return func(e Elem) string {
			c, _ := e.Complex()
			i := im.write(imag(c))
			sp := len(strings.TrimRight(i, " "))
			return re.write(real(c)) + i[:sp] + "j" + i[sp:]
		}
	}
	return plain
}

// floatFormat is numpy's FloatingFormat: positional, or scientific when the numbers are far apart.
type floatFormat struct {
	size        int64
	exp         bool
	prec        int // scientific: digits after the point
	left, right int
	expDigits   int
	sign        bool
}

func newFloatFormat(list []Elem, get func(Elem) float64) *floatFormat {
	f := &floatFormat{size: list[0].t.Size, expDigits: 2}
	if list[0].t.Kind == 'c' {
		f.size /= 2
	}
	lo, hi := math.Inf(1), 0.0
	finite, nonFinite, negInf := 0, false, false
	for _, e := range list {
		x := get(e)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			nonFinite = true
			negInf = negInf || x < 0
			continue
		}
		finite++
		if a := math.Abs(x); a != 0 {
			lo, hi = min(lo, a), max(hi, a)
		}
	}
	f.exp = hi > 0 && (hi >= 1e8 || lo < 1e-4 || hi/lo > 1000)
	for _, e := range list {
		x := get(e)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			continue
		}
		if f.exp {
			m, ex, _ := strings.Cut(f.scientific(x, numpyPrecision), "e")
			whole, frac, _ := strings.Cut(m, ".")
			f.left, f.prec, f.expDigits = max(f.left, len(whole)), max(f.prec, len(frac)), max(f.expDigits, len(ex)-1)
			continue
		}
		whole, frac, _ := strings.Cut(f.positional(x), ".")
		f.left, f.right = max(f.left, len(whole)), max(f.right, len(frac))
	}
	if f.exp {
		f.right = f.expDigits + 2 + f.prec
	}
	if finite == 0 {
		f.left, f.right = 0, 0
	}
	if nonFinite {
		inf := 3
		if negInf {
			inf = 4
		}
		f.left = max(f.left, 3-f.right-1, inf-f.right-1)
	}
	return f
}

// positional writes up to 8 digits after the point, the fewest that give the number back.
func (f *floatFormat) positional(x float64) string {
	s := shortFloat(x, f.size, 'f', -1)
	if _, frac, _ := strings.Cut(s, "."); len(frac) > numpyPrecision {
		s = strings.TrimRight(strconv.FormatFloat(x, 'f', numpyPrecision, 64), "0")
	}
	if !strings.Contains(s, ".") {
		s += "."
	}
	return s
}

func (f *floatFormat) scientific(x float64, prec int) string {
	s := shortFloat(x, f.size, 'e', -1)
	m, e, _ := strings.Cut(s, "e")
	if _, frac, _ := strings.Cut(m, "."); len(frac) > prec {
		s = strconv.FormatFloat(x, 'e', prec, 64)
		m, e, _ = strings.Cut(s, "e")
		m = strings.TrimRight(m, "0")
	}
	if !strings.Contains(m, ".") {
		m += "."
	}
	return m + "e" + e
}

func (f *floatFormat) write(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		s := map[bool]string{true: "nan", false: "inf"}[math.IsNaN(x)]
		if x < 0 {
			s = "-inf"
		} else if f.sign {
			s = "+" + s
		}
		return fmt.Sprintf("%*s", f.left+f.right+1, s)
	}
	var s string
	if f.exp {
		m, e, _ := strings.Cut(f.scientific(x, f.prec), "e")
		whole, frac, _ := strings.Cut(m, ".")
		for len(e)-1 < f.expDigits {
			e = e[:1] + "0" + e[1:]
		}
		s = whole + "." + frac + strings.Repeat("0", f.prec-len(frac)) + "e" + e
	} else {
		s = f.positional(x)
		_, frac, _ := strings.Cut(s, ".")
		s += strings.Repeat(" ", max(0, f.right-len(frac)))
	}
	if f.sign && !strings.HasPrefix(s, "-") {
		s = "+" + s
	}
	whole, _, _ := strings.Cut(s, ".")
	return strings.Repeat(" ", max(0, f.left-len(whole))) + s
}

// tensorStr is str() of a torch tensor.
func tensorStr(t Tensor) (string, error) {
	head := ""
	if t.Class == "Parameter" {
		head = "Parameter containing:\n"
	}
	if t.Layout != "strided" {
		return head + fmt.Sprintf("tensor(size=%s, layout=torch.%s, dtype=%s)", pyShape(t.Shape), t.Layout, t.DType), nil
	}
	var suffix []string
	n := t.Len()
	plainType := t.DType == Float32 || t.DType == Int64 || t.DType == TorchBool || t.DType == Complex64
	body := "[]"
	switch {
	case n == 0:
		if len(t.Shape) != 1 {
			suffix = append(suffix, "size="+pyShape(t.Shape))
		}
		plainType = t.DType == Float32
	default:
		var err error
		if body, err = tensorBody(t); err != nil {
			return "", err
		}
	}
	if !plainType {
		suffix = append(suffix, "dtype="+t.DType.String())
	}
	if t.RequiresGrad {
		suffix = append(suffix, "requires_grad=True")
	}
	out := "tensor(" + body
	last := len(out) - strings.LastIndexByte(out, '\n') + 1
	for _, s := range suffix {
		if last+len(s)+2 > torchLine {
			out += ",\n       " + s
			last = 7 + len(s)
		} else {
			out += ", " + s
			last += len(s) + 2
		}
	}
	return head + out + ")", nil
}

func pyShape(shape []int64) string {
	parts := make([]string, len(shape))
	for i, n := range shape {
		parts[i] = strconv.FormatInt(n, 10)
	}
	if len(parts) == 1 {
		return "(" + parts[0] + ",)"
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// tensorBody writes the elements of a dense tensor in brackets.
func tensorBody(t Tensor) (string, error) {
	cut := t.Len() > summarizeAbove
	var format func(i int64) string
	width := 0
	data, _, err := t.span()
	if err != nil {
		return "", err
	}
	at := func(flat int64) []byte { // the element with this position in row-major order
		off := t.Offset
		for k := len(t.Shape) - 1; k >= 0; k-- {
			off += flat % t.Shape[k] * t.Stride[k]
			flat /= t.Shape[k]
		}
		size := int64(t.DType.Size())
		return data[off*size : (off+1)*size]
	}
	o := t.order()
	switch {
	case t.DType.IsComplex():
		re := newTorchFormat(t.Shape, cut, func(i int64) float64 { c, _ := t.DType.complex(at(i), o); return real(c) })
		im := newTorchFormat(t.Shape, cut, func(i int64) float64 { c, _ := t.DType.complex(at(i), o); return imag(c) })
		width = re.width + im.width + 1
		format = func(i int64) string {
			c, _ := t.DType.complex(at(i), o)
			s := im.write(imag(c)) + "j"
			if s[0] != '+' && s[0] != '-' {
				s = "+" + strings.TrimLeft(s, " ")
			} else {
				s = strings.TrimLeft(s, " ")
			}
			return re.write(real(c)) + s
		}
	case t.DType.IsFloat():
		f := newTorchFormat(t.Shape, cut, func(i int64) float64 { x, _ := t.DType.float(at(i), o); return x })
		width = f.width
		format = func(i int64) string { x, _ := t.DType.float(at(i), o); return f.write(x) }
	default:
		text := func(i int64) string {
			x, _ := t.DType.int(at(i), o)
			switch t.DType {
			case TorchBool:
				return map[bool]string{true: "True", false: "False"}[x != 0]
			case UInt64:
				return strconv.FormatUint(uint64(x), 10)
			}
			return strconv.FormatInt(x, 10)
		}
		width = 1
		shown(t.Shape, cut, func(i int64) { width = max(width, len(text(i))) })
		format = func(i int64) string { return fmt.Sprintf("%*s", width, text(i)) }
	}
	if len(t.Shape) == 0 {
		return format(0), nil
	}
	var walk func(dim int, base int64, indent int) string
	walk = func(dim int, base int64, indent int) string {
		n := t.Shape[dim]
		lead, trail, dots := edges(n, cut)
		var parts []string
		add := func(i int64) {
			if dim == len(t.Shape)-1 {
				parts = append(parts, format(base*n+i))
			} else {
				parts = append(parts, walk(dim+1, base*n+i, indent+1))
			}
		}
		for i := range lead {
			add(i)
		}
		if dots {
			parts = append(parts, map[bool]string{true: " ...", false: "..."}[dim == len(t.Shape)-1])
		}
		for i := n - trail; i < n; i++ {
			add(i)
		}
		sep := ",\n" + strings.Repeat(" ", indent+1)
		if dim < len(t.Shape)-1 {
			sep = "," + strings.Repeat("\n", len(t.Shape)-dim-1) + strings.Repeat(" ", indent+1)
			return "[" + strings.Join(parts, sep) + "]"
		}
		per := max(1, (torchLine-indent)/(width+2))
		var lines []string
		for len(parts) > 0 {
			k := min(per, len(parts))
			lines = append(lines, strings.Join(parts[:k], ", "))
			parts = parts[k:]
		}
		return "[" + strings.Join(lines, sep) + "]"
	}
	return walk(0, 0, len("tensor(")), nil
}

// torchFormat is torch's _Formatter for floating point numbers.
type torchFormat struct {
	whole, sci bool
	width      int
}

func newTorchFormat(shape []int64, cut bool, get func(int64) float64) *torchFormat {
	f := &torchFormat{whole: true, width: 1}
	lo, hi := math.Inf(1), 0.0
	var finite []float64
	shown(shape, cut, func(i int64) {
		x := get(i)
		if math.IsNaN(x) || math.IsInf(x, 0) || x == 0 {
			return
		}
		finite = append(finite, x)
		lo, hi = min(lo, math.Abs(x)), max(hi, math.Abs(x))
		f.whole = f.whole && x == math.Ceil(x)
	})
	if len(finite) == 0 {
		return f
	}
	f.sci = hi/lo > 1000 || hi > 1e8 || !f.whole && lo < 1e-4
	for _, x := range finite {
		n := len(f.text(x))
		f.width = max(f.width, n)
	}
	return f
}

func (f *torchFormat) text(x float64) string {
	var s string
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	case f.sci:
		s = strconv.FormatFloat(x, 'e', torchPrecision, 64)
	case f.whole:
		s = strconv.FormatFloat(x, 'f', 0, 64) + "."
	default:
		s = strconv.FormatFloat(x, 'f', torchPrecision, 64)
	}
	return s
}

func (f *torchFormat) write(x float64) string { return fmt.Sprintf("%*s", f.width, f.text(x)) }
