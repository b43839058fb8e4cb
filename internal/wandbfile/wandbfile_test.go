package wandbfile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

func sample() []*Record {
	return []*Record{
		{Kind: KindHeader, Producer: "0.20.0"},
		{Kind: KindRun, Run: &Run{
			ID: "ab12cd34", Entity: "team", Project: "math", Group: "g", JobType: "rollscope", DisplayName: "größe", Notes: "n", Host: "node1",
			Tags: []string{"rl", "a b"}, Config: []Item{{Key: "gpus", JSON: "8"}, {Key: "note", JSON: `"x"`}},
			StartTime: time.Unix(1780000000, 250).UTC(),
		}},
		{Kind: KindMetric, Metric: &Metric{Name: "rollout/step"}},
		{Kind: KindMetric, Metric: &Metric{Glob: "rollout/*", StepMetric: "rollout/step"}},
		{Kind: KindMetric, Metric: &Metric{Name: "rollout/reward", StepMetric: "rollout/step", Expanded: true, Hidden: true, StepSync: true}},
		{Kind: KindHistory, HasStep: true, Step: 0, Items: []Item{{Key: "_step", JSON: "0"}, {Key: "rollout/reward", JSON: "NaN"}}},
		{Kind: KindHistory, HasStep: true, Step: 1, Items: []Item{{Nested: []string{"a", "b"}, JSON: "1.5"}}},
		{Kind: KindHistory, Items: []Item{{Key: "long", JSON: `"` + strings.Repeat("x", 100<<10) + `"`}}},
		{Kind: KindSummary, Items: []Item{{Key: "_step", JSON: "1"}}},
		{Kind: KindExit, ExitCode: 1, Runtime: 90, NotComplete: true},
		{Kind: KindFooter},
	}
}

func encode(t testing.TB, records []*Record) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := NewWriter(&buf, 0, 0)
	for _, r := range records {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if w.Offset() != int64(buf.Len()) || w.Num() != int64(len(records)) {
		t.Fatalf("Offset %d, Num %d; wrote %d bytes, %d records", w.Offset(), w.Num(), buf.Len(), len(records))
	}
	return buf.Bytes()
}

func readAll(r *Reader) (out []*Record, damaged []*CorruptError, end error) {
	for {
		rec, err := r.Next()
		var c *CorruptError
		if errors.As(err, &c) {
			damaged = append(damaged, c)
			continue
		}
		if err != nil {
			return out, damaged, err
		}
		dup := *rec
		dup.Items = append([]Item(nil), rec.Items...)
		out = append(out, &dup)
	}
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	data := encode(t, want)
	for name, in := range map[string]io.Reader{"whole": bytes.NewReader(data), "in halves": iotest.HalfReader(bytes.NewReader(data))} {
		r := NewReader(in, Options{})
		got, damaged, err := readAll(r)
		if err != io.EOF || len(damaged) > 0 {
			t.Fatalf("%s: %v, %v", name, damaged, err)
		}
		if !reflect.DeepEqual(got, want) {
			for i := range min(len(got), len(want)) {
				if !reflect.DeepEqual(got[i], want[i]) {
					t.Errorf("%s: record %d: got %+v, want %+v", name, i, got[i], want[i])
				}
			}
			t.Errorf("%s: %d records, want %d", name, len(got), len(want))
		}
		if r.Offset() != int64(len(data)) {
			t.Errorf("%s: Offset = %d, want %d", name, r.Offset(), len(data))
		}
	}
	// Together is the same as one by one.
	var buf bytes.Buffer
	if err := NewWriter(&buf, 0, 0).Write(sample()...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), data) {
		t.Error("records written together differ from those written one by one")
	}
}

