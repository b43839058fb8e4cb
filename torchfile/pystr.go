package torchfile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func isLimit(err error) bool { return errors.Is(err, ErrLimit) }

// PyStr is what Python's str() gives for v, as far as the file tells: objects of classes whose
// __str__ is not known here are shown as <module.Class object>. Python 3.11's forms are used.
func (v Value) PyStr() string {
	if v.Kind() == KindStr {
		return v.Str()
	}
	p := newPyPrinter()
	p.str(v)
	return string(p.b)
}

// PyRepr is what Python's repr() gives for v, with the same reservation.
func (v Value) PyRepr() string {
	p := newPyPrinter()
	p.repr(v)
	return string(p.b)
}

// maxPyText bounds the text of PyStr and PyRepr; what is longer is cut by "...".
const maxPyText = 1 << 20

// pyPrinter writes values as Python shows them.
type pyPrinter struct {
	b    []byte
	open []uint64 // containers around the current value
	left *int     // what may still be written, by this printer and those made for parts
}

func newPyPrinter() *pyPrinter {
	left := maxPyText
	return &pyPrinter{left: &left}
}

// part returns a printer for a part of the text, within the same bounds.
func (p *pyPrinter) part() *pyPrinter { return &pyPrinter{open: p.open, left: p.left} }

func (p *pyPrinter) s(s string) {
	p.b = append(p.b, s...)
	*p.left -= len(s)
}

// text is what repr writes for v, as a part.
func (p *pyPrinter) text(v Value) string {
	q := p.part()
	q.repr(v)
	return string(q.b)
}

// str is str() of what has its own; repr() of all others.
func (p *pyPrinter) str(v Value) {
	switch v.Kind() {
	case KindGlobal:
		if e, ok := v.Enum(); ok {
			p.s(e.Class.Name[strings.LastIndexByte(e.Class.Name, '.')+1:] + "." + e.Name)
			return
		}
	case KindNDArray, KindNPScalar, KindTensor:
		if p.enter(v) {
			p.array(v, false)
			p.open = p.open[:len(p.open)-1]
		}
		return
	case KindObject:
		if s, ok := p.known(v); ok {
			p.s(s)
			return
		}
		c := v.Class()
		if c.Module == "builtins" && strings.HasSuffix(c.Name, "Error") || strings.HasSuffix(c.Name, "Exception") {
			switch a := v.Args(); {
			case a.Len() == 0:
			case a.Len() == 1 && a.Index(0).Kind() == KindStr:
				p.s(a.Index(0).Str())
			case a.Len() == 1:
				p.repr(a.Index(0))
			default:
				p.repr(a)
			}
			return
		}
	}
	p.repr(v)
}

func (p *pyPrinter) repr(v Value) {
	if *p.left <= 0 {
		p.s("...")
		return
	}
	*p.left--
	before := len(p.b)
	switch v.Kind() {
	case KindInvalid:
		p.s("<unreadable>")
	case KindNone:
		p.s("None")
	case KindBool:
		if b, _ := v.Bool(); b {
			p.s("True")
		} else {
			p.s("False")
		}
	case KindInt:
		if i, ok := v.Int(); ok {
			p.b = strconv.AppendInt(p.b, i, 10)
		} else if b, ok := v.BigInt(); ok {
			p.b = b.Append(p.b, 10)
		} else {
			p.s("<int of " + strconv.FormatUint(v.val().b, 10) + " bytes>")
		}
	case KindFloat:
		f, _ := v.Float()
		p.b = appendPyFloat(p.b, f)
	case KindComplex:
		re, _ := v.Args().Index(0).Number()
		im, _ := v.Args().Index(1).Number()
		p.s(pyComplex(complex(re, im)))
	case KindStr:
		p.b = appendPyString(p.b, v.RawStr())
	case KindBytes:
		p.b = appendPyBytes(p.b, v.Bytes())
	case KindByteArray:
		p.s("bytearray(")
		p.b = appendPyBytes(p.b, v.Bytes())
		p.s(")")
	case KindGlobal:
		p.global(v)
	case KindBuffer:
		p.s("<buffer>")
	default:
		p.container(v)
		return
	}
	*p.left -= len(p.b) - before
}

func (p *pyPrinter) global(v Value) {
	c := v.Class()
	switch {
	case c.Module == "torch" && torchDType(c.Name) != 0:
		p.s(torchDType(c.Name).String())
	case c.Module == "builtins" && (c.Name == "Ellipsis" || c.Name == "NotImplemented"):
		p.s(c.Name)
	case isBuiltinFunction(c):
		p.s("<built-in function " + c.Name + ">")
	case c.Module == "builtins":
		p.s("<class '" + c.Name + "'>")
	default:
		if e, ok := v.Enum(); ok && e.HasKnown {
			p.s("<" + e.Class.Name[strings.LastIndexByte(e.Class.Name, '.')+1:] + "." + e.Name + ">")
			return
		}
		p.s("<class '" + c.String() + "'>")
	}
}

