package wandbfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is the field number of a record's type in wandb_internal.Record.
type Kind int32

// The kinds that this package decodes. A Record of another kind has only its number.
const (
	KindHistory Kind = 2
	KindSummary Kind = 3
	KindMetric  Kind = 12
	KindRun     Kind = 17
	KindExit    Kind = 18
	KindHeader  Kind = 21
	KindFooter  Kind = 22
)

// Record is one record of a run file. The fields beside Num and Kind are set for their kind only.
type Record struct {
	// Num counts the records of a file from 1.
	Num  int64
	Kind Kind

	// Producer is the version in the header.
	Producer string
	Run      *Run
	Metric   *Metric
	// Items are the columns of a history row, or the updates of a summary.
	Items []Item
	// Step is the row's internal number (the _step of W&B), which only ever increases; HasStep tells
	// 0 from absent.
	Step    int64
	HasStep bool
	// ExitCode ends a run: 0 finished, anything else failed. Runtime is in seconds. NotComplete ends the
	// file but not the run, which W&B goes on showing as running (clients before 2025 do not know it).
	ExitCode    int32
	Runtime     int32
	NotComplete bool
}

// Run describes the run. A file may hold several; later ones update earlier ones.
type Run struct {
	ID, Entity, Project string
	Group, JobType      string
	DisplayName, Notes  string
	Host                string
	Tags                []string
	Config              []Item
	StartTime           time.Time
}

// Metric is a define_metric call: which axis a metric, or every metric with a prefix, is drawn over.
type Metric struct {
	// Name is the metric; Glob, set instead, is a prefix and "*".
	Name, Glob string
	// StepMetric is the axis; empty for an axis itself.
	StepMetric string
	// Expanded says that the record was made from a glob when a key first occurred.
	Expanded bool
	Hidden   bool
	StepSync bool
}

// Item is a key and its value as JSON.
type Item struct {
	Key string
	// Nested is set instead of Key for a value inside of dictionaries: the path to it.
	Nested []string
	JSON   string
}

// Name returns the key, or the nested key joined by dots as W&B shows it.
func (i *Item) Name() string {
	if len(i.Nested) > 0 {
		return strings.Join(i.Nested, ".")
	}
	return i.Key
}

// Number returns the value where it is a number. NaN and infinities are numbers, both bare and as the
// strings that W&B's server returns.
func (i *Item) Number() (float64, bool) {
	switch s := i.JSON; s {
	case "NaN", `"NaN"`:
		return math.NaN(), true
	case "Infinity", `"Infinity"`:
		return math.Inf(1), true
	case "-Infinity", `"-Infinity"`:
		return math.Inf(-1), true
	case "":
		return 0, false
	default:
		// ParseFloat also takes 0x1p3, 1_0 and inf, which JSON does not have.
		if c := s[len(s)-1]; c < '0' || c > '9' || strings.ContainsAny(s, "xX_pP") || s[0] == '+' || s[0] == '.' {
			return 0, false
		}
		v, err := strconv.ParseFloat(s, 64)
		if errors.Is(err, strconv.ErrRange) {
			err = nil // 1e999 is what it says: infinite
		}
		return v, err == nil
	}
}

// Text returns the value where it is a string.
func (i *Item) Text() (string, bool) {
	var s string
	if len(i.JSON) == 0 || i.JSON[0] != '"' || json.Unmarshal([]byte(i.JSON), &s) != nil {
		return "", false
	}
	return s, true
}

// NumberJSON is v as value_json: the shortest decimal that reads back as v, or NaN, Infinity, -Infinity.
func NumberJSON(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
}

func appendBool(b []byte, num protowire.Number, v bool) []byte {
	return appendInt(b, num, int64(protowire.EncodeBool(v)))
}

func appendMessage(b []byte, num protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), m)
}

func itemSize(it *Item) int {
	n := 0
	if it.Key != "" {
		n += 1 + protowire.SizeBytes(len(it.Key))
	}
	for _, k := range it.Nested {
		n += 1 + protowire.SizeBytes(len(k))
	}
	if it.JSON != "" {
		n += 2 + protowire.SizeBytes(len(it.JSON))
	}
	return n
}

