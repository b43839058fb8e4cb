package timeline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rollscope/rollscope/internal/rollout"
)

type queryPart struct {
	Filter  string `json:"filter,omitempty"`
	Sort    string `json:"sort,omitempty"`
	Desc    bool   `json:"desc,omitempty"`
	Group   bool   `json:"group,omitempty"`
	Attempt *int64 `json:"attempt,omitempty"`
}

// queryVector is a query and its answers. The page's own implementation is tested with the same files.
type queryVector struct {
	queryPart
	Rows    []uint32 `json:"rows"`               // places in the columns; at most 100, the first ones
	Count   int      `json:"count"`              // of all rows
	ErrorAt *int     `json:"error_at,omitempty"` // UTF-16 offset, -1 when it is not about the filter
}

type rasterVector struct {
	Query queryPart `json:"query"`
	W     int       `json:"w"`
	H     int       `json:"h"`
	T0    int64     `json:"t0"`
	T1    int64     `json:"t1"`
	By    string    `json:"by"`
	Class []int     `json:"class"`
	Fill  []int     `json:"fill"`
}

type statsVector struct {
	Query queryPart `json:"query"`
	T0    int64     `json:"t0"`
	T1    int64     `json:"t1"`
	Stats *Stats    `json:"stats"`
}

type summaryVector struct {
	Query   queryPart `json:"query"`
	Summary *Summary  `json:"summary"`
}

type windowVector struct {
	Query    queryPart `json:"query"`
	From     int       `json:"from"`
	Count    int       `json:"count"`
	T0       int64     `json:"t0"`
	T1       int64     `json:"t1"`
	Pixels   int       `json:"px"`
	Open     []int     `json:"open"`
	Rows     []uint32  `json:"rows"`     // row.id
	Items    []uint32  `json:"items"`    // row.items
	Starts   []int64   `json:"starts"`   // item.start
	Durs     []int64   `json:"durs"`     // item.dur
	N        []uint32  `json:"n"`        // item.n
	Parents  []int32   `json:"parents"`  // item.parent
	Requests int       `json:"requests"` // how many
}

type vectors struct {
	Container string          `json:"container"` // in testdata/container
	Orders    []queryVector   `json:"orders"`
	Rasters   []rasterVector  `json:"rasters"`
	Stats     []statsVector   `json:"stats"`
	Windows   []windowVector  `json:"windows"`
	Summaries []summaryVector `json:"summaries"`
}

func (v *queryPart) query() Query {
	q := Query{Filter: v.Filter, Sort: v.Sort, Desc: v.Desc, Group: v.Group}
	if v.Attempt != nil {
		q.Attempt = rollout.Int{N: *v.Attempt, OK: true}
	}
	return q
}

func filters() []string {
	return []string{
		"", "   ", "trace-a", "TRACE", "rid-0", "rid-2 and tool", "42", "\"42\"", "-42", "- ", "-", "and", "and 42", "42 and", "42 AND 1 and", "42 and and 1",
		"\"and\"", "\"unclosed", "/unclosed", "/^rid-[0-9]/", "/[/", `/a\/b/`, `"\"><img"`, `"a\\b"`, "sglang", "name:sglang_generate", "name=sglang_generate",
		"name:[P]", "status=aborted", "status:o", "status<5", "Status=Completed", "-status:completed", "source=math", "source:\"\"", "source=\"\"", "label:x", "label=42",
		"trace:c", "rid=\"rid-0-aaaa\"", "reward>0", "reward=1", "reward:1", "reward<=0", "reward>=0", "-reward>0", "dur>3", "dur > 3", "dur>3000ms", "dur>=4.25s", "dur>0.05m",
		"dur>abc", "dur>", "dur", "dur>3x", "start<1", "end>10", "sample=3", "sample:3", "sample<2", "row=1", "row>1 row<3", "group=0", "group=1 and tokens>200", "rollout=7",
		"prompt=50", "lanes>1", "items=0", "requests>=1", "attempts=2", "open>0", "orphans=1", "points=1", "queue>0", "queue>=50ms", "e2e=1.9", "prefill>0.01", "decode>0",
		"retries=0", "flag:carried", "flag=shared", "flag:held", "flag:error", "flag:aborted", "flag:merged", "flag:critical", "flag:problem", "flag:empty", "-flag:empty",
		"flag:nope", "flag>1", "attr.completion_tokens>50", "attr.error_type=timeout", "attr.error_type:out", "attr.queue=3", "attr.nan:nan", "attr.big:1152921504606846976",
		"attr.\"url\":10.0", "attr.nope:x", "attr.", "attr.x", "attr.x y", "foo:bar", "http://x", "10.0.0.1:3", "a-b:c", "😀 foo:bar", "tokens>1e2", "tokens>inf", "tokens>0x10",
		"tokens > 100 and tokens < 400", "dur:4.25", "x\u00e9", "\"4 2\"", "name:", "name: tool", "reward=-0.25", "e2e>1s -flag:held",
	}
}

