package request

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// The names of fields in rows that are in none of the tables. docs/requests.md lists all.
const (
	fieldSource   = "source"
	fieldStart    = "start" // of a request whose place in time is another; of an observation "none"
	fieldFinish   = "finish"
	fieldTimeRank = "time_rank"
	fieldFinal    = "final"
	fieldRole     = "role"
	fieldOutcome  = "outcome"
	fieldSpans    = "spans"
	fieldKept     = "spans_kept"
	fieldReason   = "spans_reason"
	fieldFlags    = "flags"
	fieldKey      = "key"
	fieldID       = "id"
	fieldRevision = "revision"
	fieldInto     = "into"
	fieldSettled  = "settled"
	fieldFrom     = "from"
	fieldSources  = "sources"
	fieldProbable = "probable"
	fieldKeys     = "observations"
	invalidPrefix = "invalid."
)

// aliasKinds are the kinds in the order in which rows have them.
var aliasKinds = [...]AliasKind{RID, TraceID, SpanID, XRequestID, DynamoID, BootstrapRoom, SampleSpan}

// Key is a short name of what an observation says: equal for equal ones, in every process.
func (o *Observation) Key() string {
	r := event.Row{Fields: make([]event.Field, 0, usualFields)}
	o.fields(&r)
	return o.keyOf(r.Fields)
}

// usualFields is how many fields most observations have at most.
const usualFields = 32

func (o *Observation) keyOf(fields []event.Field) string {
	buf := make([]byte, 0, 1024)
	add := func(s string) {
		buf = strconv.AppendInt(buf, int64(len(s)), 10)
		buf = append(append(buf, ':'), s...)
	}
	add(strconv.FormatInt(o.Start, 10))
	add(o.Service)
	add(o.Engine)
	for _, f := range fields {
		add(f.Name)
		add(f.Value)
	}
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:8])
}

// Row writes an observation into r, whose Fields are reused, and returns its key. received, ns since 1970,
// is its place in time when it says nothing about time.
func (o *Observation) Row(r *event.Row, received int64) (key string) {
	*r = event.Row{Kind: event.Observation, Time: o.Start, Service: o.Service, Engine: o.Engine, Fields: slices.Grow(r.Fields[:0], usualFields)}
	if r.Time == 0 {
		r.Time = received
		r.Add(fieldStart, "none")
	}
	for _, a := range o.Aliases {
		if r.Message == "" || a.Kind == RID {
			r.Message = a.ID
		}
	}
	if r.Message == "" {
		r.Message = string(o.Source)
	}
	own := len(r.Fields)
	o.fields(r)
	key = o.keyOf(r.Fields[own:])
	r.Add(fieldKey, key)
	return key
}

// fields adds everything but start, service and engine.
func (o *Observation) fields(r *event.Row) {
	r.Add(fieldSource, string(o.Source))
	addTime(r, fieldFinish, o.Finish)
	addInt(r, fieldTimeRank, int64(o.TimeRank))
	addBool(r, fieldFinal, o.Final)
	addAliases(r, o.Aliases)
	r.Add(fieldRole, o.Role)
	for w := ModelWord; w < NumWords; w++ {
		r.Add(Words[w].Name, o.word(w))
	}
	r.Add(fieldOutcome, string(o.Outcome))
	for n := range NumNumbers {
		addValue(r, Numbers[n].Name, *o.value(n))
	}
	addInt(r, fieldSpans, int64(o.Spans))
	r.Add(fieldKept, o.SpansKept)
	r.Add(fieldReason, o.SpansReason)
	r.Add(fieldFlags, strings.Join(sortedWords(slices.Clone(o.Flags)), ","))
}

// Texts are what an observation says, by the names of the fields in rows; its source, engine, role, start
// and service are not among them.
func (o *Observation) Texts() map[string]string {
	var r event.Row
	o.fields(&r)
	out := make(map[string]string, len(r.Fields))
	for _, f := range r.Fields {
		switch f.Name {
		case fieldSource, fieldRole, fieldTimeRank:
		default:
			out[f.Name] = f.Value
		}
	}
	return out
}

