package fpm

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// contractCase is a message as Python's msgpack writes it; see testdata/contract.py.
type contractCase struct {
	Name    string
	Hex     string
	Means   json.RawMessage
	Layout  *string
	Refused *Reason
}

func contract(t testing.TB) []contractCase {
	t.Helper()
	var out []contractCase
	if err := json.Unmarshal(file(t, "testdata/contract.json"), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func file(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// same compares JSON by what it means, numbers exactly.
func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	var g, w Pass
	var d Decoder
	if err := d.DecodeJSON(got, &g); err != nil {
		t.Fatalf("%s: our own JSON: %v\n%s", what, err, got)
	}
	if err := d.DecodeJSON(want, &w); err != nil {
		t.Fatalf("%s: the expected JSON: %v\n%s", what, err, want)
	}
	if g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestContract(t *testing.T) {
	layouts := map[string]Layout{"default": {}, "v0": {V0: true}, "no queue": {NoQueue: true}}
	for _, c := range contract(t) {
		t.Run(c.Name, func(t *testing.T) {
			payload := unhex(t, c.Hex)
			var d Decoder
			var p Pass
			err := d.Decode(payload, &p)
			if c.Refused != nil {
				var e *Error
				if !errors.As(err, &e) || e.Reason != *c.Refused {
					t.Fatalf("got %v, want it refused as %s", err, *c.Refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			same(t, "read", got, c.Means)
			if c.Layout != nil {
				if ours := p.Append(nil, layouts[*c.Layout]); !bytes.Equal(ours, payload) {
					t.Errorf("written:\n got %x\nwant %x", ours, payload)
				}
			}
		})
	}
}

func pythonWithMsgpack(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import msgpack").Run() == nil {
			return p
		}
	}
	if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
		t.Fatal("python3-msgpack is needed to write and read messages independently")
	}
	t.Skip("python3-msgpack is not installed; testdata/contract.json is what it wrote")
	return ""
}

// The golden bytes are what Python's msgpack writes today.
func TestContractIsPythons(t *testing.T) {
	python := pythonWithMsgpack(t)
	got, err := exec.Command(python, "testdata/contract.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := file(t, "testdata/contract.json"); !bytes.Equal(got, want) {
		t.Error("testdata/contract.py writes something else than testdata/contract.json: write it anew and look at the difference")
	}
}

// What Python's msgpack reads of our bytes is what they were written from.
func TestPythonReadsOurs(t *testing.T) {
	python := pythonWithMsgpack(t)
	p := sample()
	var in bytes.Buffer
	layouts := []Layout{{}, {V0: true}, {NoQueue: true}, {Wide: true}, {Wide: true, V0: true}}
	for _, l := range layouts {
		in.WriteString(hex.EncodeToString(p.Append(nil, l)) + "\n")
	}
	cmd := exec.Command(python, "-c", `
import sys, json, msgpack
for line in sys.stdin:
    print(json.dumps(msgpack.unpackb(bytes.fromhex(line))))`)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) != len(layouts) {
		t.Fatalf("%d lines, want %d", len(lines), len(layouts))
	}
	for i, l := range layouts {
		var d Decoder
		var got, want Pass
		if err := d.DecodeJSON(lines[i], &got); err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(p.Append(nil, l), &want); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%+v:\n got %+v\nwant %+v", l, got, want)
		}
	}
}

func sample() Pass {
	return Pass{
		Has: HasVersion | HasCounter | HasWall | HasScheduled | HasQueued, Version: 1, WorkerID: "7587888160958627365", Rank: 3, Counter: 1<<63 + 5,
		Wall: 0.0125, Scheduled: Scheduled{1, 512, 2.5, 128, 64, 1 << 40, 1e6}, Queued: Queued{7, 90000, 0.1, 3, 4096, 7.75},
	}
}

func TestRoundTrip(t *testing.T) {
	for _, scope := range []string{"", "execute_model_cuda"} {
		for bits := range 32 {
			l := Layout{V0: bits&1 != 0, Positional: bits&2 != 0, NoQueue: bits&4 != 0, Wide: bits&8 != 0, Future: bits&16 != 0}
			p := sample()
			p.TimingScope = scope
			want := p
			if l.V0 {
				want.Version, want.Counter, want.Has = 0, 0, want.Has&^(HasVersion|HasCounter)
			}
			if l.NoQueue {
				want.Queued, want.Has = Queued{}, want.Has&^HasQueued
			}
			if want.Positional = l.Positional; l.Positional {
				want.TimingScope = ""
			}
			if l.Future {
				want.Skipped = 3
				if l.Positional && l.NoQueue {
					want.Skipped = 2
				}
			}
			b := p.Append([]byte("before"), l)[len("before"):]
			d := Decoder{Positional: true}
			var got Pass
			if err := d.Decode(b, &got); err != nil {
				t.Fatalf("%+v: %v\n%x", l, err, b)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v:\n got %+v\nwant %+v", l, got, want)
			}
			err := new(Decoder).Decode(b, &got)
			if (err != nil) != l.Positional {
				t.Errorf("%+v, positional not allowed: %v", l, err)
			}
			// Each cut is refused, and as what it is.
			for n := range b {
				var e *Error
				if err := d.Decode(b[:n], &got); !errors.As(err, &e) || e.Reason != Truncated && e.Reason != Empty {
					t.Fatalf("%+v cut at %d: %v", l, n, err)
				}
			}
		}
	}
}

// captures are real messages, beside the tree where they may be read.
const captures = "../../../shared/fixtures/captures/dynamo"

func TestCaptures(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(captures, "fpm_*.msgpack"))
	if len(files) == 0 {
		t.Skip("the captures are not here")
	}
	var means map[string]json.RawMessage
	if err := json.Unmarshal(file(t, filepath.Join(captures, "fpm_decoded.json")), &means); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{
		"fpm_v1_active": "active", "fpm_v1_heartbeat": "heartbeat", "fpm_v0_no_version": "v0",
		"fpm_v1_vllm_native_timing_scope": "vllm_native", "fpm_v1_future_extra_keys": "future",
	}
	refused := map[string]Reason{"fpm_array_must_be_rejected": Array, "fpm_v2_must_be_skipped": Versioned}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".msgpack")
		b := file(t, path)
		if text := unhex(t, string(file(t, strings.TrimSuffix(path, ".msgpack")+".hex"))); !bytes.Equal(text, b) {
			t.Errorf("%s: its two files differ", name)
		}
		var d Decoder
		var p Pass
		err := d.Decode(b, &p)
		if reason, bad := refused[name]; bad {
			var e *Error
			if !errors.As(err, &e) || e.Reason != reason {
				t.Errorf("%s: %v, want it refused as %s", name, err, reason)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if names[name] == "" {
			t.Errorf("%s: what it means is not known to this test", name)
			continue
		}
		got, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		same(t, name, got, means[names[name]])
		if wantSkipped := map[bool]uint16{true: 2}[names[name] == "future"]; p.Skipped != wantSkipped {
			t.Errorf("%s: %d keys passed over, want %d", name, p.Skipped, wantSkipped)
		}
	}
}

