package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rollscope/rollscope/torchfile"
)

const head = `{"version":1,"run":"r","kind":"train","rollout_id":7,"part":0,"parts":null,"final":false,"batch_id":"b-0","upload":"b","lost":2}`

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

func TestDecodeBatch(t *testing.T) {
	body := head + "\n\n {\"index\":0,\"a\":[1,\"}\"]} \r\n" + `{"index":1}` + "\n"
	for name, text := range map[string]string{"plain": body, "gzip": zipped(body), "no line feed at the end": strings.TrimSpace(body)} {
		b, err := DecodeBatch(iotest.OneByteReader(strings.NewReader(text)), Limits{})
		if err != nil {
			t.Fatal(name, err)
		}
		equal(t, b.Header, Header{1, "r", "train", 7, 0, nil, false, "b-0", "b", 2})
		equal(t, len(b.Samples), 2)
		equal(t, string(b.Samples[0]), `{"index":0,"a":[1,"}"]}`)
	}
	b, err := DecodeBatch(strings.NewReader(`{"run":"r","kind":"eval","rollout_id":0,"part":2,"parts":3,"final":true,"batch_id":"x","new":1}`), Limits{})
	if err != nil || *b.Parts != 3 || b.Version != 1 || !b.Final || b.Kind != Eval || b.Samples != nil {
		t.Error(b, err)
	}
}