func addTime(r *event.Row, name string, ns int64) {
	if ns != 0 {
		r.Add(name, time.Unix(0, ns).UTC().Format(time.RFC3339Nano))
	}
}

func addInt(r *event.Row, name string, n int64) {
	if n != 0 {
		r.Add(name, strconv.FormatInt(n, 10))
	}
}

func addBool(r *event.Row, name string, b bool) {
	if b {
		r.Add(name, "true")
	}
}

// addAliases writes the first of each kind under its name, and more of them as "rid.2" and so on.
func addAliases(r *event.Row, list []Alias) {
	if !slices.IsSortedFunc(list, compareAliases) {
		list = slices.Clone(list)
		slices.SortFunc(list, compareAliases)
	}
	for _, kind := range aliasKinds {
		n := 0
		for i, a := range list {
			if a.Kind != kind || a.ID == "" || i > 0 && a == list[i-1] {
				continue
			}
			name := string(kind)
			if n++; n > 1 {
				name += "." + strconv.Itoa(n)
			}
			r.Add(name, a.ID)
		}
	}
}

func addValue(r *event.Row, name string, v Value) {
	switch v.State {
	case Known:
		r.Add(name, plain(v.V))
	case Invalid:
		r.Add(invalidPrefix+name, plain(v.V))
	}
}

// plain writes a number with 15 digits at most, and without an exponent where that is short: the event
// store keeps such ones in columns of numbers. It gives a fraction back with an error in the last of 17
// digits (1.9 as 1.9000000000000001), so that more than 15 would not be the same after a while.
func plain(v float64) string {
	form := byte('f')
	if a := math.Abs(v); a >= 1e15 || a < 1e-6 && a != 0 {
		form = 'g'
	}
	return strconv.FormatFloat(round(v), form, -1, 64)
}

// round keeps 15 digits.
func round(v float64) float64 {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return v
	}
	var buf [32]byte
	f, err := strconv.ParseFloat(string(strconv.AppendFloat(buf[:0], v, 'g', 15, 64)), 64)
	if err != nil { // beyond the largest number after rounding
		return v
	}
	return f
}

// ParseStored reads a number as rows have it; false for what is no finite number.
func ParseStored(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	return round(f), true
}

// FieldError is a stored field that cannot be read back.
type FieldError struct {
	Row   event.Kind
	ID    string // key of the observation or id of the request, "" unknown
	Field string
	Err   error
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s %s: field %s: %v", e.Row, e.ID, e.Field, e.Err)
}

func (e *FieldError) Unwrap() error { return e.Err }

var numberByName, wordByName = fieldNames()

func fieldNames() (map[string]Number, map[string]Word) {
	numbers, words := map[string]Number{}, map[string]Word{}
	for n := range NumNumbers {
		numbers[Numbers[n].Name] = n
	}
	for w := range NumWords {
		words[Words[w].Name] = w
	}
	return numbers, words
}

// ObservationFromRow reads an observation back from a stored row: its fields and, among them, _time,
// service and engine. Fields that it does not know are left alone; the strings of fields are copied.
// The error is a *[FieldError].
func ObservationFromRow(fields []event.Field) (o Observation, _ error) {
	noStart, key := false, ""
	for _, f := range fields {
		name, text := f.Name, f.Value
		var bad error
		switch name {
		case "_time":
			o.Start, bad = parseTime(text)
		case fieldStart:
			noStart = true
		case fieldKey:
			key = strings.Clone(text)
		case "service":
			o.Service = strings.Clone(text)
		case "engine":
			o.Engine = strings.Clone(text)
		case fieldSource:
			o.Source = Source(strings.Clone(text))
		case fieldFinish:
			o.Finish, bad = parseTime(text)
		case fieldTimeRank:
			o.TimeRank, bad = strconv.Atoi(text)
		case fieldFinal:
			o.Final = text == "true"
		case fieldRole:
			o.Role = strings.Clone(text)
		case fieldOutcome:
			o.Outcome = Outcome(strings.Clone(text))
		case fieldSpans:
			o.Spans, bad = strconv.Atoi(text)
		case fieldKept:
			o.SpansKept = strings.Clone(text)
		case fieldReason:
			o.SpansReason = strings.Clone(text)
		case fieldFlags:
			o.Flags = strings.Split(strings.Clone(text), ",")
		default:
			bad = o.tableField(name, text)
		}
		if bad != nil {
			return Observation{}, &FieldError{event.Observation, key, name, bad}
		}
	}
	if noStart {
		o.Start = 0
	}
	slices.SortFunc(o.Aliases, compareAliases)
	return o, nil
}