// enter opens a container, unless it is open already or too deep: then it writes what stands for it.
func (p *pyPrinter) enter(v Value) bool {
	id := v.ID()
	for _, o := range p.open {
		if o == id {
			switch v.Kind() {
			case KindList:
				p.s("[...]")
			case KindDict:
				p.s("{...}")
			default:
				p.s("(...)")
			}
			return false
		}
	}
	if len(p.open) >= v.d.lim.MaxDepth || *p.left <= 0 {
		p.s("...")
		return false
	}
	p.open = append(p.open, id)
	return true
}

func (p *pyPrinter) container(v Value) {
	if !p.enter(v) {
		return
	}
	defer func() { p.open = p.open[:len(p.open)-1] }()
	switch v.Kind() {
	case KindList:
		p.seq("[", v, "]")
	case KindTuple:
		if v.Class().Name == "Size" {
			p.seq("torch.Size([", v, "])")
			return
		}
		if v.Len() == 1 {
			p.seq("(", v, ",)")
			return
		}
		p.seq("(", v, ")")
	case KindSet:
		if v.Len() == 0 {
			p.s("set()")
			return
		}
		p.seq("{", v, "}")
	case KindFrozenSet:
		if v.Len() == 0 {
			p.s("frozenset()")
			return
		}
		p.seq("frozenset({", v, "})")
	case KindDict:
		switch v.Class().Name {
		case "OrderedDict":
			p.s("OrderedDict(")
			if v.Len() > 0 {
				p.s("[")
				n := 0
				for k, x := range v.Pairs() {
					if n++; n > 1 {
						p.s(", ")
					}
					p.s("(")
					p.repr(k)
					p.s(", ")
					p.repr(x)
					p.s(")")
				}
				p.s("]")
			}
			p.s(")")
		case "defaultdict":
			p.s("defaultdict(")
			if f := v.Args().Index(0); f.Exists() {
				p.repr(f)
			} else {
				p.s("None")
			}
			p.s(", ")
			p.dict(v)
			p.s(")")
		case "Counter":
			p.s("Counter(")
			if v.Len() > 0 {
				p.dict(v)
			}
			p.s(")")
		default:
			p.dict(v)
		}
	case KindNDArray, KindNPScalar, KindTensor:
		p.array(v, true)
	case KindObject:
		p.object(v)
	default:
		p.s("<" + v.Kind().String() + ">")
	}
}

func (p *pyPrinter) seq(open string, v Value, end string) {
	p.s(open)
	for i, x := range v.All() {
		if i > 0 {
			p.s(", ")
		}
		if *p.left <= 0 {
			p.s("...")
			break
		}
		p.repr(x)
	}
	p.s(end)
}

func (p *pyPrinter) dict(v Value) {
	p.s("{")
	n := 0
	for k, x := range v.Pairs() {
		if n++; n > 1 {
			p.s(", ")
		}
		if *p.left <= 0 {
			p.s("...")
			break
		}
		p.repr(k)
		p.s(": ")
		p.repr(x)
	}
	p.s("}")
}

func (p *pyPrinter) object(v Value) {
	c := v.Class()
	short := c.Name[strings.LastIndexByte(c.Name, '.')+1:]
	known, ok := p.known(v)
	switch {
	case ok && (c.Module == "decimal" || c.Module == "uuid" || c.Module == "pathlib"):
		p.s(short + "(")
		p.b = appendPyString(p.b, []byte(known))
		p.s(")")
		return
	case ok && c.Module == "fractions":
		p.s("Fraction(" + strings.Replace(known, "/", ", ", 1) + ")")
		return
	case ok && c.Module == "torch":
		p.s("device(type='" + known + "')")
		return
	case ok:
		p.s(known)
		return
	}
	if c.Module == "builtins" && strings.HasSuffix(c.Name, "Error") || strings.HasSuffix(c.Name, "Exception") {
		p.seq(short+"(", v.Args(), ")")
		return
	}
	if e, ok := v.Enum(); ok && e.Name != "" {
		p.s("<" + short + "." + e.Name + ": ")
		p.repr(e.Value)
		p.s(">")
		return
	}
	p.s("<" + c.String() + " object>")
}