func TestDecodeBatchErrors(t *testing.T) {
	with := func(old, new string) string { return strings.Replace(head, old, new, 1) }
	for _, c := range []struct{ body, want string }{
		{"", "line 1: the body is empty"},
		{"\n \n", "the body is empty"},
		{"[]", "line 1: header"},
		{"{", "line 1: header"},
		{with(`"version":1`, `"version":2`), "version 2: this server knows version 1"},
		{with(`"run":"r"`, `"run":""`), `run ""`},
		{with(`"run":"r"`, `"run":"a\nb"`), "control characters"},
		{with(`"run":"r"`, `"run":5`), `"run" is number`},
		{with(`"train"`, `"test"`), `kind "test": it is train or eval`},
		{with(`"rollout_id":7,`, ``), "no rollout_id"},
		{with(`"rollout_id":7`, `"rollout_id":null`), "no rollout_id"},
		{with(`"rollout_id":7`, `"rollout_id":7.5`), `"rollout_id" is number 7.5`},
		{with(`"part":0`, `"part":-1`), "part -1"},
		{with(`"part":0`, `"part":1000001`), "part 1000001"},
		{with(`"parts":null`, `"parts":0`), "part 0 of 0"},
		{with(`"parts":null`, `"parts":2000000`), "2000000 parts"},
		{with(`"parts":null,"final":false`, `"parts":2,"final":true`), "not the final one"},
		{with(`"batch_id":"b-0"`, `"batch_id":""`), "batch_id"},
		{with(`"upload":"b"`, `"upload":"`+strings.Repeat("x", 129)+`"`), "upload"},
		{with(`"lost":2`, `"lost":-1`), "lost -1"},
		{head + "\n{\"a\":1}\n[1]", "line 3: a sample is a JSON object"},
		{head + "\n\n{\"a\":1}\n{\"a\":nope}", "line 4: not JSON at byte 7"},
		{head + "\n{\"a\":1} {}", "line 2: not JSON at byte 9"},
		{head + "\n" + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000), "line 2: not JSON"},
		{"\x1f\x8bnonsense", "gzip"},
		{zipped(head)[:30], "unexpected EOF"},
	} {
		b, err := DecodeBatch(strings.NewReader(c.body), Limits{})
		var line *LineError
		if !errors.As(err, &line) || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrTooLarge) {
			t.Errorf("%.80q: %v, want %s", c.body, err, c.want)
		}
		if b.Samples != nil {
			t.Errorf("%.80q: samples of a batch that is refused", c.body)
		}
	}
	if _, err := DecodeBatch(io.MultiReader(strings.NewReader(head+"\n"), iotest.ErrReader(os.ErrDeadlineExceeded)), Limits{}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestDecodeBatchLimits(t *testing.T) {
	body := head + "\n" + strings.Repeat("{\"a\":1}\n", 10)
	bomb := zipped(head + "\n" + strings.Repeat(" ", 4<<20))
	for _, c := range []struct {
		body   string
		limits Limits
		want   string
	}{
		{body, Limits{Bytes: 150}, "line 4: more than 150 bytes"},
		{zipped(body), Limits{Bytes: 150}, "more than 150 bytes"},
		{bomb, Limits{Bytes: 1 << 20}, "more than 1048576 bytes"},
		{bomb, Limits{LineBytes: 1 << 20}, "line 2: more than 1048576 bytes"},
		{body, Limits{Samples: 9}, "line 11: more than 9 samples"},
	} {
		if _, err := DecodeBatch(strings.NewReader(c.body), c.limits); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	for _, limits := range []Limits{{Bytes: int64(len(body))}, {Samples: 10}, {LineBytes: int64(len(head)) + 1}} {
		if b, err := DecodeBatch(strings.NewReader(body), limits); err != nil || len(b.Samples) != 10 {
			t.Error(limits, err)
		}
	}
}

func TestMissing(t *testing.T) {
	n := 4
	at := func(part int, parts *int, final bool) Batch {
		return Batch{Header: Header{Part: part, Parts: parts, Final: final}}
	}
	for _, c := range []struct {
		batches []Batch
		missing int
		final   bool
	}{
		{nil, 0, false},
		{[]Batch{at(0, nil, false), at(2, nil, false), at(2, nil, false)}, 1, false},
		{[]Batch{at(3, &n, true), at(0, nil, false)}, 2, true},
		{[]Batch{at(1, &n, false)}, 3, false},
		{[]Batch{at(3, nil, true), at(1, nil, false), at(0, nil, false), at(2, nil, false)}, 0, true},
	} {
		if missing, final := Missing(c.batches); missing != c.missing || final != c.final {
			t.Errorf("%v: %d %v", c.batches, missing, final)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	f.Add([]byte(head + "\n{\"a\":1}\n{\"reward\":\"NaN\",\"trace\":{\"events\":[{\"ts\":1.5,\"attrs\":{\"a\":\"Infinity\"}}]}}"))
	f.Add([]byte(zipped(head + "\n{}")))
	f.Add([]byte(head + "\n{\"a\":[[[[1e999,123456789012345678901234567890,\"\\ud800\"]]]]}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := DecodeBatch(bytes.NewReader(body), Limits{Bytes: 1 << 20})
		if err != nil {
			return
		}
		w := torchfile.NewWriter(io.Discard, nil)
		if err := WriteDump(w, []Batch{b}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCarrier(f *testing.F) {
	f.Add([]byte(`{"version":1,"trace_id":"t","events":[{"type":"event","name":"n","ts":1.5,"attrs":{"a":[1,{"b":null}]}}],"sample_id":1,"group_id":"g","attempt":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Carrier
		if json.Unmarshal(text, &c) != nil {
			return
		}
		once, err := json.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		var back Carrier
		if err := json.Unmarshal(once, &back); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		if again, _ := json.Marshal(&back); !bytes.Equal(again, once) {
			t.Fatalf("%s\n%s", once, again)
		}
	})
}

// view writes batches as a dump and returns what a reader of dumps sees.
func view(t *testing.T, batches []Batch) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rollout_7.pt")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := torchfile.NewWriter(out, &torchfile.WriterOptions{Root: "rollout_7"})
	if err := errors.Join(WriteDump(w, batches), w.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.Open(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Root().PyRepr()
}

func batch(t *testing.T, header string, lines ...string) Batch {
	t.Helper()
	b, err := DecodeBatch(strings.NewReader(header+"\n"+strings.Join(lines, "\n")), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWriteDump(t *testing.T) {
	one := batch(t, strings.NewReplacer(`"part":0`, `"part":1`, "b-0", "b-1").Replace(head), `{"index":1,"reward":{"a":"NaN","b":["-Infinity"]},"label":"NaN"}`)
	zero := batch(t, head,
		`{"index":0,"reward":"Infinity","non_generation_time":"NaN","teacher_log_probs":["NaN",-0.5],"metadata":{"answer":"NaN","big":123456789012345678901,"n":1e2,"huge":1e999},`+
			`"trace":{"events":[{"name":"NaN","ts":"NaN","attrs":{"x":"Infinity","y":[true,null]}}],"x":"NaN"}}`)
	other := batch(t, strings.NewReplacer("b-0", "c-0", `"upload":"b"`, `"upload":"c"`).Replace(head), `{"index":2}`)
	got := view(t, []Batch{one, other, zero, one})
	want := `{'rollout_id': 7, 'samples': [` +
		`{'index': 0, 'reward': inf, 'non_generation_time': nan, 'teacher_log_probs': [nan, -0.5], 'metadata': {'answer': 'NaN', 'big': 123456789012345678901, 'n': 100.0, 'huge': '1e999'}, ` +
		`'trace': {'events': [{'name': 'NaN', 'ts': nan, 'attrs': {'x': inf, 'y': [True, None]}}], 'x': 'NaN'}}, ` +
		`{'index': 1, 'reward': {'a': nan, 'b': [-inf]}, 'label': 'NaN'}, {'index': 2}]}`
	equal(t, got, want)

	deep := batch(t, head, `{"a":`+strings.Repeat("[", 3000)+strings.Repeat("]", 3000)+`,"b":1,"c":`+strings.Repeat("9", 5000)+`}`)
	got = view(t, []Batch{deep})
	if !strings.Contains(got, "(nested deeper than 200)") || !strings.Contains(got, "'b': 1, 'c': '999") {
		t.Errorf("%.300s", got)
	}
	// What DecodeBatch would have refused is an error, not a panic.
	for _, text := range []string{"", "{", `{"a"`, `{"a":`, `{"a":}`, `{1:2}`, `["a`, `["\`, "[1 2]", "[nul]", `{"a" 1}`, `["\x"]`, strings.Repeat("[", 300), strings.Repeat("[", 200) + `"a"`} {
		b := Batch{Samples: []json.RawMessage{json.RawMessage(text)}}
		if err := WriteDump(torchfile.NewWriter(io.Discard, nil), []Batch{b}); err == nil || !strings.Contains(err.Error(), "not JSON at byte") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for want, batches := range map[string][]Batch{
		"no batches":               nil,
		"a dump holds one rollout": {zero, batch(t, strings.Replace(head, `"rollout_id":7`, `"rollout_id":8`, 1))},
	} {
		if err := WriteDump(torchfile.NewWriter(io.Discard, nil), batches); err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

func TestWriteDumpFrom(t *testing.T) {
	zero, one := batch(t, head, `{"index":0}`), batch(t, strings.NewReplacer(`"part":0`, `"part":1`, "b-0", "b-1").Replace(head), `{"index":1,"`+strings.Repeat("k", 2*maxKey)+`":1}`)
	write := func(w DumpWriter, batches []Batch, end error) error {
		return WriteDumpFrom(w, func(yield func(Batch, error) bool) {
			for _, b := range batches {
				if !yield(b, nil) {
					return
				}
			}
			if end != nil {
				yield(Batch{}, end)
			}
		})
	}
	var streamed, whole bytes.Buffer
	w, v := torchfile.NewWriter(&streamed, nil), torchfile.NewWriter(&whole, nil)
	if err := errors.Join(write(w, []Batch{zero, one}, nil), w.Close(), WriteDump(v, []Batch{one, zero}), v.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(streamed.Bytes(), whole.Bytes()) {
		t.Error("the two ways of writing a dump differ")
	}
	if !strings.Contains(view(t, []Batch{one}), strings.Repeat("k", 2*maxKey)+"': 1}") {
		t.Error("a long key is lost")
	}
	other := zero
	other.Kind = Eval
	failed := errors.New("the disk is gone")
	for _, c := range []struct {
		batches []Batch
		end     error
		want    string
	}{
		{nil, nil, "no batches"},
		{[]Batch{zero, other}, nil, "a dump holds one rollout"},
		{[]Batch{zero}, failed, failed.Error()},
		{nil, failed, failed.Error()},
	} {
		if err := write(torchfile.NewWriter(io.Discard, nil), c.batches, c.end); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// benchBatch is a batch of samples with a trace of 60 events and 4 kB of text each.
func benchBatch(b *testing.B) []byte {
	var tr Tracer
	c := NewCarrier(0, 0)
	for range 30 {
		_, s := tr.Start(b.Context(), c, "sglang_generate", A("max_new_tokens", 512))
		s.End()
	}
	line, err := json.Marshal(map[string]any{"index": 1, "prompt": strings.Repeat("word ", 800), "reward": 1.0, "trace": c})
	if err != nil {
		b.Fatal(err)
	}
	return []byte(head + "\n" + strings.Repeat(string(line)+"\n", 64))
}

func BenchmarkDecodeBatch(b *testing.B) {
	body := benchBatch(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for range b.N {
		if _, err := DecodeBatch(bytes.NewReader(body), Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteDump(b *testing.B) {
	body := benchBatch(b)
	batch, err := DecodeBatch(bytes.NewReader(body), Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for range b.N {
		w := torchfile.NewWriter(io.Discard, nil)
		if err := errors.Join(WriteDump(w, []Batch{batch}), w.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
