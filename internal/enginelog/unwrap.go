package enginelog

import (
	"bytes"
	"strings"
)

// wrapping is what a container runtime wrote around a line.
type wrapping struct {
	time   int64  // when the runtime got the line, 0 without a wrapping
	stream string // stdout, stderr
	marks  Mark
}

// unwrapper takes off the forms of Docker's json-file driver and of Kubernetes' container runtimes, and
// joins the parts of a line that the runtime split (Docker at 16 KiB, CRI with the tag P).
type unwrapper struct {
	held    []byte
	heldBy  wrapping
	holding bool
}

// line returns the line within. ok is false when it was a part: the rest is to come. Line may return a
// slice of its own buffer, valid until the next call.
func (u *unwrapper) line(b []byte) (out []byte, w wrapping, ok bool) {
	in, w, partial, wrapped := unwrapLine(b)
	if !wrapped {
		if u.holding {
			// The runtime's stream is broken off: what was held goes first would need two records. It is
			// rare enough to be put in front of the line.
			in = append(u.held, b...)
			w = u.heldBy
			w.marks |= Cut | Interleaved
			u.holding, u.held = false, nil
			return in, w, true
		}
		return b, wrapping{}, true
	}
	if u.holding && w.stream == u.heldBy.stream {
		if len(u.held)+len(in) <= MaxLine {
			u.held = append(u.held, in...)
		} else {
			u.heldBy.marks |= Truncated
		}
		if partial {
			return nil, w, false
		}
		out, w = u.held, u.heldBy
		u.holding, u.held = false, nil
		return out, w, true
	}
	if partial {
		if u.holding { // two streams at once: the line goes on its own
			w.marks |= Cut
			return in, w, true
		}
		u.held, u.heldBy, u.holding = append(u.held[:0], in...), w, true
		return nil, w, false
	}
	return in, w, true
}

func (u *unwrapper) flush() (out []byte, w wrapping, ok bool) {
	if !u.holding {
		return nil, wrapping{}, false
	}
	out, w = u.held, u.heldBy
	u.holding, u.held = false, nil
	return out, w, true
}

// unwrapLine reads {"log":"...\n","stream":"stdout","time":"..."} and "TIME stdout F line".
func unwrapLine(b []byte) (in []byte, w wrapping, partial, ok bool) {
	if len(b) == 0 {
		return b, w, false, false
	}
	if b[0] == '{' {
		if len(b) > 8 && bytes.HasPrefix(b, []byte(`{"log":`)) || bytes.Contains(b[max(0, len(b)-120):], []byte(`"stream":"std`)) {
			return unwrapDocker(b)
		}
		return b, w, false, false
	}
	if b[0] < '0' || b[0] > '9' || len(b) < 28 {
		return b, w, false, false
	}
	sp := bytes.IndexByte(b[:min(len(b), 48)], ' ')
	if sp < 20 {
		return b, w, false, false
	}
	rest := b[sp+1:]
	switch {
	case bytes.HasPrefix(rest, []byte("stdout ")):
		w.stream = "stdout"
	case bytes.HasPrefix(rest, []byte("stderr ")):
		w.stream = "stderr"
	default:
		return b, w, false, false
	}
	ns, n, zoned := readTime(string(b[:sp]))
	if n != sp || !zoned {
		return b, wrapping{}, false, false
	}
	rest = rest[7:]
	tag, line, found := bytes.Cut(rest, []byte(" "))
	if !found {
		tag, line = rest, nil
	}
	kind, _, _ := bytes.Cut(tag, []byte(":"))
	if len(kind) != 1 || kind[0] != 'F' && kind[0] != 'P' {
		return b, wrapping{}, false, false
	}
	w.time = ns
	return line, w, kind[0] == 'P', true
}

func unwrapDocker(b []byte) (in []byte, w wrapping, partial, ok bool) {
	v, n, err := readJSON(string(b))
	if err != nil || v.kind != dict || strings.TrimSpace(string(b[n:])) != "" {
		return b, wrapping{}, false, false
	}
	msg, at := v.get("log"), v.get("time")
	if msg == nil || at == nil || msg.kind != text || at.kind != text {
		return b, wrapping{}, false, false
	}
	ns, k, zoned := readTime(at.text)
	if k == 0 || !zoned {
		return b, wrapping{}, false, false
	}
	w.time, w.stream = ns, v.get("stream").str()
	line, whole := strings.CutSuffix(msg.text, "\n")
	return []byte(line), w, !whole, true
}
