package scrape

import (
	"bytes"
	"encoding/json"
	"mime"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// Kind says what a body is.
type Kind string

// Kinds of bodies.
const (
	KindExposition Kind = "exposition"
	KindEmpty      Kind = "empty" // nothing, or comments and blank lines only
	KindHTML       Kind = "html"
	KindJSON       Kind = "json"
	KindHTTP       Kind = "http_message" // a recorded HTTP answer with its headers
	KindText       Kind = "text"         // an error message, a log, ...
	KindBinary     Kind = "binary"
)

// Format is the exposition format a body was read as.
type Format string

// Formats.
const (
	FormatText        Format = "text"
	FormatOpenMetrics Format = "openmetrics"
	FormatProtobuf    Format = "protobuf"
)

// Spelling is how the names of engine metrics are written.
type Spelling string

// Spellings.
const (
	SpellingNone       Spelling = ""           // no engine metrics
	SpellingColon      Spelling = "colon"      // sglang:x, the engine's own
	SpellingUnderscore Spelling = "underscore" // sglang_x: a router, or negotiated escaping
	SpellingRay        Spelling = "ray"        // ray_sglang_x, ray_vllm:x, ...
	SpellingMixed      Spelling = "mixed"      // several of them
)

// MaxSamples is how many samples [Inspect] keeps; the rest is counted.
const MaxSamples = 200_000

// Exposition is what [Inspect] found in a body.
type Exposition struct {
	Kind        Kind
	Format      Format // of an exposition
	ContentType string // as given
	// Backend is the program that wrote it, EngineMetrics for a router's /engine_metrics.
	Backend  engine.Backend
	Spelling Spelling
	Families []Family // in order of first appearance
	Samples  []Sample // in order; at most MaxSamples
	Total    int      // samples in all
	Findings []Finding
	BadLines int
	Lines    int
	Excerpt  string // the beginning of a body that is no exposition, on one line

	// What the labels say.
	DPRanks     []string // distinct dp_rank of engine samples, sorted
	EngineTypes []string // distinct engine_type
	Models      []string // distinct model_name
	WorkerAddrs []string // distinct worker_addr: engines seen through a router
}

// Family is one metric family.
type Family struct {
	Name    string           // canonical; of a counter with _total if its samples have it
	Written string           // name in the samples, without suffix, of the first sample; "" when there is none
	Header  string           // name in HELP or TYPE; "" without
	Type    model.MetricType // "" when neither written nor evident
	Guessed bool             // Type is not written but evident from the samples (le buckets)
	Help    string
	Unit    string // of an OpenMetrics UNIT line
	Line    int    // of its first mention
	Samples int
	Labels  []string // label names seen, sorted, without the name
}

// Sample is one sample under its canonical name.
type Sample struct {
	Labels    labels.Labels // as Prometheus stores it: canonical name, le and quantile normalised
	Value     float64
	Timestamp *int64 // milliseconds; nil without one
	Line      int
	Family    int // index in Exposition.Families
}

// Name is the series' metric name.
func (s Sample) Name() string { return s.Labels.Get(model.MetricNameLabel) }

// Family finds a family by its canonical name or that of one of its series.
func (e *Exposition) Family(name string) (Family, bool) {
	c := signal.Canonical(name)
	for _, f := range e.Families {
		if f.Name == c || f.Name == name {
			return f, true
		}
	}
	for _, suf := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(c, suf); ok {
			for _, f := range e.Families {
				if f.Name == base && (f.Type == model.MetricTypeHistogram || f.Type == model.MetricTypeSummary) {
					return f, true
				}
			}
		}
	}
	return Family{}, false
}

// Names lists the canonical family names in order of appearance.
func (e *Exposition) Names() []string {
	out := make([]string, len(e.Families))
	for i, f := range e.Families {
		out[i] = f.Name
	}
	return out
}

// Inspect reads a body as Prometheus would, survives what Prometheus would not, and says what is
// odd about it. It does no I/O; contentType is the Content-Type header, "" when not known. It keeps
// no reference to body.
func Inspect(body []byte, contentType string) Exposition {
	e := Exposition{ContentType: contentType, Kind: KindExposition, Format: formatOf(body, contentType)}
	b := &builder{e: &e, byName: map[string]int{}, typeOf: map[string]model.MetricType{}}
	if e.Format == FormatProtobuf {
		b.protobuf(body)
	} else {
		e.Lines = bytes.Count(body, []byte{'\n'})
		if n := len(body); n > 0 && body[n-1] != '\n' {
			e.Lines++
		}
		b.text(body)
	}
	e.Kind = kindOf(body, &e, b.metas)
	if e.Kind != KindExposition {
		e.Excerpt = excerpt(body)
		e.Families, e.Samples, e.Total, e.Backend = nil, nil, 0, engine.Unknown
		if e.Kind != KindEmpty {
			b.findings = nil
			b.find(Finding{Code: "not_an_exposition", Level: LevelError, Message: "this is " + kindWords[e.Kind] + ", not an exposition: " + e.Excerpt})
		} else {
			b.findings = nil
		}
		e.Findings = b.findings
		return e
	}
	b.finish()
	return e
}

