package request

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// stored is a row as the store gives it back.
func stored(r *event.Row) []event.Field {
	out := []event.Field{{Name: "_time", Value: time.Unix(0, r.Time).UTC().Format(time.RFC3339Nano)}, {Name: "_msg", Value: r.Message}, {Name: "row", Value: string(r.Kind)}}
	if r.Service != "" {
		out = append(out, event.Field{Name: "service", Value: r.Service})
	}
	if r.Engine != "" {
		out = append(out, event.Field{Name: "engine", Value: r.Engine})
	}
	return append(out, r.Fields...)
}

func TestRowsComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	yes, no := true, false
	extra := []Observation{
		{Source: FromUnknown},
		{Source: FromExport, Start: 1, Streaming: &yes, Error: "line\nbreak \"quoted\" \x00", Aliases: alias("rid", "a", "rid", "b", "x_request_id", "ü")},
		{Source: FromDynamo, Streaming: &no, Queue: Value{math.NaN(), Invalid}, E2E: Value{-1e300, Invalid}, TTFT: known(0.333333333333333), WeightVersion: "v1"},
	}
	var row event.Row
	for i := range 200 {
		obs := madeCall(rng, i).obs
		if i < len(extra) {
			obs = extra[i : i+1]
		}
		for k := range obs {
			o := &obs[k]
			o.Row(&row, base)
			if o.Start == 0 && row.Time != base {
				t.Fatalf("a row without time is at %d", row.Time)
			}
			got, err := ObservationFromRow(stored(&row))
			if err != nil {
				t.Fatal(err)
			}
			if got.Key() != o.Key() || row.Get("key") != o.Key() {
				t.Fatalf("%+v\nwas %+v", got, *o)
			}
			seen := map[string]bool{}
			for _, f := range stored(&row) {
				if seen[f.Name] || f.Value == "" {
					t.Fatalf("field %q twice or empty in %v", f.Name, row)
				}
				seen[f.Name] = true
			}
		}
		if back := unpack(pack(canonical(obs))); len(back) != len(obs) || back[0].o.Key() != back[0].key {
			t.Fatalf("packed %d, unpacked %d", len(obs), len(back))
		}
		s := Merge(obs)
		s.ID, s.Revision, s.Time = "r1", 3, base+5
		s.Probable = []Probable{{"r2", "", "why\""}}
		s.Row(&row)
		got, err := FromRow(stored(&row))
		if err != nil {
			t.Fatal(err)
		}
		if got.print() != s.print() {
			t.Fatalf("%+v\nwas %+v", got, s)
		}
		s.Others = nil
		for n := range NumNumbers { // NaN is not equal to itself
			if math.IsNaN(s.Numbers[n].V) && math.IsNaN(got.Numbers[n].V) {
				s.Numbers[n].V, got.Numbers[n].V = 0, 0
			}
		}
		if !reflect.DeepEqual(got, s) {
			t.Fatalf("%+v\nwas %+v", got, s)
		}
	}
}

// The event store gives fractions back with an error in the last digits.
func TestNumbersBearWhatTheStoreDoes(t *testing.T) {
	for _, v := range []float64{0, 1.9, 0.1, 1.0 / 3, 2.0 / 3, 1e6, 123456789.123456789, 1e-7, 1.5e300, -0.002, 4096, 3.9290320515, 1 << 52} {
		text := plain(v)
		want, ok := ParseStored(text)
		if !ok || math.Abs(want-v) > 1e-14*math.Abs(v) {
			t.Errorf("%v is written as %s and read as %v", v, text, want)
		}
		for _, near := range []float64{math.Nextafter(want, 2*want), math.Nextafter(want, 0)} {
			if got, _ := ParseStored(strconv.FormatFloat(near, 'g', -1, 64)); got != want || plain(near) != text {
				t.Errorf("%v is read as %v, want %v", near, got, want)
			}
		}
	}
	for _, bad := range []string{"", "x", "NaN", "inf", "1e999"} {
		if _, ok := ParseStored(bad); ok {
			t.Errorf("%q is a number", bad)
		}
	}
}

func TestEndedRowComesBack(t *testing.T) {
	s := Settled{ID: "r1", Revision: 2, Into: "r0", Time: base, Keys: []string{"a", "b"}}
	var row event.Row
	s.Row(&row)
	got, err := FromRow(stored(&row))
	if err != nil || got.Into != "r0" || got.ID != "r1" || got.Revision != 2 || !slices.Equal(got.Keys, s.Keys) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestRowErrorsNameTheField(t *testing.T) {
	for _, f := range []event.Field{{Name: "_time", Value: "yesterday"}, {Name: "ttft", Value: "fast"}, {Name: "finish", Value: "x"}, {Name: "spans", Value: "1.5"}} {
		if _, err := ObservationFromRow([]event.Field{{Name: "key", Value: "k1"}, f}); err == nil || err.(*FieldError).Field != f.Name || err.(*FieldError).ID != "k1" {
			t.Errorf("%s: %v", f.Name, err)
		}
		if _, err := FromRow([]event.Field{{Name: "id", Value: "r1"}, f}); err == nil || err.(*FieldError).Field != f.Name || err.(*FieldError).ID != "r1" {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

func FuzzRows(f *testing.F) {
	f.Add("ttft", "1", "rid.2", "x")
	f.Add("invalid.queue", "NaN", "_time", "2026-01-02T15:04:05Z")
	f.Add("probable", "[{}]", "from", "trace:ttft,e2e dump:step")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		fields := []event.Field{{Name: n1, Value: v1}, {Name: n2, Value: v2}}
		if o, err := ObservationFromRow(fields); err == nil {
			o.Key()
			var r event.Row
			o.Row(&r, base)
		}
		if s, err := FromRow(fields); err == nil {
			var r event.Row
			s.Row(&r)
		}
	})
}
