package enginelog

import (
	"strconv"
	"strings"
)

// batch reads what stands behind "Prefill batch" or "Decode batch": key: value pairs in any order.
func (l *lineState) batch(rest string, decode bool) {
	format := "sglang.prefill"
	if decode {
		format = "sglang.decode"
	}
	l.set(format, None)
	rest = strings.TrimPrefix(rest, "(mixed ")
	if r, ok := strings.CutPrefix(rest, " ["); ok {
		if it, r, ok := strings.Cut(r, "]"); ok && isDigits(it) {
			l.add("forward_iter", it)
			rest = r
		}
	}
	rest = strings.TrimLeft(rest, " .,")
	if i := secondStamp(rest); i >= 0 {
		l.marks |= Interleaved | Cut
		rest = rest[:i]
	}
	queue := false
	last := -1 // field of the last pair
	for rest != "" {
		var key, val string
		i := strings.IndexByte(rest, ':')
		if i < 0 {
			// "fwd occupancy" and the like always have a colon: what is left is the head of a pair.
			if strings.Trim(rest, " ,.)") != "" {
				l.marks |= Cut
			} else if strings.Contains(rest, "...") {
				l.marks |= Cut
			}
			break
		}
		key = strings.TrimLeft(rest[:i], " ,")
		if strings.HasPrefix(key, "...") {
			l.marks |= Cut
		}
		val, rest = takeValue(rest[i+1:])
		last = -1
		if k := strings.LastIndexAny(key, ",[]"); k >= 0 {
			// A pair without a colon before this one.
			l.marks |= Cut
			key = strings.TrimLeft(key[k+1:], " ")
		}
		if key == "#queue-req" {
			queue = true
		}
		w := findWord(key)
		switch {
		case val == "":
			l.marks |= Cut
		case w != nil && w.field == skipKey:
		case w != nil && w.field == graphKey, w == nil && isGraph(key):
			if val != "True" && val != "False" {
				l.marks |= Cut
				continue
			}
			l.add("graph", strings.TrimSuffix(key, " graph"))
			l.add("graph_used", strings.ToLower(val))
		case w == nil && glued(key):
			l.marks |= Cut
		case w == nil:
			if v, ok := l.number(val); ok {
				if n := plainName(key); n != "" {
					l.add(n, v)
					last = len(l.fields) - 1
				}
			}
		default:
			name := w.field
			if name == preallocKey {
				name = "num_prefill_bootstrap_queue_reqs"
				if decode {
					name = "num_decode_prealloc_queue_reqs"
				}
			}
			v, ok := l.number(strings.TrimSuffix(val, "%"))
			if !ok {
				continue
			}
			if w.percent {
				f, _ := strconv.ParseFloat(v, 64)
				v = strconv.FormatFloat(f/100, 'g', 6, 64)
			}
			l.add(name, v)
			last = len(l.fields) - 1
		}
	}
	if !queue {
		l.marks |= Cut
	}
	// The last number of a cut line may have lost its end; one with two decimals is whole.
	if l.marks&Cut != 0 && last >= 0 && rest == "" {
		if v := l.fields[last].Value; len(v) < 3 || v[len(v)-3] != '.' {
			l.fields = l.fields[:last]
		}
	}
}

// takeValue cuts a value off: up to the comma, of an old form up to the closing bracket.
func takeValue(s string) (val, rest string) {
	s = strings.TrimLeft(s, " ")
	i := strings.IndexAny(s, ", )")
	if i < 0 {
		return strings.TrimSuffix(s, "."), ""
	}
	val, rest = s[:i], s[i:]
	if rest[0] == ')' {
		rest = strings.TrimLeft(rest, "). ")
		return val, rest
	}
	return val, strings.TrimLeft(rest, " ,")
}

// number checks that a value is a finite number. nan and infinities are marked and left out.
func (l *lineState) number(s string) (string, bool) {
	if s == "" {
		return "", false
	}
	c := s[0]
	if c == '-' || c == '+' {
		if len(s) == 1 {
			l.marks |= Cut
			return "", false
		}
		c = s[1]
	}
	if c == 'n' || c == 'i' || c == 'N' || c == 'I' {
		switch strings.ToLower(strings.TrimLeft(s, "+-")) {
		case "nan", "inf", "infinity":
			l.marks |= NotFinite
		default:
			l.marks |= Cut
		}
		return "", false
	}
	if !isNumber(s) {
		l.marks |= Cut
		return "", false
	}
	return s, true
}

// isNumber tells whether s is a decimal number of moderate length: as written by %d, %f or %g.
func isNumber(s string) bool {
	i := 0
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	n, dot := 0, false
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			n++
		case c == '.' && !dot:
			dot = true
		case (c == 'e' || c == 'E') && n > 0:
			i++
			if i < len(s) && (s[i] == '-' || s[i] == '+') {
				i++
			}
			return i < len(s) && len(s)-i < 4 && isDigits(s[i:])
		default:
			return false
		}
	}
	return n > 0 && n < 40
}

// secondStamp finds the begin of another line within this one: a bracket with a date, or another batch.
func secondStamp(s string) int {
	for i := 0; i+12 < len(s); {
		k := strings.IndexByte(s[i:], '[')
		if k < 0 {
			break
		}
		i += k
		if _, n, _ := readTime(s[i+1:]); n > 0 {
			return i
		}
		i++
	}
	for _, w := range [...]string{"Decode batch", "Prefill batch"} {
		if i := strings.Index(s, w); i >= 0 {
			return i
		}
	}
	return -1
}
