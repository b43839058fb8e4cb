package systemport

import (
	"bytes"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// Prefixes of the names that are passed on, in the order in which they are written: Dynamo's runtime
// first and the engines behind it, as a Dynamo worker has them.
var prefixes = [...]string{"dynamo_", "sglang:", "vllm:"}

// WorkerLabel tells engines of one answer apart. It is the label that SGLang's router gives, so whoever
// scrapes this finds each engine under its own address; a line that has it keeps its own.
const WorkerLabel = "worker_addr"

// Reasons for which lines are left out of an answer.
const (
	DropBadLine       = "bad_line"       // it cannot be read
	DropDuplicate     = "duplicate"      // the same series stood in an answer before
	SkipThroughRouter = "through_router" // a router repeats what the engine itself has said
	SkipElsewhere     = "not_local"      // a router speaks for an engine of another machine
)

// Input is the answer of one program of this machine.
type Input struct {
	Instance    string // host:port
	WorkerAddr  string // the value of [WorkerLabel] for lines that have none
	Body        []byte
	OpenMetrics bool // the body is OpenMetrics, else the text format
}

// Merged is one exposition made of several.
type Merged struct {
	Text []byte // text format 0.0.4
	Read int    // samples in it
	// Parsed counts the readable samples of each input, also those that are not passed on.
	Parsed []int
	// Left counts lines that are not in it, by instance and reason.
	Left map[string]map[string]int
}

// family is what is known of a name until all answers were read.
type family struct {
	name, typ, help string
	untyped         bool // somebody gave it no type
	conflict        bool // its samples cannot stand under one type
	samples         []sample
}

type merger struct {
	families map[string]*family
	series   map[string]bool
	place    Place
	answered map[string]bool // by the key of the place
	out      *Merged
}

// Place tells whether host:port is of this machine, and gives a key that is the same for all addresses
// of one port of it.
type Place func(instance string) (key string, local bool)

// Merge joins answers: every family stands once with its HELP and TYPE and all its samples, whichever
// spelling and format they came in. place decides about lines in which a router speaks for an engine:
// they stand only when the engine is of this machine and has not answered itself. The result is the
// same for the same inputs.
func Merge(inputs []Input, place Place) Merged {
	m := merger{families: map[string]*family{}, series: map[string]bool{}, place: place, answered: map[string]bool{},
		out: &Merged{Left: map[string]map[string]int{}}}
	for _, in := range inputs {
		key, _ := place(in.Instance)
		m.answered[key] = true
	}
	for _, in := range inputs {
		m.read(in)
	}
	m.write()
	return *m.out
}

func (m *merger) left(instance, reason string) {
	if m.out.Left[instance] == nil {
		m.out.Left[instance] = map[string]int{}
	}
	m.out.Left[instance][reason]++
}

func wanted(name string) bool {
	return slices.ContainsFunc(prefixes[:], func(p string) bool { return strings.HasPrefix(name, p) && len(name) > len(p) })
}

// read takes one answer in.
func (m *merger) read(in Input) {
	in.WorkerAddr = escape(in.WorkerAddr)
	own, _ := m.place(in.Instance)
	parsed := 0
	defer func() { m.out.Parsed = append(m.out.Parsed, parsed) }()
	types, helps := map[string]string{}, map[string]string{}
	var samples []sample
	for len(in.Body) > 0 {
		var line []byte
		line, in.Body, _ = bytes.Cut(in.Body, []byte{'\n'})
		line = bytes.TrimRight(trimLeft(line), " \t\r")
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			if in.OpenMetrics && string(line) == "# EOF" {
				break
			}
			comment(line, in.OpenMetrics, types, helps)
			continue
		}
		s, err := parseSample(line, in.OpenMetrics)
		if err != nil {
			if ofOurs(line) {
				m.left(in.Instance, DropBadLine)
			}
			continue
		}
		parsed++
		if wanted(s.name) {
			samples = append(samples, s)
		}
	}
	for _, s := range samples {
		m.add(in, own, s, types, helps)
	}
}

// ofOurs tells whether a line that cannot be read would have been passed on.
func ofOurs(line []byte) bool {
	line = bytes.TrimLeft(line, `{" `)
	return wanted(signal.Canonical(string(line[:nameLength(line)])))
}

// comment takes HELP and TYPE; of a name given twice the first counts.
func comment(line []byte, openMetrics bool, types, helps map[string]string) {
	rest := trimLeft(line[1:])
	word, rest, _ := bytes.Cut(rest, []byte{' '})
	rest = trimLeft(rest)
	name, text, _ := bytes.Cut(rest, []byte{' '})
	n := signal.Canonical(strings.Trim(string(name), `"`))
	if !wanted(n) || nameLength([]byte(n)) != len(n) {
		return
	}
	text = bytes.TrimSpace(text)
	switch string(word) {
	case "HELP":
		if _, ok := helps[n]; !ok {
			helps[n] = helpText(string(text), openMetrics)
		}
	case "TYPE":
		if _, ok := types[n]; !ok {
			types[n] = string(text)
		}
	}
}