// The messages inside the exporter's lines and the trace files' records are read as well.
func TestCapturesInJSON(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(captures, "fpm_*.*json*"))
	n := 0
	for _, path := range files {
		if filepath.Base(path) == "fpm_decoded.json" {
			continue
		}
		for _, line := range bytes.Split(bytes.TrimSpace(file(t, path)), []byte("\n")) {
			var in struct {
				Metrics json.RawMessage
				Event   struct{ FPM json.RawMessage }
			}
			if err := json.Unmarshal(line, &in); err != nil {
				t.Fatal(path, err)
			}
			message := append(in.Metrics, in.Event.FPM...)
			var p Pass
			if err := new(Decoder).DecodeJSON(message, &p); err != nil {
				t.Fatal(path, err)
			}
			got, err := p.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			same(t, path, got, message)
			if p.Version != 1 || p.Counter < 42 || p.Has&HasQueued == 0 {
				t.Errorf("%s: %+v", path, p)
			}
			n++
		}
	}
	if n == 0 {
		t.Skip("the captures are not here")
	}
}

// Case F01: arrays and maps, shorter and longer than known.
func TestCaseF01(t *testing.T) {
	var msgs map[string]string
	if err := json.Unmarshal(file(t, "testdata/F01/msgs.json"), &msgs); err != nil {
		t.Fatal(err)
	}
	want := file(t, "testdata/F01/expected.json")
	tracker := NewTracker(Options{})
	d := Decoder{Positional: true}
	var full Pass
	if err := d.DecodeJSON(want, &full); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"array", "map", "garbage", "short", "longer"} {
		payload := unhex(t, msgs[name])
		before := bytes.Clone(payload)
		var p Pass
		err := d.Decode(payload, &p)
		if !bytes.Equal(payload, before) {
			t.Errorf("%s: the payload was changed", name)
		}
		if name == "garbage" {
			tracker.Refuse(1e9, "engine-a", err)
			if err == nil {
				t.Error("garbage was read")
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tracker.Observe(1e9, Origin{Source: "engine-a"}, &p)
		expected := full
		expected.Positional = name != "map"
		switch name {
		case "short":
			if p.Has&HasQueued != 0 {
				t.Error("short: a queue that it has not is not marked so")
			}
			expected.Queued, expected.Has = Queued{}, expected.Has&^HasQueued
		case "longer":
			expected.Skipped = 3
		}
		if p != expected {
			t.Errorf("%s:\n got %+v\nwant %+v", name, p, expected)
		}
	}
	// Garbage is counted and did not stop the stream.
	if got, want := tracker.Drops(), []Drop{{"engine-a", Malformed, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("drops %+v, want %+v", got, want)
	}
	if s := tracker.Source("engine-a"); s.Messages != 4 {
		t.Errorf("%d messages, want 4", s.Messages)
	}
	// A source that is not configured so refuses arrays, and says so.
	for _, name := range []string{"array", "short", "longer"} {
		var e *Error
		if err := new(Decoder).Decode(unhex(t, msgs[name]), new(Pass)); !errors.As(err, &e) || e.Reason != Array {
			t.Errorf("%s: %v, want it refused as %s", name, err, Array)
		}
	}
}

func TestPositionalForms(t *testing.T) {
	d := Decoder{Positional: true}
	for hexed, want := range map[string]Reason{
		"90":                             Truncated, // no items
		"92a3772d3100":                   Truncated, // ends before wall_time
		"93a3772d3100cb3f9999999999999a": "",
		"9502a17700010203":               Versioned,
		"9501a17700072a":                 "",   // wall_time as an integer
		"93c000cb3f9999999999999a":       Type, // neither an id nor a version
	} {
		err := d.Decode(unhex(t, hexed), new(Pass))
		var e *Error
		errors.As(err, &e)
		if (err == nil) != (want == "") || e != nil && e.Reason != want {
			t.Errorf("%s: %v, want %q", hexed, err, want)
		}
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	for in, want := range map[string]Reason{
		"":                       Empty,
		" \n":                    Empty,
		"{":                      Malformed,
		`{"wall_time":NaN}`:      Malformed,
		`[1]`:                    NotAMap,
		`"x"`:                    NotAMap,
		`{"version":2}`:          Versioned,
		`{"version":"1"}`:        Type,
		`{"worker_id":7}`:        Type,
		`{"dp_rank":-1}`:         Value,
		`{"dp_rank":1e9}`:        Value,
		`{"counter_id":1.5}`:     Type,
		`{"wall_time":-1}`:       Value,
		`{"wall_time":"0.1"}`:    Type,
		`{"counter_id":1e400}`:   Type,
		`{"queued_requests":[]}`: Type,
	} {
		var e *Error
		if err := new(Decoder).DecodeJSON([]byte(in), new(Pass)); !errors.As(err, &e) || e.Reason != want {
			t.Errorf("%s: %v, want it refused as %s", in, err, want)
		}
	}
	var e *Error
	if err := new(Decoder).DecodeJSON(make([]byte, MaxPayload+1), new(Pass)); !errors.As(err, &e) || e.Reason != TooLarge {
		t.Error(err)
	}
	if err := new(Decoder).Decode(make([]byte, MaxPayload+1), new(Pass)); !errors.As(err, &e) || e.Reason != TooLarge {
		t.Error(err)
	}
}

// Ids and counters beyond 2^53 are exact on every way.
func TestLargeNumbersAreExact(t *testing.T) {
	const id, counter = "7587888160958627365", 1<<53 + 1
	var p Pass
	if err := new(Decoder).DecodeJSON([]byte(`{"worker_id":"`+id+`","counter_id":9007199254740993,"wall_time":0}`), &p); err != nil {
		t.Fatal(err)
	}
	if p.WorkerID != id || p.Counter != counter {
		t.Errorf("JSON: %s %d", p.WorkerID, p.Counter)
	}
	b := p.Append(nil, Layout{})
	var q Pass
	if err := new(Decoder).Decode(b, &q); err != nil || q.WorkerID != id || q.Counter != counter {
		t.Errorf("MessagePack: %s %d %v", q.WorkerID, q.Counter, err)
	}
}

func TestParseWorkerID(t *testing.T) {
	const n = 7587888160958627365
	for _, c := range []struct {
		id   string
		form IDForm
		want uint64
		ok   bool
	}{
		{"7587888160958627365", DecimalID, n, true},
		{"694d98147d54be25", HexID, n, true},
		{"0x694D98147D54BE25", HexID, n, true},
		{"694d98147d54be25", AnyID, n, true},
		{"0x10", AnyID, 16, true},
		{"10", DecimalID, 10, true},
		{"10", HexID, 16, true},
		{"10", AnyID, 0, false},                  // which of both?
		{"7587888160958627365", AnyID, 0, false}, // more than 16 digits can only be decimal, but needs to be said
		{"18446744073709551615", DecimalID, 1<<64 - 1, true},
		{"18446744073709551616", DecimalID, 0, false},
		{"ffffffffffffffff", HexID, 1<<64 - 1, true},
		{"", DecimalID, 0, false}, {"", HexID, 0, false}, {"", AnyID, 0, false}, {"0x", HexID, 0, false},
		{"w-1", DecimalID, 0, false}, {"w-1", AnyID, 0, false},
		{"+1", DecimalID, 0, false}, {"-1", DecimalID, 0, false}, {"+f", HexID, 0, false}, {"1_0", DecimalID, 0, false},
		{"0x10", DecimalID, 0, false},
	} {
		got, err := ParseWorkerID(c.id, c.form)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ParseWorkerID(%q, %d) = %d, %v", c.id, c.form, got, err)
		}
	}
	if HexWorkerID(n) != "694d98147d54be25" {
		t.Error(HexWorkerID(n))
	}
	if !SameWorker("7587888160958627365", "694d98147d54be25") || SameWorker("10", "a0") || SameWorker("", "") || SameWorker("w", "w") || SameWorker("1", "") {
		t.Error("joined wrongly")
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range contract(f) {
		f.Add(unhex(f, c.Hex), false)
		f.Add(unhex(f, c.Hex), true)
	}
	p := sample()
	for bits := range 32 {
		f.Add(p.Append(nil, Layout{V0: bits&1 != 0, Positional: bits&2 != 0, NoQueue: bits&4 != 0, Wide: bits&8 != 0, Future: bits&16 != 0}), true)
	}
	f.Fuzz(func(t *testing.T, payload []byte, positional bool) {
		before := bytes.Clone(payload)
		d := Decoder{Positional: positional}
		var p Pass
		err := d.Decode(payload, &p)
		if !bytes.Equal(before, payload) {
			t.Fatal("the payload was changed")
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Reason == "" || e.Detail == "" || e.Offset < 0 || e.Offset > len(payload) {
				t.Fatalf("%#v", err)
			}
			return
		}
		if p.Wall < 0 || p.Wall != p.Wall || p.Version > Version || p.Positional && !positional {
			t.Fatalf("%+v", p)
		}
		// What was read is read again of what is written of it, in both forms.
		text, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again := p
		again.Positional, again.Skipped = false, 0
		var q Pass
		if err := d.DecodeJSON(text, &q); err != nil || q != again {
			t.Fatalf("%v\n%s\n got %+v\nwant %+v", err, text, q, again)
		}
		l := Layout{V0: p.Has&HasVersion == 0, NoQueue: p.Has&HasQueued == 0}
		if err := new(Decoder).Decode(p.Append(nil, l), &q); err != nil {
			t.Fatal(err)
		}
		q.Has, again.Has = 0, 0
		if l.V0 {
			again.Counter = 0
		}
		again.Version = q.Version
		if q != again {
			t.Fatalf("\n got %+v\nwant %+v", q, again)
		}
	})
}

func FuzzDecodeJSON(f *testing.F) {
	for _, c := range contract(f) {
		if c.Means != nil {
			f.Add([]byte(c.Means))
		}
	}
	f.Add([]byte(`{"version":1,"worker_id":"w","dp_rank":2.0,"counter_id":9007199254740993,"wall_time":1e-3,"scheduled_requests":{"num_prefill_requests":null}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var p, q Pass
		err := new(Decoder).DecodeJSON(in, &p)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Reason == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		text, err := p.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Decoder).DecodeJSON(text, &q); err != nil || p != q {
			t.Fatalf("%v\n got %+v\nwant %+v", err, q, p)
		}
	})
}

func TestKeysSayHowLongTheyAre(t *testing.T) {
	for _, k := range append(messageKeys[:], partKeys[:]...) {
		w := writer{}
		w.text(k[1:])
		if string(w.b) != k {
			t.Errorf("%q, want %q", k, w.b)
		}
	}
}

// Reading messages of known workers costs no memory, however many workers there are.
func TestDecodeDoesNotAllocate(t *testing.T) {
	var payloads [][]byte
	for _, id := range []string{"7587888160958627365", "7587888160958627366", ""} {
		p := sample()
		p.WorkerID, p.TimingScope = id, "execute_model_cuda"
		payloads = append(payloads, p.Append(nil, Layout{}), p.Append(nil, Layout{Positional: true}))
	}
	d := Decoder{Positional: true}
	var out Pass
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range payloads {
			if err := d.Decode(b, &out); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	// Names that never come again are not kept for ever.
	for i := range 3 * maxNames {
		p := Pass{WorkerID: strconv.Itoa(i)}
		if err := d.Decode(p.Append(nil, Layout{}), &out); err != nil || out.WorkerID != p.WorkerID {
			t.Fatal(err, out.WorkerID)
		}
	}
	if len(d.names) > maxNames {
		t.Errorf("%d names are kept", len(d.names))
	}
}

func BenchmarkDecode(b *testing.B) {
	p := sample()
	idle := Pass{WorkerID: p.WorkerID, Counter: 43}
	for _, c := range []struct {
		name       string
		payload    []byte
		positional bool
	}{
		{"pass", p.Append(nil, Layout{}), false},
		{"heartbeat", idle.Append(nil, Layout{}), false},
		{"positional", p.Append(nil, Layout{Positional: true}), true},
		{"wide", p.Append(nil, Layout{Wide: true, Future: true}), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := Decoder{Positional: c.positional}
			var out Pass
			b.ReportAllocs()
			b.SetBytes(int64(len(c.payload)))
			for b.Loop() {
				if err := d.Decode(c.payload, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkJSON is the same message read by encoding/json into a struct: what a consumer of the exporter's
// lines would write.
func BenchmarkJSON(b *testing.B) {
	p := sample()
	text, err := p.MarshalJSON()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		var out struct {
			Version   int                `json:"version"`
			WorkerID  string             `json:"worker_id"`
			Rank      int                `json:"dp_rank"`
			Counter   uint64             `json:"counter_id"`
			Wall      float64            `json:"wall_time"`
			Scheduled map[string]float64 `json:"scheduled_requests"`
			Queued    map[string]float64 `json:"queued_requests"`
		}
		if err := json.Unmarshal(text, &out); err != nil || len(out.Scheduled) == 0 {
			b.Fatal(err, len(out.Scheduled))
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	p := sample()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = p.Append(buf[:0], Layout{})
	}
	b.SetBytes(int64(len(buf)))
}