func appendItems(b []byte, items []Item) []byte {
	for i := range items {
		it := &items[i]
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(itemSize(it)))
		b = appendString(b, 1, it.Key)
		for _, k := range it.Nested {
			b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), k)
		}
		b = appendString(b, 16, it.JSON)
	}
	return b
}

// AppendRecord appends the protobuf of r, without framing, to dst.
func AppendRecord(dst []byte, r *Record) ([]byte, error) {
	var m []byte
	switch r.Kind {
	case KindHeader:
		m = appendMessage(nil, 1, appendString(nil, 1, r.Producer))
	case KindRun:
		run := r.Run
		if run == nil || run.ID == "" {
			return dst, errors.New("wandbfile: a run record needs a run id")
		}
		m = appendString(nil, 1, run.ID)
		m = appendString(m, 2, run.Entity)
		m = appendString(m, 3, run.Project)
		if len(run.Config) > 0 {
			m = appendMessage(m, 4, appendItems(nil, run.Config))
		}
		m = appendString(m, 6, run.Group)
		m = appendString(m, 7, run.JobType)
		m = appendString(m, 8, run.DisplayName)
		m = appendString(m, 9, run.Notes)
		for _, t := range run.Tags {
			m = protowire.AppendString(protowire.AppendTag(m, 10, protowire.BytesType), t)
		}
		m = appendString(m, 13, run.Host)
		if !run.StartTime.IsZero() {
			ts := appendInt(nil, 1, run.StartTime.Unix())
			m = appendMessage(m, 17, appendInt(ts, 2, int64(run.StartTime.Nanosecond())))
		}
	case KindMetric:
		d := r.Metric
		if d == nil || (d.Name == "") == (d.Glob == "") {
			return dst, errors.New("wandbfile: a metric definition needs either a name or a glob")
		}
		m = appendString(nil, 1, d.Name)
		m = appendString(m, 2, d.Glob)
		m = appendString(m, 4, d.StepMetric)
		o := appendBool(nil, 1, d.StepSync)
		o = appendBool(o, 2, d.Hidden)
		m = appendMessage(m, 6, appendBool(o, 3, true))
		m = appendBool(m, 10, d.Expanded)
	case KindHistory:
		m = appendItems(nil, r.Items)
		if r.HasStep {
			m = appendMessage(m, 2, appendInt(nil, 1, r.Step))
		}
	case KindSummary:
		m = appendItems(nil, r.Items)
	case KindExit:
		m = appendInt(nil, 1, int64(r.ExitCode))
		m = appendInt(m, 2, int64(r.Runtime))
		m = appendBool(m, 3, r.NotComplete)
	case KindFooter:
	default:
		return dst, fmt.Errorf("wandbfile: records of kind %d are not written", r.Kind)
	}
	dst = appendInt(dst, 1, r.Num)
	return appendMessage(dst, protowire.Number(r.Kind), m), nil
}

var errMalformed = errors.New("malformed protobuf")

// fields calls fn with each field of a message; data is set for length-delimited ones, u for varints.
func fields(b []byte, fn func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		var data []byte
		var u uint64
		switch typ {
		case protowire.VarintType:
			u, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := fn(num, typ, data, u); err != nil {
			return err
		}
	}
	return nil
}

// decoder turns the bytes of a record into strings of one allocation, and keeps keys, which repeat.
type decoder struct {
	keys map[string]string
}

const maxKeys = 1 << 14

func (d *decoder) key(b []byte) string {
	if v, ok := d.keys[string(b)]; ok {
		return v
	}
	v := string(b)
	if d.keys != nil && len(d.keys) < maxKeys {
		d.keys[v] = v
	}
	return v
}

// DecodeRecord decodes the protobuf of one record.
func DecodeRecord(payload []byte) (Record, error) {
	var r Record
	err := (&decoder{}).record(payload, &r)
	return r, err
}

