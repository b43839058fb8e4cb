package tailsample

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// PolicyError is what is wrong with a policy and where.
type PolicyError struct {
	Path string // "" when not from a file
	Line int    // 1-based, 0 when not known
	Msg  string // what is wrong and what to do
}

// Error gives "path:line: message".
func (e *PolicyError) Error() string {
	where := e.Path
	if where == "" {
		where = "sampling"
	}
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
	}
	return where + ": " + e.Msg
}

// reader takes a YAML tree apart and collects what is wrong with it.
type reader struct {
	path  string
	errs  []error
	notes []string
	left  int // nodes that may still be looked at: an alias in a loop ends there
}

// maxNodes bounds a policy.
const maxNodes = 100_000

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	e := &PolicyError{Path: r.path, Msg: fmt.Sprintf(format, args...)}
	if n != nil {
		e.Line = n.Line
	}
	if len(r.errs) < 20 {
		r.errs = append(r.errs, e)
	}
}

func (r *reader) note(n *yaml.Node, format string, args ...any) {
	e := &PolicyError{Path: r.path, Line: n.Line, Msg: fmt.Sprintf(format, args...)}
	r.notes = append(r.notes, e.Error())
}

func (r *reader) err() error { return errors.Join(r.errs...) }

// parseTree reads the text; nil for an empty one.
func (r *reader) parseTree(text []byte) *yaml.Node {
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		r.errs = append(r.errs, &PolicyError{Path: r.path, Line: yamlLine(err), Msg: "this is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")})
		return nil
	}
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		return n.Content[0]
	}
	return nil
}

// yamlLine takes the line out of the library's message, which is "yaml: line N: ...".
func yamlLine(err error) int {
	_, rest, ok := strings.Cut(err.Error(), "line ")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ":")
	n, _ := strconv.Atoi(digits)
	return n
}

// real follows aliases.
func (r *reader) real(n *yaml.Node) *yaml.Node {
	for i := 0; n != nil && n.Kind == yaml.AliasNode && i < 100; i++ {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// mapping calls fn for each key. Keys that are not known, or stand twice, are errors.
func (r *reader) mapping(n *yaml.Node, what string, known []string, fn func(key string, v *yaml.Node)) {
	n = r.real(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "%s must be a mapping with the keys %s", what, strings.Join(known, ", "))
		return
	}
	had := map[string]bool{}
	var each func(n *yaml.Node, merged bool)
	each = func(n *yaml.Node, merged bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if r.left--; r.left < 0 {
				if r.left == -1 {
					r.fail(n, "this policy is larger than %d keys", maxNodes)
				}
				return
			}
			k, v := n.Content[i], r.real(n.Content[i+1])
			switch {
			case k.Tag == "!!merge":
				if v != nil && v.Kind == yaml.MappingNode {
					each(v, true)
				}
			case had[k.Value]:
				if !merged {
					r.fail(k, "the key %q stands twice in %s", k.Value, what)
				}
			case !slices.Contains(known, k.Value):
				r.fail(k, "unknown key %q in %s; known are %s", k.Value, what, strings.Join(known, ", "))
			default:
				had[k.Value] = true
				fn(k.Value, v)
			}
		}
	}
	each(n, false)
}

// list calls fn for each element.
func (r *reader) list(n *yaml.Node, what string, fn func(i int, v *yaml.Node)) {
	n = r.real(n)
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.fail(n, "%s must be a list: start each entry with \"- \"", what)
		return
	}
	for i, v := range n.Content {
		if r.left--; r.left < 0 {
			if r.left == -1 {
				r.fail(n, "this policy is larger than %d keys", maxNodes)
			}
			return
		}
		fn(i, r.real(v))
	}
}

func (r *reader) scalar(n *yaml.Node, what, want string) (string, bool) {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.fail(n, "%s must be %s", what, want)
		return "", false
	}
	return n.Value, true
}

func (r *reader) text(n *yaml.Node, what string) string {
	s, _ := r.scalar(n, what, "a text")
	return s
}

func (r *reader) texts(n *yaml.Node, what string) (out []string) {
	r.list(n, what, func(i int, v *yaml.Node) { out = append(out, r.text(v, fmt.Sprintf("%s[%d]", what, i))) })
	return out
}

func (r *reader) bool(n *yaml.Node, what string) bool {
	s, ok := r.scalar(n, what, "true or false")
	if !ok {
		return false
	}
	switch strings.ToLower(s) {
	case "true":
		return true
	case "false":
		return false
	}
	r.fail(n, "%s must be true or false, not %q", what, s)
	return false
}

func (r *reader) int(n *yaml.Node, what string, low, high int64) int64 {
	s, ok := r.scalar(n, what, "a whole number")
	if !ok {
		return 0
	}
	v, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil || v < low || v > high {
		if high == math.MaxInt64 {
			r.fail(n, "%s must be a whole number from %d, not %q", what, low, s)
		} else {
			r.fail(n, "%s must be a whole number from %d to %d, not %q", what, low, high, s)
		}
		return 0
	}
	return v
}

func (r *reader) float(n *yaml.Node, what string) float64 {
	s, ok := r.scalar(n, what, "a number")
	if !ok {
		return 0
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		r.fail(n, "%s must be a number, not %q", what, s)
		return 0
	}
	return v
}

func (r *reader) duration(n *yaml.Node, what string) time.Duration {
	s, ok := r.scalar(n, what, "a duration such as 500ms, 2s or 10m")
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		r.fail(n, "%s must be a duration such as 500ms, 2s or 10m, not %q", what, s)
		return 0
	}
	return d
}

// share reads "1%", "1 %" or 0.01.
func (r *reader) share(n *yaml.Node, what string) float64 {
	s, ok := r.scalar(n, what, "a share such as 1% or 0.01")
	if !ok {
		return 0
	}
	digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		r.fail(n, "%s must be a share from 0%% to 100%% (1%%, or 0.01), not %q", what, s)
		return 0
	}
	return v
}

// bytes reads 256MB, 1GiB or a number of bytes; MB is 2^20 as elsewhere in the configuration.
func (r *reader) bytes(n *yaml.Node, what string) int64 {
	s, ok := r.scalar(n, what, "a size such as 256MB")
	if !ok {
		return 0
	}
	digits, unit := strings.TrimSpace(s), int64(1)
	for _, u := range []struct {
		name string
		n    int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {"B", 1}} {
		if d, ok := strings.CutSuffix(digits, u.name); ok {
			digits, unit = strings.TrimSpace(d), u.n
			break
		}
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v <= 0 || v > math.MaxInt64/unit {
		r.fail(n, "%s must be a size such as 256MB, not %q", what, s)
		return 0
	}
	return v * unit
}
