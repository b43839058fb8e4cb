package tfevents

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

func sample() []Event {
	return []Event{
		{WallTime: 1780000000.25, FileVersion: FileVersion},
		{WallTime: 1780000001, Step: 0, Session: SessionStart},
		{WallTime: 1780000002.5, Step: 3, Values: []Value{{Tag: "perf/rollout_time", Number: 40.5}, {Tag: "rollout/größe", Number: -1}}},
		{WallTime: 1780000003, Step: -2, Values: []Value{{Tag: "a", Number: math.NaN()}, {Tag: "b", Number: math.Inf(1)}, {Tag: "c", Number: math.Inf(-1)}}},
		{WallTime: 1780000004, Step: math.MaxInt64, Values: []Value{{Tag: "", Number: 0}}},
		{WallTime: 1780000005, Step: 100, Session: SessionCheckpoint, Message: "attempt 1"},
	}
}

func encode(events []Event) []byte {
	var b []byte
	for i := range events {
		b = AppendRecord(b, &events[i])
	}
	return b
}

// readAll returns copies of the events up to the first error that ends the stream.
func readAll(r *Reader) (events []Event, damaged []*CorruptError, end error) {
	for {
		e, err := r.Next()
		var c *CorruptError
		if errors.As(err, &c) && c.Skipped {
			damaged = append(damaged, c)
			continue
		}
		if err != nil {
			return events, damaged, err
		}
		dup := *e
		dup.Values = append([]Value(nil), e.Values...)
		events = append(events, dup)
	}
}

func same(a, b []Event) bool {
	// NaN differs from itself, its text does not.
	return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

func TestRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf, 0)
	for _, e := range sample() {
		if err := w.Write(&e); err != nil {
			t.Fatal(err)
		}
	}
	if w.Offset() != int64(buf.Len()) {
		t.Errorf("Offset = %d, wrote %d bytes", w.Offset(), buf.Len())
	}
	if !bytes.Equal(buf.Bytes(), encode(sample())) {
		t.Error("Writer and AppendRecord differ")
	}
	for name, in := range map[string]io.Reader{"whole": bytes.NewReader(buf.Bytes()), "byte by byte": iotest.OneByteReader(bytes.NewReader(buf.Bytes()))} {
		r := NewReader(in, Options{})
		got, damaged, err := readAll(r)
		if err != io.EOF || len(damaged) > 0 {
			t.Fatalf("%s: %v, %v", name, damaged, err)
		}
		if !same(got, sample()) {
			t.Errorf("%s: got  %+v\nwant %+v", name, got, sample())
		}
		if r.Offset() != int64(buf.Len()) {
			t.Errorf("%s: Offset = %d, want %d", name, r.Offset(), buf.Len())
		}
	}
}

// The bytes that torch's SummaryWriter and TensorFlow write for file_version "brain.Event:2", at
// wall time 0: framing and masking are theirs, not only the inverse of ours.
func TestVersionRecordBytes(t *testing.T) {
	got := AppendRecord(nil, &Event{FileVersion: FileVersion})
	if want := "1800000000000000a37f4b22" + "090000000000000000" + "1a0d627261696e2e4576656e743a32"; hex.EncodeToString(got[:len(got)-4]) != want {
		t.Errorf("got  %x\nwant %s", got[:len(got)-4], want)
	}
}