var kindWords = map[Kind]string{
	KindHTML: "an HTML page", KindJSON: "JSON", KindHTTP: "a recorded HTTP answer", KindText: "text",
	KindBinary: "binary data", KindEmpty: "nothing",
}

// formatOf decides how to read a body.
func formatOf(body []byte, contentType string) Format {
	mt, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mt = ""
	}
	switch mt {
	case "application/openmetrics-text":
		return FormatOpenMetrics
	case "application/vnd.google.protobuf":
		return FormatProtobuf
	case "text/plain":
		return FormatText
	}
	// Only OpenMetrics ends so, and it is a comment in the other text format.
	if t := bytes.TrimRight(body, " \t\r\n"); bytes.HasSuffix(t, []byte("\n# EOF")) {
		return FormatOpenMetrics
	}
	return FormatText
}

// kindOf judges what a body is after it was read.
func kindOf(body []byte, e *Exposition, metas int) Kind {
	t := bytes.TrimSpace(body)
	switch {
	case len(t) == 0:
		return KindEmpty
	case e.Total > 0 && (metas > 0 || e.BadLines <= e.Total):
		return KindExposition
	case e.Format == FormatProtobuf:
		return KindBinary
	}
	switch {
	case httpStart.Match(t):
		return KindHTTP
	case t[0] == '<':
		return KindHTML
	case (t[0] == '{' || t[0] == '[') && json.Valid(t):
		return KindJSON
	case bytes.IndexByte(t, 0) >= 0 || !utf8.Valid(t):
		return KindBinary
	case metas > 0 && e.BadLines == 0:
		// HELP and TYPE lines without samples, as an engine writes before its first event.
		return KindEmpty
	case metas > 0:
		return KindExposition
	case e.BadLines == 0:
		return KindEmpty
	}
	return KindText
}

var httpStart = regexp.MustCompile(`^HTTP/\d(\.\d)? \d{3}`)

// excerpt gives the beginning of a body on one line.
func excerpt(body []byte) string {
	const most = 200
	t := bytes.TrimSpace(body)
	cut := len(t) > most
	if cut {
		t = t[:most]
	}
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(t), "?")), " ")
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	if cut {
		s += " ..."
	}
	return s
}

// builder collects an exposition.
type builder struct {
	e        *Exposition
	byName   map[string]int // canonical family name -> index
	typeOf   map[string]model.MetricType
	raw      []rawSample
	headers  []header
	metas    int
	kept     []int // index in e.Samples by index in raw
	bad      []badLine
	walked   walkResult
	findings []Finding
	counts   map[string]int // findings by code
}

type rawSample struct {
	name   string // as written
	float  string // le or quantile as written, when it is not written as it is stored
	labels labels.Labels
	value  float64
	ts     *int64
	line   int
}

type header struct {
	kind textparse.Entry
	name string
	text string
	typ  model.MetricType
	line int
}

func (b *builder) text(body []byte) {
	b.walked = walk(body, b.e.Format == FormatOpenMetrics, func(en entry) {
		switch en.kind {
		case textparse.EntryComment:
		case textparse.EntrySeries:
			b.e.Total++
			if len(b.raw) >= MaxSamples {
				return
			}
			b.raw = append(b.raw, rawSample{name: en.labels.Get(model.MetricNameLabel), float: oddFloat(en.met, en.labels), labels: en.labels, value: en.value, ts: copyOf(en.ts), line: en.line})
		default:
			b.metas++
			if len(b.headers) < MaxSamples {
				b.headers = append(b.headers, header{kind: en.kind, name: string(en.name), text: string(en.text), typ: en.typ, line: en.line})
			}
		}
	}, func(l badLine) {
		b.e.BadLines++
		if len(b.bad) < maxPerCode {
			l.text = bytes.Clone(l.text[:min(len(l.text), 200)])
			b.bad = append(b.bad, l)
		}
	})
}