// Every length around a block's end: chunks that fill it, that leave 1 to 7 bytes, that begin in it.
func TestBlockEdges(t *testing.T) {
	for fill := blockLen - 60; fill < blockLen+20; fill++ {
		frame := appendFramed([]byte(fileHeader), int64(len(fileHeader)), bytes.Repeat([]byte{1}, fill-2*chunkHead))
		for _, n := range []int{0, 1, 5, blockLen, 2*blockLen + 3} {
			data := bytes.Clone(frame)
			body := bytes.Repeat([]byte{2}, n)
			data = appendFramed(data, int64(len(data)), body)
			r := NewReader(bytes.NewReader(data), Options{})
			if err := r.header(); err != nil {
				t.Fatal(err)
			}
			if _, first, err := r.next(); err != nil || len(first) != fill-2*chunkHead {
				t.Fatalf("fill %d: %d bytes, %v", fill, len(first), err)
			}
			at := r.Offset()
			if _, second, err := r.next(); err != nil || !bytes.Equal(second, body) {
				t.Fatalf("fill %d, then %d: got %d bytes, %v", fill, n, len(second), err)
			}
			if _, _, err := r.next(); err != io.EOF || r.Offset() != int64(len(data)) {
				t.Fatalf("fill %d, then %d: %v at %d of %d", fill, n, err, r.Offset(), len(data))
			}
			// And from the offset between them.
			r = NewReader(bytes.NewReader(data[at:]), Options{Offset: at})
			if _, second, err := r.next(); err != nil || !bytes.Equal(second, body) {
				t.Fatalf("fill %d, resumed at %d: got %d bytes, %v", fill, at, len(second), err)
			}
		}
	}
}