func (d *decoder) record(b []byte, r *Record) error {
	*r = Record{Items: r.Items[:0]}
	err := fields(b, func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error {
		switch {
		case num == 1 && typ == protowire.VarintType:
			r.Num = int64(u)
			return nil
		case typ != protowire.BytesType, num == 16, num == 19, num == 200:
			return nil
		}
		r.Kind = Kind(num)
		switch r.Kind {
		case KindHistory, KindSummary:
			return d.items(data, r)
		case KindMetric:
			r.Metric = &Metric{}
			return d.metric(data, r.Metric)
		case KindRun:
			r.Run = &Run{}
			return d.run(data, r.Run)
		case KindExit:
			return fields(data, func(num protowire.Number, _ protowire.Type, _ []byte, u uint64) error {
				switch num {
				case 1:
					r.ExitCode = int32(u)
				case 2:
					r.Runtime = int32(u)
				case 3:
					r.NotComplete = u != 0
				}
				return nil
			})
		case KindHeader:
			return fields(data, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
				if num != 1 || typ != protowire.BytesType {
					return nil
				}
				return fields(data, func(num protowire.Number, _ protowire.Type, data []byte, _ uint64) error {
					if num == 1 {
						r.Producer = string(data)
					}
					return nil
				})
			})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("wandbfile: record of %d bytes: %w", len(b), err)
	}
	return nil
}

func (d *decoder) items(b []byte, r *Record) error {
	history := r.Kind == KindHistory
	return fields(b, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
		switch {
		case typ != protowire.BytesType:
		case num == 1:
			it, err := d.item(data)
			if err != nil {
				return err
			}
			r.Items = append(r.Items, it)
		case num == 2 && history:
			r.HasStep = true
			return fields(data, func(num protowire.Number, _ protowire.Type, _ []byte, u uint64) error {
				if num == 1 {
					r.Step = int64(u)
				}
				return nil
			})
		}
		return nil
	})
}

func (d *decoder) item(b []byte) (Item, error) {
	var it Item
	err := fields(b, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
		switch {
		case typ != protowire.BytesType:
		case num == 1:
			it.Key = d.key(data)
		case num == 2:
			it.Nested = append(it.Nested, d.key(data))
		case num == 16:
			it.JSON = string(data)
		}
		return nil
	})
	return it, err
}

func (d *decoder) metric(b []byte, m *Metric) error {
	return fields(b, func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error {
		switch num {
		case 1:
			m.Name = string(data)
		case 2:
			m.Glob = string(data)
		case 4:
			m.StepMetric = string(data)
		case 6:
			return fields(data, func(num protowire.Number, typ protowire.Type, _ []byte, u uint64) error {
				switch num {
				case 1:
					m.StepSync = u != 0
				case 2:
					m.Hidden = u != 0
				}
				return nil
			})
		case 10:
			m.Expanded = u != 0
		}
		return nil
	})
}

func (d *decoder) run(b []byte, r *Run) error {
	return fields(b, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
		if typ != protowire.BytesType {
			return nil
		}
		switch num {
		case 1:
			r.ID = string(data)
		case 2:
			r.Entity = string(data)
		case 3:
			r.Project = string(data)
		case 4:
			return fields(data, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
				if num != 1 || typ != protowire.BytesType {
					return nil
				}
				it, err := d.item(data)
				r.Config = append(r.Config, it)
				return err
			})
		case 6:
			r.Group = string(data)
		case 7:
			r.JobType = string(data)
		case 8:
			r.DisplayName = string(data)
		case 9:
			r.Notes = string(data)
		case 10:
			r.Tags = append(r.Tags, string(data))
		case 13:
			r.Host = string(data)
		case 17:
			var sec, nsec int64
			err := fields(data, func(num protowire.Number, _ protowire.Type, _ []byte, u uint64) error {
				switch num {
				case 1:
					sec = int64(u)
				case 2:
					nsec = int64(u)
				}
				return nil
			})
			r.StartTime = time.Unix(sec, nsec).UTC()
			return err
		}
		return nil
	})
}