func vectorFor(t *testing.T, ix *Index, q queryPart) queryVector {
	t.Helper()
	order, err := ix.Order(q.query())
	v := queryVector{queryPart: q, Rows: []uint32{}}
	if err != nil {
		var qe *QueryError
		if !errors.As(err, &qe) {
			t.Fatalf("%+v: %v is no QueryError", v, err)
		}
		v.ErrorAt = &qe.At
		return v
	}
	v.Count = len(order)
	v.Rows = append(v.Rows, order[:min(len(order), 100)]...)
	return v
}

func ints8(b []uint8) []int {
	out := make([]int, len(b))
	for i, x := range b {
		out[i] = int(x)
	}
	return out
}

// TestVectors writes and compares the answers that both implementations give.
func TestVectors(t *testing.T) {
	one, zero := int64(1), int64(0)
	all := goldenContainers(t)
	for _, name := range []string{"f02", "f06", "f08"} { // dumps_test.go writes them
		b, err := os.ReadFile(filepath.Join("testdata", "container", name+".rtc"))
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = Decode(b); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			ix := NewIndex(c)
			v := vectors{Container: name + ".rtc"}
			list := filters()
			switch name {
			case "empty", "untraced":
				list = nil
			case "f02", "f06", "f08":
				list = []string{"completed", "name:tool", "flag:error", "attr.completion_tokens>500", "attr.error_type:timeout", "attempts>1", "prefill>0", "queue>1ms e2e>2s",
					"open>0", "dur>10s and -status:aborted", "/sample|rid/", "reward>=0.5", "retries>0", "label:a", "attr.phase=prefill", "flag:carried", "flag:held or"}
			}
			for _, f := range list {
				v.Orders = append(v.Orders, vectorFor(t, ix, queryPart{Filter: f}))
			}
			for _, s := range sortFields {
				for _, desc := range []bool{false, true} {
					v.Orders = append(v.Orders, vectorFor(t, ix, queryPart{Sort: s.name, Desc: desc}))
				}
			}
			for _, q := range []queryPart{{Sort: "nope"}, {Group: true}, {Group: true, Sort: "dur", Desc: true}, {Attempt: &zero}, {Attempt: &one, Sort: "end"},
				{Filter: "reward>0", Sort: "reward", Group: true}, {Sort: "start", Attempt: &one, Filter: "-flag:empty"}} {
				v.Orders = append(v.Orders, vectorFor(t, ix, q))
			}
			t0, t1 := ix.Extent()
			mid := t0 + (t1-t0)/2
			wins := [][2]int64{{t0, t1}, {t0 - 1000, mid}, {mid, mid + 1 + (t1-t0)/1000}}
			for _, q := range []queryPart{{}, {Sort: "dur", Desc: true}, {Attempt: &one}, {Filter: "status:completed"}} {
				sum, err := ix.Summary(q.query())
				if err != nil {
					t.Fatal(err)
				}
				v.Summaries = append(v.Summaries, summaryVector{q, sum})
				for _, w := range wins {
					if w[0] >= w[1] {
						continue
					}
					for _, size := range [][2]int{{16, 4}, {3, 40}} {
						for by, name := range byNames {
							if By(by) != ByClass && size[1] > size[0] { // rows higher than a pixel are copies: once is enough
								continue
							}
							img, err := ix.Raster(q.query(), By(by), size[0], size[1], w[0], w[1])
							if err != nil {
								t.Fatal(err)
							}
							v.Rasters = append(v.Rasters, rasterVector{q, size[0], size[1], w[0], w[1], name, ints8(img.Class), ints8(img.Fill)})
						}
					}
					st, err := ix.Stats(q.query(), w[0], w[1])
					if err != nil {
						t.Fatal(err)
					}
					v.Stats = append(v.Stats, statsVector{q, w[0], w[1], st})
					for _, px := range []int{0, 40} {
						o := WindowOptions{From: 1, Count: 5, T0: w[0], T1: w[1], Pixels: px, Open: map[int]bool{2: true, 5: true}}
						win, err := ix.Window(q.query(), o)
						if err != nil {
							t.Fatal(err)
						}
						v.Windows = append(v.Windows, windowVector{q, o.From, o.Count, o.T0, o.T1, px, []int{2, 5}, win.rowID.flat(),
							win.rows.items.flat(), win.items.start.flat(), win.items.dur.flat(), win.items.n.flat(), win.items.parent.flat(), win.Requests()})
					}
				}
			}
			j, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "vectors/"+name+".json", append(lines(j), '\n'))
		})
	}
}