func TestCutAnywhere(t *testing.T) {
	want := sample()
	data := encode(t, want)
	for cut := 0; cut <= len(data); cut++ {
		if cut > 700 && cut < len(data)-60 && cut%blockLen > 20 && cut%blockLen < blockLen-20 && cut%9973 != 0 {
			continue
		}
		r := NewReader(bytes.NewReader(data[:cut]), Options{})
		got, damaged, err := readAll(r)
		if len(damaged) > 0 || err != io.EOF && !errors.Is(err, ErrCut) {
			t.Fatalf("cut %d: %v %v", cut, damaged, err)
		}
		if err == io.EOF && r.Offset() != int64(cut) {
			t.Fatalf("cut %d: end at %d", cut, r.Offset())
		}
		rest, _, err := readAll(NewReader(bytes.NewReader(data[r.Offset():]), Options{Offset: r.Offset()}))
		if err != io.EOF || !reflect.DeepEqual(append(got, rest...), want) {
			t.Fatalf("cut %d: resuming at %d: %v, %d + %d records", cut, r.Offset(), err, len(got), len(rest))
		}
		// A writer that appends after the cut makes a good file.
		var buf bytes.Buffer
		buf.Write(data[:r.Offset()])
		w := NewWriter(&buf, r.Offset(), int64(len(got)))
		for _, rec := range want[len(got):] {
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(buf.Bytes(), data) {
			t.Fatalf("cut %d: appending gives another file", cut)
		}
	}
}

func TestDamage(t *testing.T) {
	var records []*Record
	for i := range 3000 {
		records = append(records, &Record{Kind: KindHistory, HasStep: true, Step: int64(i), Items: []Item{{Key: "loss", JSON: NumberJSON(float64(i))}, {Key: "text", JSON: `"` + strings.Repeat("y", i%50) + `"`}}})
	}
	data := encode(t, records)
	if len(data) < 4*blockLen {
		t.Fatalf("%d bytes are too few for the test", len(data))
	}
	for at := len(fileHeader); at < len(data); at += 509 {
		bad := bytes.Clone(data)
		bad[at] ^= 0x10
		got, damaged, err := readAll(NewReader(bytes.NewReader(bad), Options{}))
		if err != io.EOF {
			t.Fatalf("byte %d: %v", at, err)
		}
		if len(damaged) == 0 || damaged[0].Offset > int64(at) || !strings.Contains(damaged[0].Error(), fmt.Sprint(damaged[0].Offset)) {
			t.Fatalf("byte %d: %v", at, damaged)
		}
		block := at / blockLen
		for _, r := range got {
			if r.Items[0].JSON != NumberJSON(float64(r.Step)) {
				t.Fatalf("byte %d: a wrong row: %+v", at, r)
			}
		}
		// Every row of other blocks is there: at most the damaged block's rows and the two at its edges are not.
		if lost := len(records) - len(got); lost > 1000 {
			t.Fatalf("byte %d in block %d: %d of %d rows lost", at, block, lost, len(records))
		}
	}
}

func TestWriterThatDiedInsideARecord(t *testing.T) {
	long := encode(t, []*Record{{Kind: KindHistory, Items: []Item{{Key: "a", JSON: `"` + strings.Repeat("x", 40000) + `"`}}}})
	data := appendFramed(bytes.Clone(long[:blockLen]), blockLen, mustRecord(t, &Record{Kind: KindHistory, Step: 5, HasStep: true}))
	got, damaged, err := readAll(NewReader(bytes.NewReader(data), Options{}))
	if err != io.EOF || len(damaged) != 1 || damaged[0].Offset != int64(len(fileHeader)) || len(got) != 1 || got[0].Step != 5 {
		t.Errorf("%v, %v, %v", got, damaged, err)
	}
}

func mustRecord(t *testing.T, r *Record) []byte {
	b, err := AppendRecord(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHoles(t *testing.T) {
	data := encode(t, sample()[:3])
	r := NewReader(bytes.NewReader(append(bytes.Clone(data), make([]byte, 500)...)), Options{})
	got, damaged, err := readAll(r)
	if !errors.Is(err, ErrCut) || len(damaged) > 0 || len(got) != 3 || r.Offset() != int64(len(data)) {
		t.Errorf("hole at the end: %d records, %v, offset %d, %v", len(got), damaged, r.Offset(), err)
	}
	full := append(bytes.Clone(data), make([]byte, blockLen-len(data))...)
	full = appendFramed(full, blockLen, mustRecord(t, &Record{Kind: KindFooter}))
	got, damaged, err = readAll(NewReader(bytes.NewReader(full), Options{}))
	if err != io.EOF || len(damaged) != 1 || len(got) != 4 {
		t.Errorf("hole in the middle: %d records, %v, %v", len(got), damaged, err)
	}
	r = NewReader(bytes.NewReader(make([]byte, len(data))), Options{})
	if got, damaged, err = readAll(r); !errors.Is(err, ErrCut) || len(damaged) > 0 || len(got) != 0 || r.Offset() != 0 {
		t.Errorf("nothing but a hole: %d records, %v, offset %d, %v", len(got), damaged, r.Offset(), err)
	}
}

func TestOtherKindsAreCounted(t *testing.T) {
	other := protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), []byte{0x0a, 0})
	data := appendFramed([]byte(fileHeader), int64(len(fileHeader)), other)
	data = appendFramed(data, int64(len(data)), nil) // an empty record
	data = appendFramed(data, int64(len(data)), mustRecord(t, &Record{Kind: KindFooter}))
	r := NewReader(bytes.NewReader(data), Options{})
	got, _, err := readAll(r)
	if err != io.EOF || len(got) != 1 || !reflect.DeepEqual(r.Skipped(), map[Kind]int64{7: 1, 0: 1}) {
		t.Errorf("%+v, skipped %v, %v", got, r.Skipped(), err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	data := encode(t, sample())
	r := NewReader(bytes.NewReader(data), Options{MaxRecord: 1000})
	got, _, err := readAll(r)
	if err != io.EOF || len(got) != len(sample())-1 || r.TooLarge() != 1 || cap(r.record) > 64<<10 {
		t.Errorf("%d records, too large %d, kept %d, %v", len(got), r.TooLarge(), cap(r.record), err)
	}
	if err := NewWriter(io.Discard, 0, 0).Write(&Record{Kind: KindHeader, Producer: strings.Repeat("x", MaxRecord)}); err == nil {
		t.Error("a record beyond the limit was written")
	}
}

func TestNotARunFile(t *testing.T) {
	for in, want := range map[string]string{"": "EOF", ":W&": "inside a record", "PK\x03\x04....": "not a W&B run file"} {
		_, err := NewReader(strings.NewReader(in), Options{}).Next()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestInvalidRecordsAreNotWritten(t *testing.T) {
	for _, r := range []*Record{{}, {Kind: KindRun}, {Kind: KindRun, Run: &Run{}}, {Kind: KindMetric, Metric: &Metric{}}, {Kind: KindMetric, Metric: &Metric{Name: "a", Glob: "b*"}}, {Kind: 7}} {
		var buf bytes.Buffer
		if err := NewWriter(&buf, 0, 0).Write(r); err == nil || buf.Len() > 0 {
			t.Errorf("%+v: %v, %d bytes", r, err, buf.Len())
		}
	}
}

type failing struct{ room int }

func (f *failing) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	if n < len(b) {
		return n, errors.New("no space left on device")
	}
	return n, nil
}

func TestErrorsOfTheOtherSide(t *testing.T) {
	w := NewWriter(&failing{room: 10}, 0, 0)
	if err := w.Write(sample()[0]); err == nil || !strings.Contains(err.Error(), "no space left") || w.Offset() != 0 || w.Num() != 0 {
		t.Errorf("%v, offset %d", err, w.Offset())
	}
	cause := errors.New("stale file handle")
	got, _, err := readAll(NewReader(io.MultiReader(bytes.NewReader(encode(t, sample()[:2])), iotest.ErrReader(cause)), Options{}))
	if len(got) != 2 || !errors.Is(err, cause) {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct {
		json string
		want float64
		ok   bool
	}{
		{"1", 1, true}, {"-1.5e3", -1500, true}, {"1e999", math.Inf(1), true}, {"NaN", math.NaN(), true}, {`"NaN"`, math.NaN(), true},
		{"Infinity", math.Inf(1), true}, {`"-Infinity"`, math.Inf(-1), true}, {"0x10", 0, false}, {"inf", 0, false}, {"1_0", 0, false},
		{`"1"`, 0, false}, {"", 0, false}, {"null", 0, false}, {"true", 0, false}, {`{"a":1}`, 0, false}, {"[1]", 0, false},
	} {
		it := Item{JSON: tc.json}
		got, ok := it.Number()
		if ok != tc.ok || fmt.Sprint(got) != fmt.Sprint(tc.want) && ok {
			t.Errorf("%q: %v %v, want %v %v", tc.json, got, ok, tc.want, tc.ok)
		}
	}
	for _, v := range []float64{0, 1, -1, 0.1, math.MaxFloat64, math.SmallestNonzeroFloat64, 1 << 60, math.NaN(), math.Inf(1), math.Inf(-1)} {
		it := Item{JSON: NumberJSON(v)}
		if got, ok := it.Number(); !ok || fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("%v became %q, %v", v, it.JSON, got)
		}
	}
	if s, ok := (&Item{JSON: `"a\nb"`}).Text(); !ok || s != "a\nb" {
		t.Errorf("%q %v", s, ok)
	}
	if _, ok := (&Item{JSON: "1"}).Text(); ok {
		t.Error("a number is a text")
	}
}

// A reader written from the format's description in another language reads what we write.
func TestIndependentReader(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("python3 is needed to read the file independently: ", err)
		}
		t.Skip("python3 is not installed: ", err)
	}
	records := sample()
	for i := range 500 { // several blocks
		records = append(records, &Record{Kind: KindHistory, HasStep: true, Step: int64(i + 2), Items: []Item{{Key: "train/loss", JSON: NumberJSON(1 / float64(i+1))}, {Key: "text", JSON: `"` + strings.Repeat("z", i) + `"`}}})
	}
	path := filepath.Join(t.TempDir(), "run-ab12cd34.wandb")
	if err := os.WriteFile(path, encode(t, records), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "testdata/read_wandb.py", path).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(records) {
		t.Fatalf("%d records, want %d", len(lines), len(records))
	}
	for i, line := range lines {
		want := describe(records[i])
		var got, wantAny any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &wantAny); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, wantAny) {
			t.Errorf("record %d:\ngot  %.300s\nwant %.300s", i, line, b)
		}
	}
	if err := os.WriteFile(path, append(encode(t, records), 1, 2, 3), 0o666); err != nil {
		t.Fatal(err)
	}
	if exec.Command(python, "testdata/read_wandb.py", path).Run() == nil {
		t.Error("the reader takes anything")
	}
}