func TestCutAnywhere(t *testing.T) {
	all := sample()
	data := encode(all)
	ends := map[int]int{0: 0}
	n := 0
	for i := range all {
		n += len(AppendRecord(nil, &all[i]))
		ends[n] = i + 1
	}
	for cut := 0; cut <= len(data); cut++ {
		r := NewReader(bytes.NewReader(data[:cut]), Options{})
		got, damaged, err := readAll(r)
		if len(damaged) > 0 {
			t.Fatalf("cut %d: %v", cut, damaged)
		}
		whole, clean := ends[cut]
		if clean && err != io.EOF || !clean && !errors.Is(err, ErrCut) {
			t.Fatalf("cut %d: %v", cut, err)
		}
		if clean && len(got) != whole {
			t.Fatalf("cut %d: %d events, want %d", cut, len(got), whole)
		}
		// What is missing is read from where the reader stopped.
		rest, _, err := readAll(NewReader(bytes.NewReader(data[r.Offset():]), Options{Offset: r.Offset()}))
		if err != io.EOF || !same(append(got, rest...), all) {
			t.Fatalf("cut %d: resuming at %d: %v, %d + %d events", cut, r.Offset(), err, len(got), len(rest))
		}
	}
}

func TestDamage(t *testing.T) {
	all := sample()
	data := encode(all)
	first := len(AppendRecord(nil, &all[0]))
	second := first + len(AppendRecord(nil, &all[1]))
	for at := range data {
		bad := bytes.Clone(data)
		bad[at] ^= 0x40
		r := NewReader(bytes.NewReader(bad), Options{})
		got, damaged, err := readAll(r)
		var c *CorruptError
		switch {
		case errors.As(err, &c): // the length: nothing behind it
			if c.Part != "length" || c.Skipped || c.Offset != r.Offset() || c.Offset > int64(at) || int64(at) >= c.Offset+headerLen {
				t.Fatalf("byte %d: %+v at %d", at, c, r.Offset())
			}
			if _, again := r.Next(); again != err {
				t.Fatalf("byte %d: read on behind a damaged length: %v", at, again)
			}
		case err == io.EOF: // the payload: only that record
			if len(damaged) != 1 || len(got) != len(all)-1 {
				t.Fatalf("byte %d: %d events, damaged %v", at, len(got), damaged)
			}
			d := damaged[0]
			if d.Offset > int64(at) || d.Last != (int(d.Offset) == len(data)-len(AppendRecord(nil, &all[len(all)-1]))) {
				t.Fatalf("byte %d: %+v", at, d)
			}
			if at >= first && at < second && d.Offset != int64(first) {
				t.Fatalf("byte %d: offset %d, want %d", at, d.Offset, first)
			}
			if !strings.Contains(d.Error(), strconv.FormatInt(d.Offset, 10)) {
				t.Fatalf("the message does not name the offset: %v", d)
			}
		default:
			t.Fatalf("byte %d: %v", at, err)
		}
	}
}

func TestHoleAtTheEnd(t *testing.T) {
	data := append(encode(sample()), make([]byte, 4096)...)
	r := NewReader(bytes.NewReader(data), Options{})
	got, _, err := readAll(r)
	if !errors.Is(err, ErrCut) || len(got) != len(sample()) || r.Offset() != int64(len(data)-4096) {
		t.Errorf("%d events, offset %d, %v", len(got), r.Offset(), err)
	}
}

func TestSizeIsBounded(t *testing.T) {
	big := Event{Values: []Value{{Tag: strings.Repeat("x", 10000), Number: 1}}}
	data := encode([]Event{{FileVersion: FileVersion}, big, {Step: 7}})
	r := NewReader(bytes.NewReader(data), Options{MaxPayload: 1000})
	got, _, err := readAll(r)
	if err != io.EOF || len(got) != 2 || got[1].Step != 7 || r.TooLarge() != 1 {
		t.Errorf("%+v, too large %d, %v", got, r.TooLarge(), err)
	}

	// A length that promises 2^40 bytes costs no memory.
	head := make([]byte, headerLen, 4096)
	binary.LittleEndian.PutUint64(head, 1<<40)
	binary.LittleEndian.PutUint32(head[8:], masked(head[:8]))
	head = append(head, make([]byte, 100)...)
	r = NewReader(bytes.NewReader(head), Options{MaxPayload: 1 << 50})
	if _, err := r.Next(); !errors.Is(err, ErrCut) {
		t.Errorf("got %v", err)
	}
	if cap(r.buf) > 4<<20 {
		t.Errorf("a length alone allocated %d bytes", cap(r.buf))
	}
	binary.LittleEndian.PutUint64(head, math.MaxUint64)
	binary.LittleEndian.PutUint32(head[8:], masked(head[:8]))
	var c *CorruptError
	if _, err := NewReader(bytes.NewReader(head), Options{}).Next(); !errors.As(err, &c) {
		t.Errorf("got %v", err)
	}
	if err := NewWriter(io.Discard, 0).Write(&Event{Message: strings.Repeat("x", MaxPayload+1)}); err == nil {
		t.Error("a record beyond the limit was written")
	}
}

