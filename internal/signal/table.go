package signal

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

// The tables are the one source of truth about metrics. Their form, line by line:
//
//	%backend sglang          the program, for the lines that follow
//	%prefix sglang:          put before every name that follows
//	%labels S a b c          a set of labels with a name
//	## Scheduler gauges      the group, for the lines that follow
//	# comment
//	name | type | unit | labels | since | till | meaning | trap | use
//
// Type is C, G, H, S or I; "G>H text" is a histogram that was a gauge, "text" says until when. Labels
// are names and label sets. Use is a metric or a signal id; "=name" says it is the same measurement.
// Flags stand before the name: "!" a name that no program ever emitted, "~" emitted and never set.
// Trailing empty columns may be left out.

//go:embed tables/*.txt
var tables embed.FS

// tableOrder is the order of the programs in lists and in the documentation.
var tableOrder = []string{"sglang", "loads", "vllm", "dynamo", "router", "dcgm"}

// loadTables parses every embedded table; the error names file and line of each bad line.
func loadTables() ([]Metric, error) {
	var all []Metric
	var errs []string
	for _, name := range tableOrder {
		text, err := tables.ReadFile("tables/" + name + ".txt")
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		ms, err := parseTable(name+".txt", string(text))
		if err != nil {
			errs = append(errs, err.Error())
		}
		all = append(all, ms...)
	}
	if len(errs) > 0 {
		return all, fmt.Errorf("metric tables: %s", strings.Join(errs, "; "))
	}
	return all, nil
}

// parseTable reads one table; bad lines are left out and named in the error.
func parseTable(file, text string) ([]Metric, error) {
	p := tableParser{sets: map[string][]string{}}
	var out []Metric
	var errs []string
	for i, line := range strings.Split(text, "\n") {
		m, ok, err := p.line(strings.TrimSpace(line))
		if err != nil {
			errs = append(errs, fmt.Sprintf("%s:%d: %v", file, i+1, err))
		}
		if ok {
			out = append(out, m)
		}
	}
	if len(errs) > 0 {
		return out, fmt.Errorf("%s", strings.Join(errs, "; "))
	}
	return out, nil
}

type tableParser struct {
	backend engine.Backend
	prefix  string
	group   string
	sets    map[string][]string
}

var tableTypes = map[string]Type{"C": Counter, "G": Gauge, "H": Histogram, "S": Summary, "I": Info}

// line reads one line; ok tells that it is a metric.
func (p *tableParser) line(line string) (m Metric, ok bool, err error) {
	switch {
	case line == "":
		return m, false, nil
	case strings.HasPrefix(line, "## "):
		p.group = strings.TrimPrefix(line, "## ")
		return m, false, nil
	case strings.HasPrefix(line, "#"):
		return m, false, nil
	case strings.HasPrefix(line, "%"):
		return m, false, p.directive(strings.Fields(line[1:]))
	}
	cols := strings.Split(line, "|")
	if len(cols) < 2 || len(cols) > 9 {
		return m, false, fmt.Errorf("%d columns, want 2 to 9", len(cols))
	}
	for i := range cols {
		cols[i] = strings.TrimSpace(cols[i])
	}
	cols = append(cols, make([]string, 9-len(cols))...)

	name := cols[0]
	if rest, cut := strings.CutPrefix(name, "!"); cut {
		m.Invented, name = true, rest
	}
	if rest, cut := strings.CutPrefix(name, "~"); cut {
		m.Dead, name = true, rest
	}
	m.Name, m.Backend, m.Group = p.prefix+name, p.backend, p.group
	if m.Type, m.WasType, err = parseType(cols[1]); err != nil {
		return m, false, err
	}
	m.Unit = cols[2]
	for _, l := range strings.Fields(cols[3]) {
		if set, known := p.sets[l]; known {
			m.Labels = append(m.Labels, set...)
		} else {
			m.Labels = append(m.Labels, l)
		}
	}
	m.Labels = slices.Compact(m.Labels)
	m.Since, m.Till, m.Meaning, m.Trap = cols[4], cols[5], cols[6], cols[7]
	use := cols[8]
	if rest, cut := strings.CutPrefix(use, "="); cut {
		m.Same, use = true, rest
	}
	m.Use = use
	if name == "" || m.Meaning == "" {
		return m, false, fmt.Errorf("a metric needs a name and a meaning")
	}
	return m, true, nil
}

func (p *tableParser) directive(f []string) error {
	switch {
	case len(f) == 2 && f[0] == "backend":
		p.backend = engine.Backend(f[1])
	case len(f) == 2 && f[0] == "prefix":
		p.prefix = f[1]
	case len(f) == 1 && f[0] == "prefix":
		p.prefix = ""
	case len(f) >= 2 && f[0] == "labels":
		p.sets[f[1]] = f[2:]
	default:
		return fmt.Errorf("unknown directive %q", strings.Join(f, " "))
	}
	return nil
}

// parseType reads "C" or "G>H before 0.5.10".
func parseType(s string) (Type, string, error) {
	first, note, _ := strings.Cut(s, " ")
	old, now, changed := strings.Cut(first, ">")
	if !changed {
		old, now = "", first
	}
	t, ok := tableTypes[now]
	if !ok {
		return "", "", fmt.Errorf("unknown type %q: use C, G, H, S or I", now)
	}
	if old == "" {
		return t, "", nil
	}
	was, ok := tableTypes[old]
	if !ok {
		return "", "", fmt.Errorf("unknown former type %q: use C, G, H, S or I", old)
	}
	return t, strings.TrimSpace(string(was) + " " + note), nil
}