// lines breaks JSON before the objects of its lists, so that a change is a line.
func lines(j []byte) []byte {
	var out []byte
	for i := 0; i < len(j); i++ {
		if j[i] == '{' && i > 0 && (j[i-1] == '[' || j[i-1] == ',') {
			out = append(out, '\n')
		}
		out = append(out, j[i])
	}
	return out
}

// TestOrderByHand checks rows that a person can see in handmade, so that the vectors do not only
// repeat the code.
func TestOrderByHand(t *testing.T) {
	ix := NewIndex(handmade(t))
	for _, x := range []struct {
		q    Query
		want []uint32
	}{
		{Query{}, []uint32{0, 1, 2, 3}},
		{Query{Filter: "reward>0"}, []uint32{0}},
		{Query{Filter: "-reward>0"}, []uint32{1, 2, 3}},
		{Query{Filter: "flag:empty"}, []uint32{1}},
		{Query{Filter: "RID-2"}, []uint32{2}},
		{Query{Filter: "name:tool"}, []uint32{2}},
		{Query{Filter: "dur>3.5 and -flag:held"}, []uint32{3}},
		{Query{Filter: "dur>=3s dur<4250.1ms"}, []uint32{0, 3}},
		{Query{Filter: "attr.completion_tokens>=100"}, []uint32{0}},
		{Query{Filter: "attr.error_type=TIMEOUT"}, []uint32{2}},
		{Query{Filter: "prefill=0.05"}, []uint32{0}}, // phases 0 and 3: 0.01 + 0.04
		{Query{Filter: "decode=0.25"}, []uint32{0}},  // phases 5, 8 and 9: 0.06 + 0.09 + 0.1
		{Query{Sort: "dur"}, []uint32{0, 3, 2, 1}},
		{Query{Sort: "dur", Desc: true}, []uint32{2, 3, 0, 1}}, // row 1 has none and comes last
		{Query{Sort: "reward"}, []uint32{2, 3, 0, 1}},
		{Query{Sort: "status"}, []uint32{2, 0, 1, 3}}, // aborted, completed, pending, truncated
		{Query{Sort: "sample", Desc: true, Group: true}, []uint32{3, 2, 0, 1}},
		{Query{Attempt: rollout.Int{N: 1, OK: true}}, []uint32{2}},
	} {
		got, err := ix.Order(x.q)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%+v: %v, not %v (%v)", x.q, got, x.want, err)
		}
	}
}