func msg(num protowire.Number, parts ...[]byte) []byte {
	b := protowire.AppendTag(nil, num, protowire.BytesType)
	return protowire.AppendBytes(b, bytes.Join(parts, nil))
}

func num(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

func TestTensors(t *testing.T) {
	le32 := func(u uint32) []byte { return binary.LittleEndian.AppendUint32(nil, u) }
	le64 := func(u uint64) []byte { return binary.LittleEndian.AppendUint64(nil, u) }
	scalars := msg(9, msg(1, msg(1, []byte("scalars"))))
	dim := func(n uint64) []byte { return msg(2, msg(2, num(1, n))) }
	fixed32 := func(n protowire.Number, u uint32) []byte {
		return protowire.AppendFixed32(protowire.AppendTag(nil, n, protowire.Fixed32Type), u)
	}
	for name, tc := range map[string]struct {
		tensor []byte
		meta   []byte
		want   float64
		ok     bool
	}{
		"float content":          {bytes.Join([][]byte{num(1, dtFloat), msg(4, le32(math.Float32bits(1.5)))}, nil), scalars, 1.5, true},
		"double content":         {bytes.Join([][]byte{num(1, dtDouble), msg(4, le64(math.Float64bits(0.1)))}, nil), scalars, 0.1, true},
		"float_val packed":       {bytes.Join([][]byte{num(1, dtFloat), msg(5, le32(math.Float32bits(2.5)))}, nil), scalars, 2.5, true},
		"float_val not packed":   {bytes.Join([][]byte{num(1, dtFloat), fixed32(5, math.Float32bits(2.5))}, nil), scalars, 2.5, true},
		"double_val":             {bytes.Join([][]byte{num(1, dtDouble), msg(6, le64(math.Float64bits(-3)))}, nil), scalars, -3, true},
		"int64_val":              {bytes.Join([][]byte{num(1, dtInt64), msg(10, []byte{5})}, nil), scalars, 5, true},
		"bool_val":               {bytes.Join([][]byte{num(1, dtBool), num(11, 1)}, nil), scalars, 1, true},
		"half_val":               {bytes.Join([][]byte{num(1, dtHalf), num(13, 0x3e00)}, nil), scalars, 1.5, true},
		"bfloat16 in half_val":   {bytes.Join([][]byte{num(1, dtBfloat16), num(13, 0x3fc0)}, nil), scalars, 1.5, true},
		"half content":           {bytes.Join([][]byte{num(1, dtHalf), msg(4, []byte{0, 0xc0})}, nil), scalars, -2, true},
		"int32 content":          {bytes.Join([][]byte{num(1, dtInt32), msg(4, le32(0xffffffff))}, nil), scalars, -1, true},
		"no metadata, no shape":  {bytes.Join([][]byte{num(1, dtFloat), msg(2), msg(4, le32(math.Float32bits(1)))}, nil), nil, 1, true},
		"no metadata, shape [1]": {bytes.Join([][]byte{num(1, dtFloat), dim(1), msg(4, le32(math.Float32bits(1)))}, nil), nil, 0, false},
		"shape [1]":              {bytes.Join([][]byte{num(1, dtFloat), dim(1), msg(4, le32(math.Float32bits(1)))}, nil), scalars, 1, true},
		"shape [2]":              {bytes.Join([][]byte{num(1, dtFloat), dim(2), msg(4, le64(0))}, nil), scalars, 0, false},
		"values left out":        {num(1, dtFloat), scalars, 0, true},
		"two values, no shape":   {bytes.Join([][]byte{num(1, dtFloat), msg(5, le64(0))}, nil), scalars, 0, false},
		"text":                   {bytes.Join([][]byte{num(1, 7), msg(8, []byte("hello"))}, nil), msg(9, msg(1, msg(1, []byte("text")))), 0, false},
		"histogram":              {bytes.Join([][]byte{num(1, dtDouble), msg(4, le64(0))}, nil), msg(9, msg(1, msg(1, []byte("histograms")))), 0, false},
		"content of other size":  {bytes.Join([][]byte{num(1, dtDouble), msg(4, le32(0))}, nil), scalars, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			value := bytes.Join([][]byte{msg(1, []byte("loss")), msg(8, tc.tensor), tc.meta}, nil)
			e, err := DecodeEvent(msg(5, msg(1, value)))
			if err != nil {
				t.Fatal(err)
			}
			if !tc.ok {
				if len(e.Values) != 0 || e.Skipped != 1 {
					t.Errorf("got %+v", e)
				}
				return
			}
			if want := []Value{{Tag: "loss", Number: tc.want, FromTensor: true}}; !reflect.DeepEqual(e.Values, want) {
				t.Errorf("got %+v, want %+v", e.Values, want)
			}
		})
	}
}

