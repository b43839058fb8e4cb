package systemport

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// Prefixes of the names that are passed on, in the order in which they are written: Dynamo's runtime
// first and the engines behind it, as a Dynamo worker has them.
var prefixes = [...]string{runtimePrefix, "sglang:", "vllm:"}

const runtimePrefix = "dynamo_"

// WorkerLabel tells engines of one answer apart. It is the label that SGLang's router gives, so whoever
// scrapes this finds each engine under its own address; a line that has it keeps its own.
const WorkerLabel = "worker_addr"

// Reasons for which lines are left out of an answer.
const (
	DropBadLine       = "bad_line"       // it cannot be read
	DropDuplicate     = "duplicate"      // the same series stood in an answer before
	SkipThroughRouter = "through_router" // a router repeats what the engine itself has said
	SkipElsewhere     = "not_local"      // a router speaks for an engine of another machine
	SkipSameEngine    = "same_engine"    // a Dynamo worker, or a second address, repeats what the engine itself has said
)

// Input is the answer of one program of this machine.
type Input struct {
	Instance string // host:port
	// Engine is the identity that the configuration gives the instance: programs with the same one are
	// one engine. "" is the instance itself.
	Engine      string
	WorkerAddr  string // the value of [WorkerLabel] for lines that have none
	Body        []byte // not changed; pieces of it are held until the merge is done
	OpenMetrics bool   // the body is OpenMetrics, else the text format
}

// Merged is one exposition made of several.
type Merged struct {
	Text []byte // text format 0.0.4
	Read int    // samples in it
	// Parsed counts the readable samples of each input, also those that are not passed on.
	Parsed []int
	// Left counts lines that are not in it, by instance and reason.
	Left map[string]map[string]int
	// Same are programs that repeated an engine, in the order of the inputs.
	Same []Same
	// Alike are the inputs, by index, of Dynamo workers that pass on what may be an engine that is here
	// itself, with nothing that proves or refutes it. All of it is in the text, perhaps twice.
	Alike []int
}

// Place tells whether host:port is of this machine, and gives a key that is the same for all addresses
// of one port of it.
type Place func(instance string) (key string, local bool)

// word is a name as some answer spells it.
type word struct {
	name   string // the engine's own spelling
	wanted bool
	engine bool // wanted, and no runtime's
	sum    bool
	bucket bool
	hash   uint64

	of int     // the answer in which it was met last
	at *inName // what it is there
}

// inName is a name in one answer.
type inName struct {
	*word
	fam, typ, declared string
	family             *family // nil until a sample of it is passed on
}

// said is what an answer declares of a name; the first declaration counts.
type said struct {
	typ     string
	hasType bool
	help    []byte // as it is written
	hasHelp bool
}

// What is remembered of the labels of a sample, as bits.
const (
	hasBound = 1 << iota
	goodBound
	hasQuantile
	goodQuantile
)

// sample is one line that is passed on, unless it was said before.
type sample struct {
	*inName
	labels []byte // as [line] has them
	rest   []byte
	hash   uint64 // of name and labels, in any order of these
	auto   uint64 // the part of it that Dynamo's own labels have
	by     int    // the answer whose address it gets, -1 when it has one
	flags  uint8
}

// answer is an input that was read.
type answer struct {
	*Input
	index    int
	own      string // key of its place
	suffix   []byte // WorkerLabel with its address, as text
	hash     uint64 // of it
	said     map[string]said
	names    []*inName
	samples  []sample
	runtime  bool     // it has metrics of Dynamo's runtime, not only of its frontend
	constant []pair   // labels that stand on all lines of an engine, with one value; nil without such lines
	engine   bool     // there are such lines
	same     *answer  // the engine that it repeats
	auto     bool     // then: Dynamo's own labels are not the engine's,
	added    [][]byte // nor are these, as text
	injected uint64   // and the sum of their hashes
	lookup   map[uint64]*sample
	labels   map[string]bool
}

// family is what is known of a name until all answers were read.
type family struct {
	name, typ string
	help      string
	untyped   bool // somebody gave it no type
	conflict  bool // its samples cannot stand under one type
	samples   []*sample
	bytes     int
}

