package timeline

import "github.com/rollscope/rollscope/torchfile"

// String is the class's name, as in Dicts.Class.
func (c Class) String() string {
	if names := classNames(); int(c) < len(names) {
		return names[c]
	}
	return "other"
}

var itemFlagNames = [...]string{"virtual", "derived", "leaked_parent", "duplicate_id", "negative", "skewed", "error", "aborted"}

// Names are the words for the flags that are set, in the order of their bits.
func (f Flags) Names() []string {
	var out []string
	for i, name := range itemFlagNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// AppendJSON appends a value as JSON that shows it to a person, at most about limit bytes: types of
// Python that JSON lacks are their str, NaN and infinities the strings "NaN", "Infinity" and
// "-Infinity", integers beyond 2^53 strings.
func AppendJSON(dst []byte, v torchfile.Value, limit int) []byte { return appendPlain(dst, v, limit) }