// describe is a record as the Python reader prints it.
func describe(r *Record) map[string]any {
	out := map[string]any{"num": r.Num}
	items := func(list []Item) [][]string {
		l := [][]string{}
		for _, it := range list {
			l = append(l, []string{it.Name(), it.JSON})
		}
		return l
	}
	switch r.Kind {
	case KindHeader:
		out["header"] = r.Producer
	case KindRun:
		x := r.Run
		out["run"] = map[string]any{"id": x.ID, "entity": x.Entity, "project": x.Project, "group": x.Group, "job_type": x.JobType, "display_name": x.DisplayName,
			"notes": x.Notes, "host": x.Host, "tags": x.Tags, "config": items(x.Config), "start_time": []int64{x.StartTime.Unix(), int64(x.StartTime.Nanosecond())}}
	case KindMetric:
		m := map[string]any{}
		o := map[string]int{"3": 1}
		set := func(key, v string) {
			if v != "" {
				m[key] = v
			}
		}
		set("name", r.Metric.Name)
		set("glob", r.Metric.Glob)
		set("step_metric", r.Metric.StepMetric)
		if r.Metric.StepSync {
			o["1"] = 1
		}
		if r.Metric.Hidden {
			o["2"] = 1
		}
		if r.Metric.Expanded {
			m["expanded"] = 1
		}
		m["options"] = o
		out["metric"] = m
	case KindHistory:
		out["history"] = items(r.Items)
		out["step"] = []int64{}
		if r.HasStep {
			out["step"] = []int64{r.Step}
		}
	case KindSummary:
		out["summary"] = items(r.Items)
	case KindExit:
		out["exit"] = map[string]int32{"1": r.ExitCode, "2": r.Runtime, "3": 1}
	case KindFooter:
		out["footer"] = true
	}
	return out
}