// helpText writes a help anew: what it escapes is not the same in both formats.
func helpText(s string, openMetrics bool) string {
	pairs := []string{`\\`, `\`, `\n`, "\n"}
	if openMetrics {
		pairs = append(pairs, `\"`, `"`)
	}
	s = strings.ToValidUTF8(strings.NewReplacer(pairs...).Replace(s), "\uFFFD")
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", " ").Replace(s)
}

// parts are the suffixes under which families of a type have their samples, beside their own name.
func parts(typ string) []string {
	switch typ {
	case "histogram":
		return []string{"_bucket", "_sum", "_count"}
	case "summary":
		return []string{"_sum", "_count"}
	}
	return nil
}

// placeOf finds the family of a sample: its name in the text format, its type there ("" not said), and
// the name under which the answer declares it.
func placeOf(name string, types map[string]string) (fam, typ, declared string) {
	if t, ok := types[name]; ok {
		switch t {
		case "counter", "gauge", "summary":
			return name, t, name
		case "histogram":
			return name, "untyped", name // a line of the bare name is none of a histogram's
		case "stateset":
			return name, "gauge", name
		}
		return name, "untyped", name
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && slices.Contains(parts(types[base]), suffix) {
			return base, types[base], base
		}
	}
	for suffix, want := range map[string]string{"_total": "counter", "_info": "info", "_created": ""} { // OpenMetrics
		base, ok := strings.CutSuffix(name, suffix)
		t, known := types[base]
		if !ok || !known || want != "" && t != want {
			continue
		}
		switch suffix {
		case "_total":
			return name, "counter", base
		default:
			return name, "gauge", base
		}
	}
	return name, "", name
}

// add puts a sample into its family.
func (m *merger) add(in Input, own string, s sample, types, helps map[string]string) {
	name, typ, declared := placeOf(s.name, types)
	if boundMissing(&s, name, typ) {
		m.left(in.Instance, DropBadLine)
		return
	}
	if addr, ok := s.get(WorkerLabel); ok && addr != "" {
		of, _ := engine.InstanceOf(addr)
		switch key, local := m.place(of); {
		case key == own:
		case !local:
			m.left(in.Instance, SkipElsewhere)
			return
		case m.answered[key]:
			m.left(in.Instance, SkipThroughRouter)
			return
		}
	} else {
		s.labels = slices.DeleteFunc(s.labels, func(l label) bool { return l.name == WorkerLabel })
		s.labels = append(s.labels, label{WorkerLabel, in.WorkerAddr})
	}
	key := s.key()
	if m.series[key] {
		m.left(in.Instance, DropDuplicate)
		return
	}
	m.series[key] = true
	f := m.families[name]
	if f == nil {
		f = &family{name: name}
		m.families[name] = f
	}
	if f.help == "" {
		f.help = helps[declared]
	}
	switch {
	case typ == "" || typ == "untyped":
		f.untyped = true
	case f.typ == "":
		f.typ = typ
	case f.typ != typ:
		f.conflict = true
	}
	f.samples = append(f.samples, s)
}

// boundMissing tells a bucket without a bound, or a quantile that is none: they make a whole answer unreadable.
func boundMissing(s *sample, fam, typ string) bool {
	switch {
	case typ == "histogram" && s.name == fam+"_bucket":
		le, ok := s.get("le")
		return !ok || !number(le)
	case typ == "histogram":
		_, ok := s.get("le")
		return ok
	case typ == "summary" && s.name == fam:
		q, ok := s.get("quantile")
		return !ok || !number(q)
	case typ == "summary":
		_, ok := s.get("quantile")
		return ok
	}
	return false
}

// write settles the types and writes everything. Where answers contradict each other about a name, or
// two families would share one, the samples stand as untyped under their own names: nothing is lost.
func (m *merger) write() {
	claims := map[string][]*family{}
	for _, f := range m.families {
		if f.untyped && len(parts(f.typ)) > 0 {
			f.conflict = true
		}
		claim := func(name string) {
			if by := claims[name]; !slices.Contains(by, f) {
				claims[name] = append(by, f)
			}
		}
		claim(f.name)
		for _, suffix := range parts(f.typ) {
			claim(f.name + suffix)
		}
		for i := 0; f.conflict && i < len(f.samples); i++ {
			claim(f.samples[i].name)
		}
	}
	for _, by := range claims {
		if len(by) > 1 {
			for _, f := range by {
				f.conflict = true
			}
		}
	}
	var list []*family
	split := map[string]*family{}
	for _, f := range m.ordered() {
		if !f.conflict {
			list = append(list, f)
			continue
		}
		for _, s := range f.samples {
			g := split[s.name]
			if g == nil {
				g = &family{name: s.name, help: f.help}
				split[s.name] = g
				list = append(list, g)
			}
			g.samples = append(g.samples, s)
		}
	}
	slices.SortFunc(list, func(a, b *family) int {
		if x, y := group(a.name), group(b.name); x != y {
			return x - y
		}
		return strings.Compare(a.name, b.name)
	})
	var b bytes.Buffer
	for _, f := range list {
		if f.help != "" {
			b.WriteString("# HELP " + f.name + " " + f.help + "\n")
		}
		typ := f.typ
		if typ == "" || f.conflict {
			typ = "untyped"
		}
		b.WriteString("# TYPE " + f.name + " " + typ + "\n")
		for i := range f.samples {
			f.samples[i].write(&b)
		}
		m.out.Read += len(f.samples)
	}
	m.out.Text = b.Bytes()
}

func (m *merger) ordered() []*family {
	list := make([]*family, 0, len(m.families))
	for _, f := range m.families {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *family) int { return strings.Compare(a.name, b.name) })
	return list
}

func group(name string) int {
	return slices.IndexFunc(prefixes[:], func(p string) bool { return strings.HasPrefix(name, p) })
}