func TestLeavesByHand(t *testing.T) {
	ix := NewIndex(handmade(t))
	s := ix.allLeaves(ByClass).row(0)
	// From -1.000001 s: row 0 starts at 1.000001 s. generate_and_rm, [P] from 0.1 s with its segments
	// to 0.5 s, [P] itself to 0.6 s, [D] to 0.7 s, its segment to 2.1 s, the group, the reward, the group.
	at := []float64{0, 0.1, 0.2, 0.5, 0.6, 0.7, 2.1, 2.2, 2.9, 3}
	class := []Class{ClassGroup, ClassPhase + 1, ClassPhase + 3, ClassPrefill, ClassDecode, ClassPhase + 9, ClassGroup, ClassReward, ClassGroup, noLeaf}
	if len(s.at) != len(at) {
		t.Fatalf("stretches at %v with classes %v", s.at, s.class)
	}
	for i := range at {
		if want := int64(at[i]*1e6+0.5) + 1_000_001; s.at[i] != want || s.class[i] != uint8(class[i]) {
			t.Errorf("stretch %d is class %d at %d, not %d at %d", i, s.class[i], s.at[i], class[i], want)
		}
	}
	if len(s.dotAt) != 1 || s.dotClass[0] != uint8(ClassEvent) {
		t.Errorf("dots are %v %v", s.dotAt, s.dotClass)
	}
}

// TestRasterCoversAsMuchAsLeaves compares the sum of a picture of one row with the time it runs.
func TestRasterCoversAsMuchAsLeaves(t *testing.T) {
	ix := NewIndex(handmade(t))
	t0, t1 := ix.Extent()
	img, err := ix.Raster(Query{Filter: "row=3"}, ByClass, 1000, 1, t0, t1)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, f := range img.Fill {
		sum += int(f)
	}
	want := 4.25 / 10.500001 * 1000 * 255
	if d := float64(sum) - want; d > 255 || d < -255 {
		t.Errorf("fill adds up to %d, not %.0f", sum, want)
	}
}

