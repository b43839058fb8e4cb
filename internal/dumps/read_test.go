package dumps

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/sim/rolls"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

func writeRolls(t *testing.T, name string, o rolls.Options) (path string, st rolls.Stats) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	st, err := rolls.WriteFile(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return path, st
}

// One pass tells what the simulator says that it wrote.
func TestRead(t *testing.T) {
	o := rolls.Options{Seed: 3, RolloutID: 4, Samples: 160, GroupSize: 8, PD: true, MultiTurn: 0.5, Partial: 0.2, Response: rolls.Lengths{Median: 60, Sigma: 0.8, Max: 400}}
	path, want := writeRolls(t, "rollout_4.pt", o)
	var samples int
	var at int64
	st, err := Read(t.Context(), path, ReadOptions{Tool: "test", Texts: 5, Progress: func(n int, end int64) {
		if n < samples || end < at {
			t.Errorf("progress goes back: %d samples at %d after %d at %d", n, end, samples, at)
		}
		samples, at = n, end
	}})
	if err != nil {
		t.Fatal(err)
	}
	if samples == 0 || at == 0 || at > st.Size {
		t.Errorf("progress ends with %d samples at %d of %d", samples, at, st.Size)
	}
	if st.Samples != want.Samples || st.Groups != want.Groups || st.Requests != want.Requests || st.Events != want.Events || st.Size != want.Bytes ||
		st.Statuses["completed"] != want.Completed || st.Statuses["truncated"] != want.Truncated || st.Traced != want.Samples || st.Skipped != 0 || st.Partial != nil {
		t.Errorf("%+v\nwritten were %+v", st, want)
	}
	if got := st.Rewards / float64(st.Rewarded); got != want.Reward {
		t.Errorf("mean reward %g, written %g", got, want.Reward)
	}
	if len(st.Wall.Carried) != want.Carried || !st.Wall.Known {
		t.Errorf("carried over are %d, written %d", len(st.Wall.Carried), want.Carried)
	}
	if d := st.Last.Sub(st.First); d <= 0 || d > want.Duration() {
		t.Errorf("the step lasts %s, simulated %s", d, want.Duration())
	}
	head := st.Columns.Head.Dump
	if st.Columns.Rows() != want.Samples || head.Fingerprint != st.Fingerprint || st.Fingerprint == "" || *head.RolloutID != 4 || head.Kind != "train" {
		t.Errorf("timeline of %d rows, %+v", st.Columns.Rows(), head)
	}
	var buf bytes.Buffer
	if err := st.Columns.Encode(&buf); err != nil {
		t.Fatal(err)
	}
	if _, err := timeline.Decode(buf.Bytes()); err != nil {
		t.Error(err)
	}

	// What is not wanted is not there, and changes nothing else.
	less, err := Read(t.Context(), path, ReadOptions{NoTimeline: true, NoMetrics: true})
	if err != nil {
		t.Fatal(err)
	}
	if less.Columns != nil || less.Metrics != nil || less.Samples != st.Samples || less.Requests != st.Requests || less.Fingerprint != st.Fingerprint {
		t.Errorf("without timeline and metrics: %+v", less)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(errors.New("enough"))
	if _, err := Read(ctx, path, ReadOptions{}); err == nil || err.Error() != "enough" {
		t.Errorf("a reader that was ended: %v", err)
	}
}

// Of a file that was cut there is an error, or what is there and a mark on it.
func TestReadCut(t *testing.T) {
	path, want := writeRolls(t, "rollout_4.pt", rolls.Options{Samples: 32, Response: rolls.Lengths{Median: 40, Max: 100}})
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(t.Context(), path, ReadOptions{}); !errors.Is(err, torchfile.ErrIncomplete) {
		t.Errorf("a file that was cut: %v", err)
	}
	st, err := Read(t.Context(), path, ReadOptions{Salvage: true})
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(st.Partial, torchfile.ErrIncomplete) || st.Samples == 0 || st.Samples >= want.Samples || st.Columns.Rows() != st.Samples {
		t.Errorf("%d of %d samples, %v", st.Samples, want.Samples, st.Partial)
	}
	for _, m := range st.Metrics.Result().Perf {
		if m.State == rollout.MetricValue {
			t.Errorf("%s of a part looks like that of all", m.Key)
			break
		}
	}
	// The mark is of the bytes that are there: it is another one when the file has grown.
	if err := os.WriteFile(path, b[:len(b)*3/4], 0o644); err != nil {
		t.Fatal(err)
	}
	more, err := Read(t.Context(), path, ReadOptions{Salvage: true})
	if err != nil {
		t.Fatal(err)
	}
	if more.Fingerprint == st.Fingerprint || more.Samples <= st.Samples {
		t.Errorf("%d samples of more of the file, %d before; fingerprint %s", more.Samples, st.Samples, more.Fingerprint)
	}
	if _, err := Read(t.Context(), filepath.Join(t.TempDir(), "none.pt"), ReadOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A page embeds the texts of the samples that ended last, whatever the order of the dump.
func TestLateTexts(t *testing.T) {
	l := lateTexts{most: 3}
	for i, end := range []int64{5, 9, 1, 7, 9, 3, 8} {
		l.add(&timeline.Row{Sample: &rollout.Sample{Ordinal: i}, Items: make([]timeline.Item, 1), End: end})
	}
	var got []int
	for _, k := range l.kept {
		got = append(got, k.ordinal)
	}
	if len(got) != 3 || l.kept[0].end != 8 || l.kept[1].end != 9 || l.kept[2].end != 9 {
		t.Errorf("kept are %v", l.kept)
	}
	none := lateTexts{}
	none.add(&timeline.Row{Sample: &rollout.Sample{}, Items: make([]timeline.Item, 1)})
	if len(none.kept) != 0 {
		t.Error("texts nobody asked for")
	}
}