// tableField reads a field of the tables or an alias.
func (o *Observation) tableField(name, text string) error {
	if n, v, ok, err := parseNumber(name, text); ok || err != nil {
		*o.value(n) = v
		return err
	}
	if a, ok := parseAlias(name, text); ok {
		o.Aliases = append(o.Aliases, a)
		return nil
	}
	text = strings.Clone(text)
	w, ok := wordByName[name]
	if !ok {
		return nil
	}
	switch w {
	case ModelWord:
		o.Model = text
	case FinishReason:
		o.FinishReason = text
	case ErrorWord:
		o.Error = text
	case WeightVersion:
		o.WeightVersion = text
	case RunWord:
		o.Run = text
	case KindWord:
		o.Kind = text
	case StreamingWord:
		b := text == "true"
		o.Streaming = &b
	}
	return nil
}

func parseTime(s string) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, err
	}
	return t.UnixNano(), nil
}

// parseNumber reads a numeric field; ok is false for the name of another.
func parseNumber(name, text string) (n Number, v Value, ok bool, err error) {
	plain, invalid := strings.CutPrefix(name, invalidPrefix)
	if n, ok = numberByName[plain]; !ok {
		return 0, v, false, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return n, v, true, err
	}
	v = Value{round(f), Known}
	if invalid {
		v.State = Invalid
	} else if math.IsNaN(f) || math.IsInf(f, 0) {
		v.State = Invalid
	}
	return n, v, true, nil
}

func parseAlias(name, text string) (Alias, bool) {
	for _, k := range aliasKinds {
		if rest, ok := strings.CutPrefix(name, string(k)); ok && (rest == "" || rest[0] == '.') {
			return Alias{k, strings.Clone(text)}, true
		}
	}
	return Alias{}, false
}

// Row writes a settled request into r, whose Fields are reused. Others are not stored: they are in the
// observations that Keys name.
func (s *Settled) Row(r *event.Row) {
	*r = event.Row{Kind: event.Request, Time: s.Time, Message: s.Alias(RID), Service: s.Words[ServiceWord], Engine: s.Words[EngineWord], Fields: slices.Grow(r.Fields[:0], usualFields)}
	if r.Message == "" && len(s.Aliases) > 0 {
		r.Message = s.Aliases[0].ID
	}
	if r.Message == "" {
		r.Message = s.ID
	}
	r.Add(fieldID, s.ID)
	addInt(r, fieldRevision, int64(s.Revision))
	r.Add(fieldInto, s.Into)
	if s.Into != "" {
		r.Add(fieldKeys, strings.Join(s.Keys, " "))
		return
	}
	addBool(r, fieldSettled, s.Final)
	switch {
	case s.Start == 0:
		r.Add(fieldStart, "none")
	case s.Start != s.Time:
		addTime(r, fieldStart, s.Start)
	}
	addTime(r, fieldFinish, s.Finish)
	addAliases(r, s.Aliases)
	for w := range NumWords {
		if w != EngineWord && w != ServiceWord {
			r.Add(Words[w].Name, s.Words[w])
		}
	}
	r.Add(fieldOutcome, string(s.Outcome))
	for n := range NumNumbers {
		addValue(r, Numbers[n].Name, s.Numbers[n])
	}
	r.Add(fieldFrom, s.from())
	var sources []string
	for _, x := range s.Sources {
		sources = append(sources, string(x))
	}
	r.Add(fieldSources, strings.Join(sources, ","))
	addInt(r, fieldSpans, int64(s.Spans))
	r.Add(fieldKept, s.SpansKept)
	r.Add(fieldReason, s.SpansReason)
	r.Add(fieldFlags, strings.Join(s.Flags, ","))
	if len(s.Probable) > 0 {
		text, err := json.Marshal(s.Probable)
		if err == nil { // strings alone: cannot fail
			r.Add(fieldProbable, string(text))
		}
	}
	r.Add(fieldKeys, strings.Join(s.Keys, " "))
}