// TestLevels merges a dump that is too large and keeps what it says it keeps.
func TestLevels(t *testing.T) {
	c := NewColumns(Head{Tool: "test"})
	for _, r := range fleetRows(300, 40) {
		c.Add(r)
	}
	if same, err := Levels(c, LevelOptions{}); err != nil || same != c {
		t.Fatalf("a small timeline was reduced: %v", err)
	}
	total := c.Items()
	w, err := Levels(c, LevelOptions{MaxItems: 6000, Slowest: 20, Pixels: 200})
	if err != nil {
		t.Fatal(err)
	}
	if w.Items() > 6000 || w.Rows() != 300 {
		t.Errorf("%d items in %d rows are left of %d", w.Items(), w.Rows(), total)
	}
	d, err := Decode(encode(t, w))
	if err != nil {
		t.Fatal(err)
	}
	if d.Head.Detail != "levels" || d.Head.Note == "" || len(d.Head.Attrs) == 0 {
		t.Errorf("the head says %q %q, %d blocks of attributes", d.Head.Detail, d.Head.Note, len(d.Head.Attrs))
	}
	sum := 0
	each(&d.items.n, func(n float64) { sum += int(n) })
	if sum != total {
		t.Errorf("items stand for %d, there were %d", sum, total)
	}
	a, b := NewIndex(c), NewIndex(d)
	slow, err := a.Order(Query{Sort: "dur", Desc: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range slow[:20] {
		if a.nItems[r] != b.nItems[r] {
			t.Errorf("the %d. slowest row has %d of %d items", i+1, b.nItems[r], a.nItems[r])
		}
		x, err := a.Row(int(r))
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Row(int(r))
		if err != nil {
			t.Fatal(err)
		}
		jx, _ := json.Marshal(x)
		jy, _ := json.Marshal(y)
		if string(jx) != string(jy) {
			t.Errorf("row %d changed:\n%s\n%s", r, jx, jy)
		}
	}
}

func TestRowDetail(t *testing.T) {
	ix := NewIndex(handmade(t))
	var out []any
	for r := range ix.Rows() {
		d, err := ix.Row(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	j, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "rows/hand.json", append(j, '\n'))
	for _, r := range []int{-1, 4} {
		if _, err := ix.Row(r); err == nil {
			t.Errorf("row %d was found", r)
		}
	}
}

func TestFind(t *testing.T) {
	ix := NewIndex(handmade(t))
	hits, total, err := ix.Find(Query{Sort: "dur", Desc: true}, "sglang", 0, 1)
	if err != nil || total != 2 || len(hits) != 1 || hits[0].Row != 2 || hits[0].Place != 0 || !slices.Equal(hits[0].Items, []int{0}) {
		t.Errorf("%+v of %d: %v", hits, total, err)
	}
	hits, _, err = ix.Find(Query{Sort: "dur", Desc: true}, "sglang", 1, 10)
	if err != nil || len(hits) != 1 || hits[0].Row != 0 || !slices.Equal(hits[0].Items, []int{2, 4, 5}) {
		t.Errorf("%+v: %v", hits, err)
	}
	if _, _, err := ix.Find(Query{}, "foo:bar", 0, 1); err == nil {
		t.Error("a wrong filter was taken")
	}
}

func TestNth(t *testing.T) {
	for _, d := range [][]int64{{5}, {2, 1}, {3, 3, 3}, {9, 1, 8, 2, 7, 3}, {1, 2, 3, 4, 5, 6, 7}, {7, 7, 1, 1, 7, 7, 1}} {
		want := slices.Sorted(slices.Values(d))
		for k := range d {
			if got := rollout.Nth(slices.Clone(d), k); got != want[k] {
				t.Errorf("place %d of %v is %d, not %d", k, d, got, want[k])
			}
		}
	}
}

// TestIndexIsSafe asks one index from many sides at once (for the race detector).
func TestIndexIsSafe(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "container", "many.rtc"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	ix := NewIndex(c)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := ask(ix); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// ask uses everything that an index can.
func ask(ix *Index) error {
	t0, t1 := ix.Extent()
	t1 = max(t1, t0+1)
	for _, q := range []Query{{}, {Sort: "decode", Group: true}, {Filter: "a"}, {Filter: "attr.x>1"}, {Attempt: rollout.Int{N: 1, OK: true}}} {
		for by := range By(len(byNames)) {
			if _, err := ix.Raster(q, by, 20, 20, t0, t1); err != nil {
				return err
			}
		}
		if _, err := ix.Summary(q); err != nil {
			return err
		}
		if _, err := ix.Stats(q, t0, t1); err != nil {
			return err
		}
		w, err := ix.Window(q, WindowOptions{Count: 50, T0: t0, T1: t1, Pixels: 50, Open: map[int]bool{1: true}})
		if err != nil {
			return err
		}
		w.settle()
		if _, _, err := ix.Find(q, "b", 0, 10); err != nil {
			return err
		}
		if ix.Rows() > 0 {
			if _, err := ix.Row(0); err != nil {
				return err
			}
		}
	}
	return nil
}

func FuzzQuery(f *testing.F) {
	for _, s := range filters() {
		f.Add(s, "dur", int64(-1))
	}
	f.Add("", "nope", int64(1))
	ix := NewIndex(handmade(f))
	f.Fuzz(func(t *testing.T, filter, sort string, attempt int64) {
		q := Query{Filter: filter, Sort: sort, Attempt: rollout.Int{N: attempt, OK: attempt >= 0}}
		order, err := ix.Order(q)
		if err != nil {
			var qe *QueryError
			if !errors.As(err, &qe) || qe.At > len(filter) || qe.What == "" {
				t.Fatalf("%q: %#v", filter, err)
			}
			return
		}
		seen := map[uint32]bool{}
		for _, r := range order {
			if seen[r] || int(r) >= ix.Rows() {
				t.Fatalf("%q: %v", filter, order)
			}
			seen[r] = true
		}
	})
}