type merger struct {
	seed     maphash.Seed
	words    map[string]*word
	families map[string]*family
	series   map[uint64]*sample
	place    Place
	places   map[string]located // by the text of WorkerLabel
	answered map[string]bool    // by the key of the place
	answers  []*answer
	scratch  [2][][]byte
	out      *Merged
}

type located struct {
	key   string
	local bool
}

// Merge joins answers: every family stands once with its HELP and TYPE and all its samples, whichever
// spelling and format they came in. place decides about lines in which a router speaks for an engine:
// they stand only when the engine is of this machine and has not answered itself. known are programs that
// were found to repeat an engine before, as [Merged.Same] has it, by instance; nil = none. The result is
// the same for the same inputs.
func Merge(inputs []Input, place Place, known map[string]string) Merged {
	m := merger{seed: maphash.MakeSeed(), words: map[string]*word{}, families: map[string]*family{}, series: map[uint64]*sample{},
		place: place, places: map[string]located{}, answered: map[string]bool{}, out: &Merged{Left: map[string]map[string]int{}}}
	lines := 0
	for i := range inputs {
		a := m.read(&inputs[i], i)
		m.answered[a.own] = true
		m.answers = append(m.answers, a)
		lines += len(a.samples)
	}
	m.series = make(map[uint64]*sample, lines)
	for _, a := range m.order(known) {
		m.take(a)
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

// wordOf knows a name again.
func (m *merger) wordOf(name []byte) *word {
	if w, ok := m.words[string(name)]; ok {
		return w
	}
	w := &word{name: signal.Canonical(string(name)), of: -1}
	w.wanted = wanted(w.name)
	w.engine = w.wanted && !strings.HasPrefix(w.name, runtimePrefix)
	w.sum = strings.HasSuffix(w.name, "_sum")
	w.bucket = strings.HasSuffix(w.name, "_bucket")
	w.hash = maphash.String(m.seed, w.name)
	m.words[string(name)] = w
	return w
}

// inAnswer is what a word is in an answer.
func (a *answer) inAnswer(w *word) *inName {
	if w.of != a.index {
		w.of, w.at = a.index, &inName{word: w}
		a.names = append(a.names, w.at)
	}
	return w.at
}

// read takes an answer apart.
func (m *merger) read(in *Input, index int) *answer {
	a := &answer{Input: in, index: index, said: map[string]said{}}
	a.own, _ = m.place(in.Instance)
	a.suffix = []byte(WorkerLabel + `="` + escape(in.WorkerAddr) + `"`)
	a.hash = maphash.Bytes(m.seed, a.suffix)
	a.samples = make([]sample, 0, min(bytes.Count(in.Body, []byte{'\n'}), len(in.Body)/32)+1)
	var l line
	parsed := 0
	for body := in.Body; len(body) > 0; {
		var text []byte
		text, body, _ = bytes.Cut(body, []byte{'\n'})
		text = trimRight(trimLeft(text))
		if len(text) == 0 {
			continue
		}
		if text[0] == '#' {
			if in.OpenMetrics && string(text) == "# EOF" {
				break
			}
			m.comment(a, text)
			continue
		}
		if err := l.read(text, in.OpenMetrics); err != nil {
			if ofOurs(text) {
				m.left(in.Instance, DropBadLine)
			}
			continue
		}
		parsed++
		if w := m.wordOf(l.name); w.wanted {
			m.keep(a, w, &l)
		}
	}
	m.out.Parsed = append(m.out.Parsed, parsed)
	for _, n := range a.names {
		n.fam, n.typ, n.declared = placeOf(n.name, a.said)
		a.runtime = a.runtime || !n.engine && !strings.HasPrefix(n.name, "dynamo_frontend_")
	}
	return a
}

func trimRight(b []byte) []byte {
	for n := len(b); n > 0 && (b[n-1] == ' ' || b[n-1] == '\t' || b[n-1] == '\r'); n = len(b) {
		b = b[:n-1]
	}
	return b
}

// keep remembers a line.
func (m *merger) keep(a *answer, w *word, l *line) {
	by := a.index
	if addr := l.get(WorkerLabel); len(addr) > 0 {
		by = -1
	} else if addr != nil {
		l.drop(WorkerLabel)
	}
	s := sample{inName: a.inAnswer(w), labels: l.labels, rest: l.rest, hash: w.hash, by: by}
	for _, p := range l.pairs {
		switch string(p.name) {
		case "le":
			s.flags |= hasBound
			if number(p.value) {
				s.flags |= goodBound
			}
		case "quantile":
			s.flags |= hasQuantile
			if number(p.value) {
				s.flags |= goodQuantile
			}
		}
		if len(p.value) > 0 { // an empty one is the same as none
			h := maphash.Bytes(m.seed, p.text)
			s.hash += h
			if isAuto(p.name) {
				s.auto += h
			}
		}
	}
	a.samples = append(a.samples, s)
	if w.engine && by >= 0 {
		a.narrow(l.pairs)
	}
}

// narrow keeps those constant labels that the next line of an engine has too.
func (a *answer) narrow(pairs []pair) {
	if !a.engine {
		a.engine, a.constant = true, slices.Clone(pairs)
		return
	}
	a.constant = slices.DeleteFunc(a.constant, func(c pair) bool {
		return !slices.ContainsFunc(pairs, func(p pair) bool { return bytes.Equal(p.text, c.text) })
	})
}

// ofOurs tells whether a line that cannot be read would have been passed on.
func ofOurs(line []byte) bool {
	line = bytes.TrimLeft(line, `{" `)
	return wanted(signal.Canonical(string(line[:nameLength(line)])))
}

// comment takes HELP and TYPE; of a name given twice the first counts.
func (m *merger) comment(a *answer, text []byte) {
	kind, rest := field(trimLeft(text[1:]))
	isHelp := string(kind) == "HELP"
	if !isHelp && string(kind) != "TYPE" {
		return
	}
	name, rest := field(rest)
	name = bytes.Trim(name, `"`)
	if len(name) == 0 || nameLength(name) != len(name) {
		return
	}
	w := m.wordOf(name)
	if !w.wanted {
		return
	}
	d := a.said[w.name]
	switch {
	case isHelp && !d.hasHelp:
		d.help, d.hasHelp = bytes.TrimSpace(rest), true
	case !isHelp && !d.hasType:
		d.typ, d.hasType = typeWord(bytes.TrimSpace(rest)), true
	}
	a.said[w.name] = d
}

// typeWord is one of the types that mean something here; the others make a name untyped.
func typeWord(b []byte) string {
	for _, t := range [...]string{"counter", "gauge", "histogram", "summary", "stateset", "info"} {
		if string(b) == t {
			return t
		}
	}
	return "untyped"
}

// helpText writes a help anew: what it escapes is not the same in both formats.
func helpText(b []byte, openMetrics bool) string {
	s := string(b)
	if strings.IndexByte(s, '\\') < 0 {
		return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r", " ")
	}
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
func placeOf(name string, types map[string]said) (fam, typ, declared string) {
	if t := types[name]; t.hasType {
		switch t.typ {
		case "counter", "gauge", "summary":
			return name, t.typ, name
		case "histogram":
			return name, "untyped", name // a line of the bare name is none of a histogram's
		case "stateset":
			return name, "gauge", name
		}
		return name, "untyped", name
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && slices.Contains(parts(types[base].typ), suffix) {
			return base, types[base].typ, base
		}
	}
	for _, om := range [...]struct{ suffix, want, typ string }{{"_total", "counter", "counter"}, {"_info", "info", "gauge"}, {"_created", "", "gauge"}} { // OpenMetrics
		base, ok := strings.CutSuffix(name, om.suffix)
		if t := types[base]; ok && t.hasType && (om.want == "" || t.typ == om.want) {
			return name, om.typ, base
		}
	}
	return name, "", name
}

// take puts what an answer says into its families.
func (m *merger) take(a *answer) {
	for i := range a.samples {
		m.add(a, &a.samples[i])
	}
}

// add puts a sample into its family.
func (m *merger) add(a *answer, s *sample) {
	if boundMissing(s) {
		m.left(a.Instance, DropBadLine)
		return
	}
	key := s.hash
	switch {
	case s.by < 0:
		if reason := m.elsewhere(a, s); reason != "" {
			m.left(a.Instance, reason)
			return
		}
	case a.same != nil && s.engine:
		s.by = a.same.index // what the engine itself has not said stands under its address
		key += a.same.hash
		if t, ok := m.series[a.without(s)+a.same.hash]; ok && m.equal(t, s, a) {
			m.left(a.Instance, SkipSameEngine)
			return
		}
	default:
		key += a.hash
	}
	if t, ok := m.series[key]; ok && m.equal(t, s, nil) {
		m.left(a.Instance, DropDuplicate)
		return
	}
	m.series[key] = s
	n := s.inName
	f := n.family
	if f == nil {
		f = m.join(a, n)
	}
	f.samples = append(f.samples, s)
	f.bytes += len(n.name) + len(s.labels) + len(s.rest) + len("{,} \n")
	if s.by >= 0 {
		f.bytes += len(m.answers[s.by].suffix)
	}
}

// elsewhere tells why a line in which a program speaks for an engine is left out, "" when it is not.
func (m *merger) elsewhere(a *answer, s *sample) string {
	var text []byte
	for rest := s.labels; len(rest) > 0; {
		var p pair
		if p, rest = next(rest); string(p.name) == WorkerLabel {
			text = p.value
			break
		}
	}
	at, ok := m.places[string(text)]
	if !ok {
		of, _ := engine.InstanceOf(string(text))
		at.key, at.local = m.place(of)
		m.places[string(text)] = at
	}
	switch {
	case at.key == a.own:
		return ""
	case !at.local:
		return SkipElsewhere
	case m.answered[at.key]:
		return SkipThroughRouter
	}
	return ""
}

// join finds the family of a name, to which an answer has a sample to add.
func (m *merger) join(a *answer, n *inName) *family {
	f := m.families[n.fam]
	if f == nil {
		f = &family{name: n.fam}
		m.families[n.fam] = f
	}
	if f.help == "" {
		f.help = helpText(a.said[n.declared].help, a.OpenMetrics)
	}
	switch {
	case n.typ == "" || n.typ == "untyped":
		f.untyped = true
	case f.typ == "":
		f.typ = n.typ
	case f.typ != n.typ:
		f.conflict = true
	}
	n.family = f
	return f
}

// boundMissing tells a bucket without a bound, or a quantile that is none: they make a whole answer unreadable.
func boundMissing(s *sample) bool {
	switch {
	case s.typ == "histogram" && s.bucket:
		return s.flags&goodBound == 0
	case s.typ == "histogram":
		return s.flags&hasBound != 0
	case s.typ == "summary" && s.name == s.fam:
		return s.flags&goodQuantile == 0
	case s.typ == "summary":
		return s.flags&hasQuantile != 0
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
	size := 0
	for _, f := range list {
		m.out.Read += len(f.samples)
		size += f.bytes + 2*len(f.name) + len(f.help) + len("# HELP  \n# TYPE  histogram\n")
	}
	var b bytes.Buffer
	b.Grow(size)
	for _, f := range list {
		if f.help != "" {
			b.WriteString("# HELP " + f.name + " " + f.help + "\n")
		}
		typ := f.typ
		if typ == "" || f.conflict {
			typ = "untyped"
		}
		b.WriteString("# TYPE " + f.name + " " + typ + "\n")
		for _, s := range f.samples {
			m.writeSample(&b, s)
		}
	}
	m.out.Text = b.Bytes()
}

// writeSample writes a line as it came, under the name of its engine and with its address.
func (m *merger) writeSample(b *bytes.Buffer, s *sample) {
	b.WriteString(s.name)
	b.WriteByte('{')
	b.Write(s.labels)
	if s.by >= 0 {
		if len(s.labels) > 0 {
			b.WriteByte(',')
		}
		b.Write(m.answers[s.by].suffix)
	}
	b.WriteString("} ")
	b.Write(s.rest)
	b.WriteByte('\n')
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
