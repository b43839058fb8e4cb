package dumps

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
	"github.com/rollscope/rollscope/trace"
)

// box is an inbox under test, with a clock and a receiver that keeps what it is told.
type box struct {
	t   *testing.T
	dir string
	o   InboxOptions
	*Inbox
	now  atomic.Int64 // ns
	fail error        // of the receiver
	only string       // the run for which it fails, "" for all
	got  []ReceivedDump
}

func newBox(t *testing.T, change func(*InboxOptions)) *box {
	t.Helper()
	x := &box{t: t, dir: t.TempDir()}
	x.now.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	x.o = InboxOptions{
		Receiver: x, Now: func() time.Time { return time.Unix(0, x.now.Load()).UTC() }, Logger: slog.New(slog.DiscardHandler),
		Free: func(string) (int64, error) { return 1 << 40, nil },
	}
	if change != nil {
		change(&x.o)
	}
	x.reopen()
	return x
}

func (x *box) Received(_ context.Context, d ReceivedDump) error {
	if x.fail != nil && (x.only == "" || x.only == d.Run) {
		return x.fail
	}
	x.got = append(x.got, d)
	return nil
}

// reopen is what a restart does; whatever the earlier one had in memory is lost.
func (x *box) reopen() {
	x.t.Helper()
	b, err := OpenInbox(x.dir, x.o)
	if err != nil {
		x.t.Fatal(err)
	}
	x.Inbox = b
}

// after lets time pass and settles.
func (x *box) after(d time.Duration) {
	x.now.Add(int64(d))
	x.settle(context.Background())
}

// message is a batch to post; the zero value is part 0 of upload "u" of rollout 7 of run "r".
type message struct {
	run, kind, upload, id string
	rollout               int64
	part                  int
	parts                 string
	final                 bool
	lost                  int
	samples               []int // index of each
	unnamed               bool  // there is no upload
}