// from packs the sources of all fields: "trace/decode:ttft,itl dump:e2e,step".
func (s *Settled) from() string {
	type said struct {
		source string
		fields []byte
	}
	var list []said // few: no map
	add := func(source, field string) {
		if source == "" {
			return
		}
		i := slices.IndexFunc(list, func(x said) bool { return x.source == source })
		if i < 0 {
			i = len(list)
			list = append(list, said{source, make([]byte, 0, 256)})
		} else {
			list[i].fields = append(list[i].fields, ',')
		}
		list[i].fields = append(list[i].fields, field...)
	}
	add(s.StartFrom, StartRule.Name)
	for w := range NumWords {
		add(s.WordFrom[w], Words[w].Name)
	}
	for n := range NumNumbers {
		add(s.NumberFrom[n], Numbers[n].Name)
	}
	slices.SortFunc(list, func(a, b said) int { return strings.Compare(a.source, b.source) })
	var b strings.Builder
	for i, x := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(x.source)
		b.WriteByte(':')
		b.Write(x.fields)
	}
	return b.String()
}

func (s *Settled) setFrom(text string) {
	for part := range strings.FieldsSeq(text) {
		source, list, _ := strings.Cut(part, ":")
		for name := range strings.SplitSeq(list, ",") {
			if n, ok := numberByName[name]; ok {
				s.NumberFrom[n] = source
			} else if w, ok := wordByName[name]; ok {
				s.WordFrom[w] = source
			} else if name == StartRule.Name {
				s.StartFrom = source
			}
		}
	}
}

// FromRow reads a settled request back from a stored row. The strings of fields are copied. The error
// is a *[FieldError].
func FromRow(fields []event.Field) (s Settled, err error) {
	start := ""
	for _, f := range fields {
		name, text := f.Name, f.Value
		var bad error
		switch name {
		case "_time":
			s.Time, bad = parseTime(text)
		case fieldID:
			s.ID = strings.Clone(text)
		case fieldRevision:
			s.Revision, bad = strconv.Atoi(text)
		case fieldInto:
			s.Into = strings.Clone(text)
		case fieldSettled:
			s.Final = text == "true"
		case fieldStart:
			start = text
		case fieldFinish:
			s.Finish, bad = parseTime(text)
		case fieldOutcome:
			s.Outcome = Outcome(strings.Clone(text))
		case fieldFrom:
			s.setFrom(strings.Clone(text))
		case fieldSources:
			for x := range strings.SplitSeq(strings.Clone(text), ",") {
				s.Sources = append(s.Sources, Source(x))
			}
		case fieldSpans:
			s.Spans, bad = strconv.Atoi(text)
		case fieldKept:
			s.SpansKept = strings.Clone(text)
		case fieldReason:
			s.SpansReason = strings.Clone(text)
		case fieldFlags:
			s.Flags = strings.Split(strings.Clone(text), ",")
		case fieldProbable:
			bad = json.Unmarshal([]byte(text), &s.Probable)
		case fieldKeys:
			s.Keys = strings.Fields(strings.Clone(text))
		default:
			if n, v, ok, err := parseNumber(name, text); ok || err != nil {
				s.Numbers[n], bad = v, err
			} else if w, ok := wordByName[name]; ok {
				s.Words[w] = strings.Clone(text)
			} else if a, ok := parseAlias(name, text); ok {
				s.Aliases = append(s.Aliases, a)
			}
		}
		if bad != nil {
			return Settled{}, &FieldError{event.Request, s.ID, name, bad}
		}
	}
	s.Start = s.Time
	switch start {
	case "":
	case "none":
		s.Start = 0
	default:
		if s.Start, err = parseTime(start); err != nil {
			return Settled{}, &FieldError{event.Request, s.ID, fieldStart, err}
		}
	}
	slices.SortFunc(s.Aliases, compareAliases)
	return s, nil
}