func copyOf(p *int64) *int64 {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// protobuf reads the binary format, which has no lines.
func (b *builder) protobuf(body []byte) {
	p := textparse.NewProtobufParser(body, true, true, false, false, labels.NewSymbolTable())
	var lset labels.Labels
	for {
		kind, err := p.Next()
		if err != nil {
			return
		}
		switch kind {
		case textparse.EntrySeries:
			b.e.Total++
			if len(b.raw) >= MaxSamples {
				continue
			}
			_, ts, v := p.Series()
			p.Labels(&lset)
			b.raw = append(b.raw, rawSample{name: lset.Get(model.MetricNameLabel), labels: lset.Copy(), value: v, ts: copyOf(ts)})
		case textparse.EntryType:
			n, t := p.Type()
			b.metas++
			b.headers = append(b.headers, header{kind: kind, name: string(n), typ: t})
		case textparse.EntryHelp:
			n, t := p.Help()
			b.metas++
			b.headers = append(b.headers, header{kind: kind, name: string(n), text: string(t)})
		}
	}
}

// finish groups samples into families and looks for oddities.
func (b *builder) finish() {
	e := b.e
	names := make([]string, 0, len(b.headers)+len(b.raw))
	for _, h := range b.headers {
		names = append(names, h.name)
	}
	for _, s := range b.raw {
		names = append(names, s.name)
	}
	canonical := signal.Canonical
	if signal.IsLoads(names) {
		canonical = func(s string) string { return s }
	}
	b.families(canonical)
	b.labelFacts()
	e.Backend = engine.Other
	if d, ok := signal.Detect(names); ok {
		e.Backend = d
		if d == engine.SGLang && len(e.WorkerAddrs) > 0 {
			e.Backend = engine.EngineMetrics
		}
	}
	e.Spelling = spellingOf(b.raw, canonical)
	b.check(canonical)
	e.Findings = b.findings
}

// families makes the family list out of headers and samples.
func (b *builder) families(canonical func(string) string) {
	e := b.e
	family := func(name string, line int) int {
		if i, ok := b.byName[name]; ok {
			return i
		}
		b.byName[name] = len(e.Families)
		e.Families = append(e.Families, Family{Name: name, Line: line})
		return len(e.Families) - 1
	}
	// Which families have a header, and of which type: a sample's family depends on it.
	for _, h := range b.headers {
		c := canonical(h.name)
		if h.kind == textparse.EntryType {
			if b.typeOf[c] == "" {
				b.typeOf[c] = h.typ
			}
		} else if _, ok := b.typeOf[c]; !ok {
			b.typeOf[c] = ""
		}
	}
	// Without a TYPE, a name that ends in _bucket and has le is a histogram's.
	guessed := map[string]bool{}
	for _, s := range b.raw {
		c := canonical(s.name)
		if _, ok := b.typeOf[c]; ok {
			continue
		}
		if base, ok := strings.CutSuffix(c, "_bucket"); ok && base != "" && s.labels.Has(model.BucketLabel) && b.typeOf[base] == "" {
			guessed[base] = true
		}
	}
	typed := func(name string) model.MetricType {
		if t := b.typeOf[name]; t != "" {
			return t
		}
		if guessed[name] {
			return model.MetricTypeHistogram
		}
		return ""
	}
	order := mergeByLine(b.headers, b.raw)
	b.kept = make([]int, len(b.raw))
	for _, o := range order {
		if o.header {
			h := b.headers[o.i]
			f := &e.Families[family(canonical(h.name), h.line)]
			if f.Header == "" {
				f.Header = h.name
			}
			switch h.kind {
			case textparse.EntryType:
				if f.Type == "" || f.Type == model.MetricTypeUnknown {
					f.Type = h.typ
				} else if f.Type != h.typ {
					b.find(Finding{Code: "type_conflict", Level: LevelError, Line: h.line, Family: f.Name,
						Message: "TYPE of " + h.name + " is " + string(f.Type) + " before and " + string(h.typ) + " here; the first counts",
						Hint:    "two programs' metrics were joined into one answer"})
				}
			case textparse.EntryHelp:
				if f.Help == "" {
					f.Help = h.text
				}
			case textparse.EntryUnit:
				f.Unit = h.text
			}
			continue
		}
		s := b.raw[o.i]
		c := canonical(s.name)
		base := familyOf(c, typed)
		i := family(base, s.line)
		f := &e.Families[i]
		f.Samples++
		if f.Written == "" {
			f.Written = strings.TrimSuffix(s.name, c[len(base):])
		}
		if f.Type == "" && guessed[base] {
			f.Type, f.Guessed = model.MetricTypeHistogram, true
		}
		lset := s.labels
		if c != s.name || needsFloat(lset, f.Type) {
			lb := labels.NewBuilder(lset)
			lb.Set(model.MetricNameLabel, c)
			normaliseFloats(lb, f.Type)
			lset = lb.Labels()
		}
		b.kept[o.i] = len(e.Samples)
		e.Samples = append(e.Samples, Sample{Labels: lset, Value: s.value, Timestamp: s.ts, Line: s.line, Family: i})
	}
	// An OpenMetrics counter is declared without _total; its name is that of its samples.
	for i := range e.Families {
		f := &e.Families[i]
		if f.Type != model.MetricTypeCounter || strings.HasSuffix(f.Name, "_total") {
			continue
		}
		total := f.Name + "_total"
		if f.Samples == 0 && b.e.Format != FormatOpenMetrics {
			continue
		}
		if _, taken := b.byName[total]; taken {
			continue
		}
		if f.Samples == 0 || slices.ContainsFunc(e.Samples, func(s Sample) bool { return s.Family == i && s.Name() == total }) {
			b.byName[total] = i
			f.Name = total
		}
	}
}

type ordered struct {
	header bool
	i      int
}

// mergeByLine puts headers and samples into the order of the body.
func mergeByLine(hs []header, ss []rawSample) []ordered {
	out := make([]ordered, 0, len(hs)+len(ss))
	i, j := 0, 0
	for i < len(hs) || j < len(ss) {
		if j >= len(ss) || (i < len(hs) && hs[i].line <= ss[j].line) {
			out = append(out, ordered{true, i})
			i++
		} else {
			out = append(out, ordered{false, j})
			j++
		}
	}
	return out
}

// familyOf gives the family of a series name, given which families have which type.
func familyOf(name string, typed func(string) model.MetricType) string {
	if typed(name) != "" {
		return name
	}
	for _, s := range []struct {
		suffix string
		types  []model.MetricType
	}{
		{"_bucket", []model.MetricType{model.MetricTypeHistogram, model.MetricTypeGaugeHistogram}},
		{"_sum", []model.MetricType{model.MetricTypeHistogram, model.MetricTypeSummary}},
		{"_count", []model.MetricType{model.MetricTypeHistogram, model.MetricTypeSummary}},
		{"_gsum", []model.MetricType{model.MetricTypeGaugeHistogram}},
		{"_gcount", []model.MetricType{model.MetricTypeGaugeHistogram}},
		{"_total", []model.MetricType{model.MetricTypeCounter}},
		{"_created", []model.MetricType{model.MetricTypeCounter, model.MetricTypeHistogram, model.MetricTypeSummary}},
		{"_info", []model.MetricType{model.MetricTypeInfo}},
	} {
		if base, ok := strings.CutSuffix(name, s.suffix); ok && base != "" && slices.Contains(s.types, typed(base)) {
			return base
		}
	}
	return name
}

// labelFacts collects what labels say about the program, and the label names of each family.
func (b *builder) labelFacts() {
	e := b.e
	seen := make([]map[string]bool, len(e.Families))
	facts := map[string]map[string]bool{"dp_rank": {}, "engine_type": {}, "model_name": {}, "worker_addr": {}}
	for _, s := range e.Samples {
		m := seen[s.Family]
		if m == nil {
			m = map[string]bool{}
			seen[s.Family] = m
		}
		s.Labels.Range(func(l labels.Label) {
			if l.Name == model.MetricNameLabel {
				return
			}
			m[l.Name] = true
			if f, ok := facts[l.Name]; ok {
				f[l.Value] = true
			}
		})
	}
	for i, m := range seen {
		e.Families[i].Labels = sortedKeys(m)
	}
	e.DPRanks = sortedKeys(facts["dp_rank"])
	e.EngineTypes = sortedKeys(facts["engine_type"])
	e.Models = sortedKeys(facts["model_name"])
	e.WorkerAddrs = sortedKeys(facts["worker_addr"])
}

func sortedKeys(m map[string]bool) []string {
	if len(m) == 0 {
		return nil
	}
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// spellingOf judges how engine metrics are written.
func spellingOf(raw []rawSample, canonical func(string) string) Spelling {
	got := SpellingNone
	for _, s := range raw {
		sp := SpellingNone
		c := canonical(s.name)
		switch {
		case !strings.HasPrefix(c, "sglang:") && !strings.HasPrefix(c, "vllm:"):
		case strings.HasPrefix(s.name, "ray_"):
			sp = SpellingRay
		case c == s.name:
			sp = SpellingColon
		default:
			sp = SpellingUnderscore
		}
		if sp == SpellingNone || sp == got {
			continue
		}
		if got != SpellingNone {
			return SpellingMixed
		}
		got = sp
	}
	return got
}