func (m message) body() string {
	if m.run == "" {
		m.run = "r"
	}
	if m.kind == "" {
		m.kind = trace.Train
	}
	if m.upload == "" && !m.unnamed {
		m.upload = "u"
	}
	if m.id == "" {
		m.id = fmt.Sprintf("%s-%d", m.upload, m.part)
	}
	if m.parts == "" {
		m.parts = "null"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"version":1,"run":%s,"kind":%q,"rollout_id":%d,"part":%d,"parts":%s,"final":%v,"batch_id":%s,"upload":%s,"lost":%d}`+"\n",
		quote(m.run), m.kind, m.rollout, m.part, m.parts, m.final, quote(m.id), quote(m.upload), m.lost)
	for _, i := range m.samples {
		fmt.Fprintf(&b, `{"index":%d,"group_index":0,"status":"completed","response":"text %d","response_length":5,"reward":1.5}`+"\n", i, i)
	}
	return b.String()
}

// quote writes a string as JSON.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < ' ' || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return b.String()
}

func (x *box) take(m message) Receipt {
	x.t.Helper()
	r, err := x.Take(context.Background(), strings.NewReader(m.body()))
	if err != nil {
		x.t.Fatalf("%+v: %v", m, err)
	}
	return r
}

// refused wants a message to be refused with a reason.
func (x *box) refused(reason string, status int, m message) error {
	x.t.Helper()
	return x.refusedBody(reason, status, strings.NewReader(m.body()))
}

func (x *box) refusedBody(reason string, status int, body io.Reader) error {
	x.t.Helper()
	before := x.Dropped()[reason]
	r, err := x.Take(context.Background(), body)
	var no *Refusal
	if !errors.As(err, &no) || no.Reason != reason || no.Status() != status || r != (Receipt{}) {
		x.t.Errorf("%+v, %v: want %s, %d", r, err, reason, status)
	}
	if x.Dropped()[reason] != before+1 {
		x.t.Errorf("dropped %v, want one more of %s", x.Dropped(), reason)
	}
	return err
}

// indexes are the samples of a dump, as the reader of dumps sees them.
func indexes(t *testing.T, path string) []int {
	t.Helper()
	f, err := torchfile.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := []int{}
	_, err = rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
		out = append(out, int(s.Index.N))
		return nil
	})
	if err != nil {
		t.Fatal(path, err)
	}
	return out
}

// want compares what the receiver was told since the last time: dump names, samples, marks.
func (x *box) want(lines ...string) {
	x.t.Helper()
	got := []string{}
	for _, d := range x.got {
		rel, err := filepath.Rel(x.dir, d.Path)
		if err != nil {
			x.t.Fatal(err)
		}
		s := fmt.Sprintf("%s %v", rel, indexes(x.t, d.Path))
		if d.Lost > 0 {
			s += fmt.Sprintf(" lost %d", d.Lost)
		}
		if d.Missing > 0 {
			s += fmt.Sprintf(" missing %d", d.Missing)
		}
		if d.Incomplete {
			s += " incomplete"
		}
		if n := len(indexes(x.t, d.Path)); n != d.Samples {
			x.t.Errorf("%s has %d samples, the receiver was told %d", d.Path, n, d.Samples)
		}
		got = append(got, s)
	}
	x.got = nil
	if !slices.Equal(got, lines) {
		x.t.Errorf("received\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

// release makes the inbox remove what it keeps of rollouts that were closed without their end.
func (x *box) release() {
	for _, r := range x.rollouts {
		for _, a := range r.attempts {
			a.unwanted = true
		}
	}
	x.after(0)
}

// idle wants that nothing waits, in memory and on disk.
func (x *box) idle() {
	x.t.Helper()
	if s := x.Status(); len(s.Rollouts) > 0 || s.Batches != 0 || s.Bytes != 0 || x.spooled != 0 || len(x.flights) != 0 {
		x.t.Errorf("not idle: %+v, spooled %d", s, x.spooled)
	}
	for _, f := range x.files() {
		if strings.HasSuffix(f, partSuffix) || strings.HasPrefix(f, ".tmp/") {
			x.t.Errorf("%s is left", f)
		}
	}
}

// files are all files of the inbox.
func (x *box) files() []string {
	x.t.Helper()
	var out []string
	err := filepath.WalkDir(x.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(x.dir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return out
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestInboxRollout(t *testing.T) {
	x := newBox(t, nil)
	equal(t, x.take(message{rollout: 7, part: 1, samples: []int{2, 3}}), Receipt{"r", "train", 7, 2, 2, false, false})
	equal(t, x.take(message{rollout: 7, part: 2, final: true, parts: "3", samples: []int{4}}), Receipt{"r", "train", 7, 1, 3, false, false})
	x.after(time.Minute)
	x.want()
	equal(t, x.take(message{rollout: 7, samples: []int{0, 1}}), Receipt{"r", "train", 7, 2, 5, false, true})
	x.after(time.Second)
	x.want() // another process may be about to begin
	x.after(time.Second)
	x.want("r/rollout_7.pt [0 1 2 3 4]")
	x.idle()
	// The sender did not get the answer.
	for range 2 {
		equal(t, x.take(message{rollout: 7, part: 1, samples: []int{2, 3}}), Receipt{"r", "train", 7, 2, 5, true, true})
		x.reopen()
	}
	x.after(time.Hour)
	x.want()
	x.idle()

	// An evaluation of the same number is another rollout, and so is one of another run.
	x.take(message{kind: trace.Eval, rollout: 7, final: true, samples: []int{9}})
	x.take(message{run: "s", rollout: 7, final: true, samples: []int{8}})
	x.take(message{run: "s", rollout: 8, final: true})
	x.after(time.Minute)
	x.want("r/rollout_eval_7.pt [9]", "s/rollout_7.pt [8]", "s/rollout_8.pt []")
	x.idle()
	if d := x.Dropped(); len(d) != 0 {
		t.Error(d)
	}
}

func TestInboxDumpIsTheRollout(t *testing.T) {
	x := newBox(t, nil)
	const sample = `{"index":3,"reward":{"a":"NaN"},"trace":{"version":1,"trace_id":"t","events":[` +
		`{"type":"span_start","name":"sglang_generate","ts":5.0,"span_id":"a","attempt":0},{"type":"span_end","name":"sglang_generate","ts":7.5,"span_id":"a","attempt":0,"attrs":{"completion_tokens":40}}],"attempt":0}}`
	body := zipped(message{final: true}.body() + sample)
	if _, err := x.Take(context.Background(), iotest.HalfReader(strings.NewReader(body))); err != nil {
		t.Fatal(err)
	}
	x.after(time.Minute)
	step, err := Read(context.Background(), x.got[0].Path, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if step.Samples != 1 || step.Requests != 1 || step.Events != 2 || step.Header.RolloutID != (rollout.Int{N: 0, OK: true}) {
		t.Errorf("%+v", step)
	}
	f, err := torchfile.Open(x.got[0].Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if root := f.Records()[0].Name; root != "rollout_0/data.pkl" {
		t.Error(root)
	}
}

func TestInboxSettles(t *testing.T) {
	for name, c := range map[string]struct {
		batches []message
		waits   time.Duration // and not a second less
		want    string
	}{
		"the last part never comes":   {[]message{{samples: []int{1}}, {part: 1, samples: []int{2}}}, 15 * time.Minute, "r/rollout_0.pt [1 2] incomplete"},
		"its size is known":           {[]message{{parts: "4", samples: []int{1}}}, 15 * time.Minute, "r/rollout_0.pt [1] missing 3 incomplete"},
		"a part is missing":           {[]message{{samples: []int{1}}, {part: 2, final: true, lost: 1, samples: []int{3}}}, 2 * time.Minute, "r/rollout_0.pt [1 3] lost 1 missing 1 incomplete"},
		"only the last one":           {[]message{{part: 1_000_000, parts: "1000001", final: true, samples: []int{3}}}, 2 * time.Minute, "r/rollout_0.pt [3] missing 1000000 incomplete"},
		"samples were lost":           {[]message{{lost: 2, samples: []int{1}}, {part: 1, final: true, lost: 3}}, 2 * time.Second, "r/rollout_0.pt [1] lost 3 incomplete"},
		"two processes":               {[]message{{upload: "a", samples: []int{1}}, {upload: "b", final: true, samples: []int{2}}, {upload: "a", part: 1, final: true, samples: []int{3}}}, 2 * time.Second, "r/rollout_0.pt [1 3 2]"},
		"one of two processes lost 4": {[]message{{upload: "a", final: true, lost: 4}, {upload: "b", final: true, lost: 1, samples: []int{2}}}, 2 * time.Second, "r/rollout_0.pt [2] lost 5 incomplete"},
	} {
		x := newBox(t, nil)
		for _, m := range c.batches {
			x.take(m)
		}
		x.after(c.waits - time.Second)
		if len(x.got) > 0 {
			t.Errorf("%s: closed too early", name)
		}
		x.reopen()
		if c.waits > time.Minute { // the clock begins anew, since senders could not reach us
			x.after(c.waits - time.Second)
			if len(x.got) > 0 {
				t.Errorf("%s: closed too early after a restart", name)
			}
		}
		x.after(time.Second)
		t.Log(name)
		x.want(c.want)
		x.release()
		x.idle()
	}
}

func TestInboxAttempts(t *testing.T) {
	x := newBox(t, nil)
	// A job that is restarted after the rollout was complete.
	for i, want := range []string{"r/rollout_7.pt [1]", "r/rollout_7.attempt1.pt [2]", "r/rollout_7.attempt2.pt [3]"} {
		x.take(message{rollout: 7, upload: fmt.Sprint("u", i), final: true, samples: []int{i + 1}})
		x.after(time.Minute)
		x.want(want)
		if i == 1 {
			x.reopen()
		}
	}
	// One that broke off, twice, and one that is still sending.
	x.take(message{rollout: 8, upload: "a", samples: []int{1}})
	x.after(time.Second)
	x.take(message{rollout: 8, upload: "b", samples: []int{1}})
	x.take(message{rollout: 8, upload: "b", part: 1, samples: []int{2}})
	x.after(time.Second)
	x.take(message{rollout: 8, upload: "c", samples: []int{1}})
	x.after(14 * time.Minute)
	x.take(message{rollout: 8, upload: "c", part: 1, samples: []int{2}})
	x.want()
	x.after(time.Minute)
	x.want("r/rollout_8.pt [1] incomplete", "r/rollout_8.attempt1.pt [1 2] incomplete")
	equal(t, x.take(message{rollout: 8, upload: "c", part: 2, final: true, samples: []int{3}}), Receipt{"r", "train", 8, 1, 3, false, true})
	x.after(time.Minute)
	x.want("r/rollout_8.attempt2.pt [1 2 3]")
	x.idle()

	// Without names of uploads, another content is another attempt.
	x.take(message{rollout: 9, unnamed: true, id: "0", final: true, samples: []int{1}})
	x.after(time.Minute)
	equal(t, x.take(message{rollout: 9, unnamed: true, id: "0", final: true, samples: []int{1}}).Again, true)
	equal(t, x.take(message{rollout: 9, unnamed: true, id: "0", final: true, samples: []int{2}}).Again, false)
	x.reopen()
	x.after(time.Minute)
	x.want("r/rollout_9.pt [1]", "r/rollout_9.attempt1.pt [2]")
	x.idle()

	// What was forgotten does not overwrite a dump.
	x.after(25 * time.Hour)
	if files := x.files(); len(files) != 8 || slices.ContainsFunc(files, func(f string) bool { return !strings.HasSuffix(f, ".pt") }) {
		t.Error(files)
	}
	equal(t, len(x.rollouts), 0)
	x.take(message{rollout: 7, upload: "u0", final: true, samples: []int{4}})
	x.after(time.Minute)
	x.want("r/rollout_7.attempt3.pt [4]")
}

func TestInboxRefusals(t *testing.T) {
	x := newBox(t, func(o *InboxOptions) { o.Limits = trace.Limits{Bytes: 2000, LineBytes: 1000, Samples: 5} })
	x.take(message{upload: "u", samples: []int{1}})
	x.take(message{upload: "u", part: 2, final: true, samples: []int{3}})
	equal(t, x.take(message{upload: "u", samples: []int{1}}), Receipt{"r", "train", 0, 1, 2, true, false})
	equal(t, x.take(message{upload: "u", id: "renamed", samples: []int{1}}).Again, true)
	for _, m := range []message{
		{upload: "u", samples: []int{9}},                             // the same part, other samples
		{upload: "u", id: "other", samples: []int{9}},                //
		{upload: "u", id: "u-0", part: 1, samples: []int{1}},         // the same batch, another part
		{upload: "u", part: 3},                                       // after the last one
		{upload: "u", part: 1, parts: "9"},                           // there is none
		{upload: "u", part: 1, final: true},                          // a second last one
		{upload: "u", part: 1, final: true, samples: []int{1, 2, 3}}, //
	} {
		x.refused(RefusedConflict, 409, m)
	}
	err := x.refusedBody(RefusedMalformed, 400, strings.NewReader(message{}.body()+"{}\nnonsense"))
	var line *trace.LineError
	if !errors.As(err, &line) || line.Line != 3 {
		t.Error(err)
	}
	x.refusedBody(RefusedMalformed, 400, strings.NewReader(""))
	x.refusedBody(RefusedMalformed, 400, strings.NewReader(zipped(message{}.body())[:30]))
	x.refused(RefusedMalformed, 400, message{rollout: -1})
	for _, body := range []string{
		message{samples: []int{1, 2, 3, 4, 5, 6}}.body(),
		message{}.body() + strings.Repeat(" ", 2000),
		zipped(message{}.body() + strings.Repeat("\n", 1e6)),
		zipped(message{}.body() + `{"a":"` + strings.Repeat("x", 1000) + `"}`),
		zipped(message{}.body()) + strings.Repeat(zipped(""), 1000), // without any text
	} {
		if err := x.refusedBody(RefusedTooLarge, 413, strings.NewReader(body)); !errors.Is(err, trace.ErrTooLarge) {
			t.Error(err)
		}
	}
	limited := http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(strings.NewReader(message{}.body())), 50)
	x.refusedBody(RefusedTooLarge, 413, limited)
	gone := errors.New("the connection is gone")
	if err := x.refusedBody(RefusedInterrupted, 408, io.MultiReader(strings.NewReader(message{}.body()), iotest.ErrReader(gone))); !errors.Is(err, gone) {
		t.Error(err)
	}
	x.after(time.Hour)
	x.want("r/rollout_0.pt [1 3] missing 1 incomplete")
	x.release()
	x.refused(RefusedConflict, 409, message{upload: "u", samples: []int{9}}) // it is in the dump, with other samples
	x.idle()
}

func TestInboxBounds(t *testing.T) {
	x := newBox(t, func(o *InboxOptions) { o.MaxBytes, o.MaxBatches, o.MaxRollouts, o.MinFree = 40_000, 4, 2, 1000 })
	big := message{}.body() + strings.Repeat(`{"index":1,"response":"`+strings.Repeat("x", 1000)+`"}`+"\n", 30)
	if _, err := x.Take(context.Background(), strings.NewReader(zipped(big))); err != nil {
		t.Fatal(err)
	}
	if s := x.Status(); s.Bytes < 30_000 || s.Bytes > 40_000 { // counted by its text
		t.Error(s)
	}
	other := strings.Replace(big, `"part":0`, `"part":1`, 1)
	other = strings.Replace(other, `"batch_id":"u-0"`, `"batch_id":"u-1"`, 1)
	x.refusedBody(RefusedFull, 503, strings.NewReader(zipped(other)))
	x.refusedBody(RefusedFull, 503, strings.NewReader(other)) // while it is received
	x.refusedBody(RefusedTooLarge, 413, strings.NewReader(zipped(other+other[strings.Index(other, "\n"):])))
	x.take(message{rollout: 1})
	x.refused(RefusedFull, 503, message{rollout: 2})
	x.reopen() // the bounds are those of what is on disk
	x.refused(RefusedFull, 503, message{rollout: 2})
	x.refusedBody(RefusedFull, 503, strings.NewReader(zipped(other)))
	x.take(message{rollout: 1, part: 1, final: true})
	x.after(time.Minute)
	x.want("r/rollout_1.pt []")
	x.take(message{rollout: 2})
	x.after(time.Hour)
	x.release()
	x.idle()
	for part := range 4 {
		x.take(message{rollout: 3, part: part})
	}
	x.refused(RefusedFull, 503, message{rollout: 3, part: 4})
	x.after(time.Hour)
	x.release()

	free := int64(999)
	x.Inbox.o.Free = func(string) (int64, error) { return free, nil }
	x.refused(RefusedDiskFull, 507, message{rollout: 4})
	free = 1000
	x.take(message{rollout: 4, final: true})
	x.after(time.Minute)
	x.idle()

	// What the disk says.
	if r := refusal(fmt.Errorf("write: %w", fs.ErrPermission)); r.Status() != 500 || r.RetryAfter == 0 {
		t.Error(r)
	}
	x.Inbox.o.Free = freeBytes
	if n, err := freeBytes(x.dir); err != nil && !errors.Is(err, errors.ErrUnsupported) || err == nil && n <= 0 {
		t.Error(n, err)
	}
}

func TestInboxSenders(t *testing.T) {
	x := newBox(t, func(o *InboxOptions) { o.MaxSenders = 2 })
	var wg sync.WaitGroup
	var pipes []*io.PipeWriter
	for i := range 2 {
		r, w := io.Pipe()
		pipes = append(pipes, w)
		wg.Go(func() {
			if _, err := x.Take(context.Background(), r); err != nil {
				t.Error(i, err)
			}
		})
		if _, err := io.WriteString(w, message{rollout: int64(i), final: true}.body()); err != nil { // it is being received
			t.Fatal(err)
		}
	}
	err := x.refused(RefusedBusy, 503, message{rollout: 2})
	if r := refusal(err); r.RetryAfter <= 0 {
		t.Error(r)
	}
	for _, w := range pipes {
		_ = w.Close()
	}
	wg.Wait()
	x.take(message{rollout: 2, final: true})
	x.after(time.Minute)
	x.want("r/rollout_0.pt []", "r/rollout_1.pt []", "r/rollout_2.pt []")
	x.idle()

	// Who waits for a place gives up with its request.
	for range maxDecoders {
		x.decoders <- struct{}{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Take(ctx, strings.NewReader(message{}.body())); refusal(err).Reason != RefusedInterrupted || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestInboxSameBatchAtOnce(t *testing.T) {
	x := newBox(t, nil)
	reached, proceed := make(chan struct{}), make(chan struct{})
	x.stop = func(point string) error {
		if point == "batch written" {
			reached <- struct{}{}
			<-proceed
		}
		return nil
	}
	m := message{samples: []int{1}}
	answers := make(chan Receipt, 2)
	send := func() {
		r, err := x.Take(context.Background(), strings.NewReader(m.body()))
		if err != nil {
			t.Error(err)
		}
		answers <- r
	}
	go send()
	<-reached // not on disk yet: the second one must not be told that it is
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Take(ctx, strings.NewReader(m.body())); refusal(err).Reason != RefusedInterrupted {
		t.Error(err)
	}
	go send()
	proceed <- struct{}{}
	a, b := <-answers, <-answers
	if a.Again == b.Again || a.Total != 1 || b.Total != 1 {
		t.Error(a, b)
	}
}

func TestInboxManySenders(t *testing.T) {
	x := newBox(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	tick := make(chan time.Time)
	var wg sync.WaitGroup
	ran := make(chan struct{})
	go func() { x.Run(ctx, tick); close(ran) }()
	const senders, parts = 8, 6
	for s := range senders {
		wg.Go(func() {
			for p := range parts {
				m := message{run: fmt.Sprint("run", s%2), upload: fmt.Sprint("u", s), part: p, final: p == parts-1, samples: []int{s*100 + p}}
				for range 2 {
					if _, err := x.Take(ctx, strings.NewReader(zipped(m.body()))); err != nil {
						t.Error(err)
					}
				}
				_ = x.Status()
				_ = x.Dropped()
			}
		})
	}
	wg.Wait()
	x.now.Add(int64(time.Minute))
	tick <- time.Time{}
	tick <- time.Time{} // the first one is done with
	cancel()
	<-ran
	equal(t, len(x.got), 2)
	for i, d := range x.got {
		got := indexes(t, d.Path)
		slices.Sort(got)
		var want []int
		for s := range senders {
			for p := range parts {
				if s%2 == i {
					want = append(want, s*100+p)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", d.Path, got)
		}
	}
	x.idle()
}

func TestInboxHostileNames(t *testing.T) {
	long := strings.Repeat("ü", 128)
	names := []string{"..", ".", ".tmp", "/", "../../etc", "a/b", `a\b`, "a%2Fb", "CON", " ", "a b", long, long[:254] + "é", strings.Repeat("/", 256), "rollout_1.pt", "%", "~", "-"}
	x := newBox(t, nil)
	seen := map[string]string{}
	for _, n := range names {
		x.take(message{run: n, upload: strings.ToValidUTF8(n[:min(len(n), 128)], ""), id: "\x00/..", final: true, samples: []int{1}})
		e := encodeName(n)
		if other, ok := seen[e]; ok || e == "" || strings.HasPrefix(e, ".") || len(e) > 200 || strings.ContainsAny(e, "/\\\x00 ") {
			t.Errorf("%q becomes %q, as %q", n, e, other)
		}
		seen[e] = n
	}
	for _, u := range []string{"\x00", "\n", strings.Repeat("\x01", 128), strings.Repeat(`"`, 128)} {
		x.take(message{run: "uploads", upload: u, id: u, final: true})
	}
	x.reopen()
	x.after(time.Minute)
	equal(t, len(x.got), len(names)+1)
	for _, d := range x.got {
		if d.Run != "uploads" && !slices.Equal(indexes(t, d.Path), []int{1}) {
			t.Error(d)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == d.Run })
	}
	if len(names) > 0 {
		t.Errorf("not received: %q", names)
	}
	x.idle()
	outside, err := os.ReadDir(filepath.Dir(x.dir))
	if err != nil || len(outside) != 1 {
		t.Error(outside, err)
	}
}

