package enginelog

import "strings"

// blockKind is what the lines of a block are.
type blockKind uint8

const (
	noBlock    blockKind = iota
	blockHead            // a log record that a traceback may follow
	blockTrace           // within a traceback
	blockError           // behind the line that names the exception: its message may go on
	blockCrash           // what a process writes when it dies
)

// maxBlock is how many lines a block has at most.
const maxBlock = 5000

// continues reads a line that belongs to the block before it.
func (l *lineState) continues(st *stream, s string) bool {
	if st.kind == noBlock {
		return false
	}
	if l.hasTime || st.lines >= maxBlock {
		st.end()
		return false
	}
	again := strings.HasPrefix(s, "Traceback (most recent") || strings.HasPrefix(s, "During handling of the above exception") ||
		strings.HasPrefix(s, "The above exception was the direct cause")
	indented := s == "" || s[0] == ' ' || s[0] == '\t' || strings.HasPrefix(s, "| ") || strings.HasPrefix(s, "+-")
	switch st.kind {
	case blockHead:
		if !again && !indented {
			st.end()
			return false
		}
		if again {
			st.kind = blockTrace
		}
	case blockTrace:
		if !again && !indented {
			l.inBlock(st)
			st.kind = blockError
			return true
		}
	case blockError:
		switch {
		case again:
			st.kind = blockTrace
		case !indented && l.begins(s):
			st.end()
			return false
		}
	case blockCrash:
		if !indented && !again && !crashLine(s) {
			st.end()
			return false
		}
		l.format, l.level = "process.crash", "critical"
		l.belongs(st)
		return true
	}
	l.format, l.level = "python.traceback", "error"
	l.belongs(st)
	return true
}

// inBlock reads the line of a traceback that names the exception. It is an event of its own only when the
// block has not been one of that class: one exception counts once.
func (l *lineState) inBlock(st *stream) {
	l.format, l.level = "python.traceback", "error"
	class := Error
	if isOOM(l.msg) {
		class = OOM
	}
	if name, _, _ := strings.Cut(l.msg, ":"); isLogger(name) {
		l.add("exception", name)
	}
	if class != st.class && (class == OOM || st.class == None) {
		l.class, st.class = class, class
	}
	l.belongs(st)
}

func (l *lineState) belongs(st *stream) {
	st.lines++
	l.add("block", st.block)
	l.add("block_line", itoa(st.lines))
}

func (st *stream) end() { st.kind, st.block, st.lines, st.class = noBlock, "", 0, None }

// begins tells whether an unstamped line behind an exception is something else: a line that a grammar
// knows, or a line with a level.
func (l *lineState) begins(s string) bool {
	if l.level != "" || l.format != "" || s[0] == '{' || s[0] == '[' {
		return true
	}
	for i := range byBegin {
		if strings.HasPrefix(s, byBegin[i].text) {
			return true
		}
	}
	return false
}

// crashLine tells whether a line is one of those that a dying process writes.
func crashLine(s string) bool {
	for _, w := range [...]string{"Fatal Python error:", "Python runtime state:", "Thread 0x", "Current thread 0x", "Extension modules:", "what():", "frame #",
		"*** ", "Aborted", "Segmentation fault", "Stack trace", "Exception raised from"} {
		if strings.HasPrefix(s, w) {
			return true
		}
	}
	return false
}

func isOOM(s string) bool {
	return strings.Contains(s, "OutOfMemoryError") || strings.Contains(s, "out of memory")
}

// finish settles what depends on the whole line.
func (l *lineState) finish(st *stream, c cleaned) {
	if l.block != noBlock {
		st.kind, st.lines, st.class = l.block, 0, l.class
		st.block = blockID(l.who, c.raw, l.time)
		l.add("block", st.block)
		if l.block == blockHead && strings.HasSuffix(l.msg, "Traceback (most recent call last):") {
			st.kind = blockTrace
		}
	}
	// Of two lines in one the first was read; an event in the second is not to be missed.
	if l.class == None && l.marks&Interleaved != 0 {
		for i := range byBegin {
			b := &byBegin[i]
			if k := strings.Index(l.msg, "] "+b.text); k > 0 {
				probe := lineState{}
				b.read(&probe, l.msg[k+2+len(b.text):])
				if probe.class != None {
					l.class = probe.class
					l.add("second_format", probe.format)
					break
				}
			}
		}
	}
}

// blockID names a block by its first line: the same after a restart.
func blockID(who, raw string, time int64) string {
	h := uint64(14695981039346656037)
	add := func(s string) {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	add(who)
	add(raw)
	for i := 0; i < 8; i++ {
		h = (h ^ uint64(byte(time>>(8*i)))) * 1099511628211
	}
	const hex = hexDigits
	var b [16]byte
	for i := range b {
		b[15-i] = hex[h&15]
		h >>= 4
	}
	return string(b[:])
}