func TestFloat16(t *testing.T) {
	for h, want := range map[uint16]float64{0: 0, 0x3c00: 1, 0xbc00: -1, 0x7bff: 65504, 1: 5.960464477539063e-08, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := float16(h); got != want {
			t.Errorf("%#x: %v, want %v", h, got, want)
		}
	}
	if !math.IsNaN(float16(0x7e00)) {
		t.Error("0x7e00 is not NaN")
	}
}

func TestMalformedEventIsLeftOut(t *testing.T) {
	payload := []byte{0x2a, 0x7f, 0x01} // a summary that is longer than the event
	frame := make([]byte, headerLen)
	binary.LittleEndian.PutUint64(frame, uint64(len(payload)))
	binary.LittleEndian.PutUint32(frame[8:], masked(frame[:8]))
	frame = append(frame, payload...)
	frame = binary.LittleEndian.AppendUint32(frame, masked(payload))
	frame = AppendRecord(frame, &Event{Step: 9})
	got, damaged, err := readAll(NewReader(bytes.NewReader(frame), Options{}))
	if err != io.EOF || len(damaged) != 1 || damaged[0].Part != "event" || len(got) != 1 || got[0].Step != 9 {
		t.Errorf("%+v %+v %v", got, damaged, err)
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

func TestWriteErrorKeepsTheOffset(t *testing.T) {
	all := sample()
	first := len(AppendRecord(nil, &all[0]))
	w := NewWriter(&failing{room: first + 5}, 0)
	if err := w.Write(&all[0]); err != nil {
		t.Fatal(err)
	}
	err := w.Write(&all[1])
	if err == nil || !strings.Contains(err.Error(), "no space left") || w.Offset() != int64(first) {
		t.Errorf("%v, offset %d", err, w.Offset())
	}
}

func TestReadErrorIsPassedOn(t *testing.T) {
	cause := errors.New("stale file handle")
	r := NewReader(io.MultiReader(bytes.NewReader(encode(sample()[:1])), iotest.ErrReader(cause)), Options{})
	got, _, err := readAll(r)
	if len(got) != 1 || !errors.Is(err, cause) {
		t.Errorf("%d events, %v", len(got), err)
	}
}

func TestSeconds(t *testing.T) {
	if got := Seconds(time.Unix(1780000000, 250e6)); got != 1780000000.25 {
		t.Errorf("got %v", got)
	}
}

// A reader written from the specification in another language reads what we write.
func TestIndependentReader(t *testing.T) {
	python := needPython(t)
	path := filepath.Join(t.TempDir(), "events.out.tfevents.1.host.1.0")
	if err := os.WriteFile(path, encode(sample()), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(python, "testdata/check_events.py", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got []Event
	dec := json.NewDecoder(bytes.NewReader(out))
	for dec.More() {
		var e struct {
			Wall        float64
			Step        int64
			FileVersion string `json:"file_version"`
			Values      [][2]string
			Session     map[string]any
		}
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ev := Event{WallTime: e.Wall, Step: e.Step, FileVersion: e.FileVersion}
		for _, v := range e.Values {
			n, err := strconv.ParseFloat(v[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			ev.Values = append(ev.Values, Value{Tag: v[0], Number: n})
		}
		if s, ok := e.Session["1"].(float64); ok {
			ev.Session = SessionStatus(s)
		}
		ev.Message, _ = e.Session["3"].(string)
		got = append(got, ev)
	}
	if !same(got, sample()) {
		t.Errorf("got  %+v\nwant %+v", got, sample())
	}
	if err := os.WriteFile(path, append(encode(sample()), 1, 2, 3), 0o666); err != nil {
		t.Fatal(err)
	}
	if exec.Command(python, "testdata/check_events.py", path).Run() == nil {
		t.Error("the checker takes anything")
	}
}

func needPython(t *testing.T) string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("python3 is needed to read the file independently: ", err)
		}
		t.Skip("python3 is not installed: ", err)
	}
	return python
}

func FuzzReader(f *testing.F) {
	f.Add(encode(sample()), 0)
	f.Add(encode(sample()[:2])[:20], 3)
	f.Add(make([]byte, 64), 0)
	f.Fuzz(func(t *testing.T, data []byte, split int) {
		r := NewReader(bytes.NewReader(data), Options{MaxPayload: 1 << 16})
		events, damaged, err := readAll(r)
		if r.Offset() < 0 || r.Offset() > int64(len(data)) {
			t.Fatalf("offset %d of %d", r.Offset(), len(data))
		}
		if err == io.EOF && r.Offset() != int64(len(data)) {
			t.Fatalf("end at %d of %d", r.Offset(), len(data))
		}
		// Reading in two parts gives the same events, whatever is damaged.
		if split < 0 || split > len(data) || len(damaged) > 0 {
			return
		}
		a := NewReader(bytes.NewReader(data[:split]), Options{MaxPayload: 1 << 16})
		one, _, _ := readAll(a)
		two, _, _ := readAll(NewReader(bytes.NewReader(data[a.Offset():]), Options{MaxPayload: 1 << 16}))
		if !same(append(one, two...), events) {
			t.Fatalf("split at %d: %d + %d events, whole %d", split, len(one), len(two), len(events))
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range sample() {
		f.Add(AppendEvent(nil, &e))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := DecodeEvent(payload)
		if err != nil || e.Skipped > 0 {
			return
		}
		for _, v := range e.Values {
			if v.FromTensor { // may hold more than 32 bits
				return
			}
		}
		again, err := DecodeEvent(AppendEvent(nil, &e))
		if err != nil || !same([]Event{e}, []Event{again}) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

// stepEvent is a rollout step as the exporter writes it: one event, 80 scalars.
func stepEvent() Event {
	e := Event{WallTime: 1780000000, Step: 12345}
	for i := range 80 {
		e.Values = append(e.Values, Value{Tag: fmt.Sprintf("perf/request/e2e_latency/p%02d", i), Number: float64(i)})
	}
	return e
}

func BenchmarkWrite(b *testing.B) {
	e := stepEvent()
	b.SetBytes(int64(len(AppendRecord(nil, &e))))
	b.ReportAllocs()
	w := NewWriter(io.Discard, 0)
	for b.Loop() {
		if err := w.Write(&e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	e := stepEvent()
	var data []byte
	for range 100 {
		data = AppendRecord(data, &e)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(data), Options{})
		for {
			if _, err := r.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