func TestInboxHostileNumbers(t *testing.T) {
	x := newBox(t, nil)
	for _, u := range []string{"a", "b", "c"} {
		x.take(message{upload: u, part: 1_000_000, final: true, lost: math.MaxInt64})
	}
	s := x.Status().Rollouts[0]
	if s.Lost != 3*mostLost || s.Missing != 3_000_000 {
		t.Errorf("%+v", s)
	}
	x.after(time.Hour)
	x.want(fmt.Sprintf("r/rollout_0.pt [] lost %d missing 3000000 incomplete", 3*int64(mostLost)))

	x.take(message{rollout: math.MaxInt64, samples: []int{1}})
	for i := range maxUploads - 1 {
		x.rollouts[rolloutKey{"r", trace.Train, math.MaxInt64}].upload(fmt.Sprint("more", i), int64(i))
	}
	x.refused(RefusedFull, 503, message{rollout: math.MaxInt64, upload: "one more"})
	x.take(message{rollout: math.MaxInt64, part: 1, samples: []int{2}})

	// The clock was set back while nothing ran.
	x.take(message{rollout: 5, final: true, samples: []int{1}})
	x.now.Add(-int64(48 * time.Hour))
	x.reopen()
	x.after(2 * time.Second)
	x.want("r/rollout_5.pt [1]")
	x.after(15 * time.Minute)
	x.want("r/rollout_9223372036854775807.pt [1 2] incomplete")
	x.release()
	x.idle()
}

func TestInboxCountsAsTraceMissing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		u := newUpload("u", 0)
		var batches []trace.Batch
		for range r.IntN(8) {
			h := trace.Header{Part: r.IntN(6), Final: r.IntN(6) == 0}
			if r.IntN(3) == 0 {
				n := h.Part + 1 + r.IntN(3)
				h.Parts = &n
			}
			batches = append(batches, trace.Batch{Header: h})
			u.add(&partRecord{Header: h})
		}
		if missing, final := trace.Missing(batches); missing != u.missing() || final != u.final {
			t.Fatalf("seed %d: %d %v, trace.Missing: %d %v", seed, u.missing(), u.final, missing, final)
		}
	}
}