func FuzzReader(f *testing.F) {
	f.Add(encode(f, sample()[:7]), 20)
	f.Add(encode(f, sample()[:3])[:60], 7)
	f.Add(append([]byte(fileHeader), make([]byte, 40)...), 0)
	f.Fuzz(func(t *testing.T, data []byte, split int) {
		r := NewReader(bytes.NewReader(data), Options{MaxRecord: 1 << 16})
		all, damaged, err := readAll(r)
		if r.Offset() < 0 || r.Offset() > int64(len(data)) {
			t.Fatalf("offset %d of %d", r.Offset(), len(data))
		}
		if split < 0 || split > len(data) || len(damaged) > 0 || err != io.EOF {
			return
		}
		a := NewReader(bytes.NewReader(data[:split]), Options{MaxRecord: 1 << 16})
		one, lost, _ := readAll(a)
		if len(lost) > 0 {
			return
		}
		two, _, err := readAll(NewReader(bytes.NewReader(data[a.Offset():]), Options{Offset: a.Offset(), MaxRecord: 1 << 16}))
		if err != io.EOF || !reflect.DeepEqual(append(one, two...), all) {
			t.Fatalf("split at %d, resumed at %d: %d + %d records, whole %d, %v", split, a.Offset(), len(one), len(two), len(all), err)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range sample() {
		b, err := AppendRecord(nil, r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := DecodeRecord(payload)
		if err != nil {
			return
		}
		again, err := AppendRecord(nil, &r)
		if err != nil {
			return // of a kind, or in a state, that is not written
		}
		back, err := DecodeRecord(again)
		if err != nil {
			t.Fatal(err)
		}
		once, err := AppendRecord(nil, &back)
		if err != nil || !bytes.Equal(once, again) {
			t.Fatalf("%x became %x, %v", again, once, err)
		}
	})
}

func TestFramingIsLittleEndian(t *testing.T) {
	data := appendFramed([]byte(fileHeader), 7, []byte("abc"))
	if got := binary.LittleEndian.Uint16(data[7+4:]); got != 3 || data[7+6] != chunkFull {
		t.Errorf("length %d, type %d", got, data[13])
	}
	// zlib.crc32(b"\x01abc")
	if got := binary.LittleEndian.Uint32(data[7:]); got != 0x539d20a9 {
		t.Errorf("checksum %#x", got)
	}
}

func stepRow() *Record {
	r := &Record{Kind: KindHistory, HasStep: true, Step: 12345}
	for i := range 80 {
		r.Items = append(r.Items, Item{Key: fmt.Sprintf("perf/request/e2e_latency/p%02d", i), JSON: NumberJSON(float64(i) / 7)})
	}
	return r
}

func BenchmarkWrite(b *testing.B) {
	r := stepRow()
	w := NewWriter(io.Discard, 0, 0)
	if err := w.Write(r); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(w.Offset())
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	var buf bytes.Buffer
	w := NewWriter(&buf, 0, 0)
	for range 100 {
		if err := w.Write(stepRow()); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(buf.Len()))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(buf.Bytes()), Options{})
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