// pyKnown is str() of an object of the standard library.
func (v Value) pyKnown() (string, bool) {
	p := newPyPrinter()
	p.open = append(p.open, v.ID())
	return p.known(v)
}

// known is pyKnown within what p writes.
func (p *pyPrinter) known(v Value) (string, bool) {
	if v.Kind() != KindObject || len(p.open) >= v.d.lim.MaxDepth {
		return "", false
	}
	c := v.Class()
	a := v.Args()
	switch c.Module {
	case "datetime":
		return v.pyTime(c.Name)
	case "decimal":
		if c.Name == "Decimal" && a.Index(0).Kind() == KindStr {
			return a.Index(0).Str(), true
		}
	case "fractions":
		if c.Name != "Fraction" {
			return "", false
		}
		n, d := a.Index(0), a.Index(1)
		switch {
		case n.Kind() == KindStr:
			return n.Str(), true
		case n.Kind() == KindInt && d.Kind() == KindInt:
			if one, ok := d.Int(); ok && one == 1 {
				return p.text(n), true
			}
			return p.text(n) + "/" + p.text(d), true
		}
	case "uuid":
		if i, ok := v.Attr("int").BigInt(); ok && c.Name == "UUID" && i.Sign() >= 0 && i.BitLen() <= 128 {
			h := fmt.Sprintf("%032x", i)
			return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], true
		}
	case "pathlib":
		var parts []string
		for _, x := range a.All() {
			if x.Kind() != KindStr {
				return "", false
			}
			parts = append(parts, x.Str())
		}
		sep := "/"
		if strings.Contains(c.Name, "Windows") {
			sep = `\`
		}
		if len(parts) > 0 && strings.HasSuffix(parts[0], sep) {
			return parts[0] + strings.Join(parts[1:], sep), true
		}
		if len(parts) == 0 {
			return ".", true
		}
		return strings.Join(parts, sep), true
	case "builtins":
		switch c.Name {
		case "slice", "range":
			if a.Len() == 3 {
				if one, ok := a.Index(2).Int(); ok && one == 1 && c.Name == "range" {
					return "range(" + p.text(a.Index(0)) + ", " + p.text(a.Index(1)) + ")", true
				}
				return c.Name + p.text(a), true
			}
		}
	case "collections":
		if c.Name == "deque" && v.Called() {
			q := p.part()
			q.seq("deque([", v, "]")
			if n := a.Index(1); n.Kind() == KindInt {
				q.s(", maxlen=" + p.text(n))
			}
			q.s(")")
			return string(q.b), true
		}
	case "torch":
		if c.Name == "device" && a.Len() > 0 {
			s := a.Index(0).Str()
			if i, ok := a.Index(1).Int(); ok {
				s += ":" + strconv.FormatInt(i, 10)
			}
			return s, true
		}
	}
	// A namedtuple whose fields the caller knows.
	if h, ok := v.d.f.opts.Classes[c.String()]; ok && len(h.Fields) > 0 && len(h.Fields) == a.Len() && !v.State().Exists() {
		q := p.part()
		q.s(c.Name[strings.LastIndexByte(c.Name, '.')+1:] + "(")
		for i, x := range a.All() {
			if i > 0 {
				q.s(", ")
			}
			q.s(h.Fields[i] + "=")
			q.repr(x)
		}
		q.s(")")
		return string(q.b), true
	}
	return "", false
}

// pyTime is str() of an object of module datetime.
func (v Value) pyTime(name string) (string, bool) {
	a := v.Args()
	b := a.Index(0).Bytes()
	if b == nil {
		b = a.Index(0).RawStr()
	}
	clock := func(b []byte) string {
		s := fmt.Sprintf("%02d:%02d:%02d", b[0], b[1], b[2])
		if us := int(b[3])<<16 | int(b[4])<<8 | int(b[5]); us != 0 {
			s += fmt.Sprintf(".%06d", us)
		}
		return s
	}
	date := func(b []byte) string {
		return fmt.Sprintf("%04d-%02d-%02d", int(b[0])<<8|int(b[1]), b[2]&0x7f, b[3])
	}
	zone := func(z Value) string {
		if us, ok := z.zoneOffset(); ok {
			return pyOffset(us)
		}
		return ""
	}
	switch name {
	case "datetime":
		if len(b) == 10 {
			return date(b) + " " + clock(b[4:]) + zone(a.Index(1)), true
		}
	case "date":
		if len(b) == 4 {
			return date(b), true
		}
	case "time":
		if len(b) == 6 {
			c := append([]byte(nil), b...)
			c[0] &= 0x7f
			return clock(c) + zone(a.Index(1)), true
		}
	case "timedelta":
		if d, s, us, ok := v.delta(); ok {
			out := ""
			if d != 0 {
				out = fmt.Sprintf("%d day", d)
				if d != 1 && d != -1 {
					out += "s"
				}
				out += ", "
			}
			out += fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
			if us != 0 {
				out += fmt.Sprintf(".%06d", us)
			}
			return out, true
		}
	case "timezone":
		if us, ok := v.zoneOffset(); ok {
			if n := a.Index(1); n.Kind() == KindStr {
				return n.Str(), true
			}
			if us == 0 {
				return "UTC", true
			}
			return "UTC" + pyOffset(us), true
		}
	}
	return "", false
}

func (v Value) delta() (days, seconds, us int64, ok bool) {
	a := v.Args()
	d, ok1 := a.Index(0).Int()
	s, ok2 := a.Index(1).Int()
	u, ok3 := a.Index(2).Int()
	return d, s, u, ok1 && ok2 && ok3 && v.Class().Name == "timedelta" && d > -1e9 && d < 1e9 && s >= 0 && s < 86400 && u >= 0 && u < 1e6
}

// zoneOffset is the offset of a datetime.timezone in microseconds.
func (v Value) zoneOffset() (int64, bool) {
	if v.Class().Name != "timezone" {
		return 0, false
	}
	d, s, us, ok := v.Args().Index(0).delta()
	if !ok || d < -1 || d > 1 {
		return 0, false
	}
	return (d*86400+s)*1e6 + us, true
}

func pyOffset(us int64) string {
	sign := "+"
	if us < 0 {
		sign, us = "-", -us
	}
	s := us / 1e6
	out := fmt.Sprintf("%s%02d:%02d", sign, s/3600, s/60%60)
	if s%60 != 0 || us%1e6 != 0 {
		out += fmt.Sprintf(":%02d", s%60)
	}
	if us%1e6 != 0 {
		out += fmt.Sprintf(".%06d", us%1e6)
	}
	return out
}

// appendPyFloat writes a float as Python's repr does: the shortest digits that give it back.
func appendPyFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if !strings.ContainsRune(string(dst[at:]), '.') {
		dst = append(dst, ".0"...)
	}
	return dst
}

func pyComplex(c complex128) string {
	part := func(f float64) string {
		return strings.TrimSuffix(string(appendPyFloat(nil, f)), ".0")
	}
	if real(c) == 0 && !math.Signbit(real(c)) {
		return part(imag(c)) + "j"
	}
	im := part(imag(c))
	if !strings.HasPrefix(im, "-") {
		im = "+" + im
	}
	return "(" + part(real(c)) + im + "j)"
}

func appendPyString(dst, s []byte) []byte {
	quote := byte('\'')
	if strings.ContainsRune(string(s), '\'') && !strings.ContainsRune(string(s), '"') {
		quote = '"'
	}
	dst = append(dst, quote)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRune(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			if i+3 <= len(s) && s[i] == 0xed { // a lone surrogate
				dst = fmt.Appendf(dst, `\u%04x`, rune(s[i]&15)<<12|rune(s[i+1]&0x3f)<<6|rune(s[i+2]&0x3f))
				n = 3
			} else {
				dst = fmt.Appendf(dst, `\x%02x`, s[i])
			}
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r < 0x20 || r == 0x7f:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r < 0x7f || unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r <= 0xff:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r <= 0xffff:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		}
		i += n
	}
	return append(dst, quote)
}

func appendPyBytes(dst, s []byte) []byte {
	quote := byte('\'')
	if strings.ContainsRune(string(s), '\'') && !strings.ContainsRune(string(s), '"') {
		quote = '"'
	}
	dst = append(dst, 'b', quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20 || c >= 0x7f:
			dst = fmt.Appendf(dst, `\x%02x`, c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, quote)
}

// isBuiltinFunction tells functions of Python's builtins from its classes.
func isBuiltinFunction(c Class) bool {
	if c.Module != "builtins" {
		return false
	}
	switch c.Name {
	case "abs", "all", "any", "ascii", "bin", "breakpoint", "callable", "chr", "compile", "delattr", "dir",
		"divmod", "eval", "exec", "format", "getattr", "globals", "hasattr", "hash", "hex", "id", "input",
		"isinstance", "issubclass", "iter", "len", "locals", "max", "min", "next", "oct", "open", "ord", "pow",
		"print", "repr", "round", "setattr", "sorted", "sum", "vars", "__import__", "__build_class__":
		return true
	}
	return false
}

func pyTypeOfConstant(name string) string {
	if name == "Ellipsis" {
		return "builtins.ellipsis"
	}
	return "builtins.NotImplementedType"
}
