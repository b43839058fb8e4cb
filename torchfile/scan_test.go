package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// TestScanFixtures visits the samples of each generation of dumps, once with all fields and once
// with few, and compares with what Load sees.
func TestScanFixtures(t *testing.T) {
	for _, c := range []struct {
		name string
		path []string
		want int
	}{
		{"f02_head_pd_children", []string{"samples"}, 16},
		{"f08_streaming", []string{"samples"}, 8},
		{"f11_sample_objects", []string{"samples"}, 8},
		{"f12_sample_objects_py312", nil, 8},
		{"f13_pre5472_specinfo_object", []string{"samples"}, 4},
		{"f14_eval_dump", []string{"samples"}, 16},
		{"f25_malformed_traces", []string{"samples"}, 29},
		{"f27_empty", []string{"samples"}, 0},
		{"f29_train_dict_e0be9a075", []string{"tokens"}, 2},
		{"f30_pickle_1dc85516d.pkl", nil, 3},
		{"d01_rollout_7", []string{"samples"}, 3},
		{"d08_list", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := openTest(t, "testdata/dumps/"+c.name+".pt", nil)
			d, err := f.Load(LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			list := d.Root()
			for _, k := range c.path {
				list = list.Get(k)
			}
			for _, o := range []ScanOptions{{Path: c.path}, {Path: c.path, Fields: []string{"trace", "index"}, Index: true}, {Path: c.path, Except: []string{"trace"}}} {
				n := 0
				var end int64
				sd, err := f.Scan(o, func(e Element) error {
					if e.Ordinal != n || e.Partial || (e.Start < end || e.End <= e.Start) && e.End != 0 {
						t.Errorf("element %d: ordinal %d, bytes %d to %d after %d", n, e.Ordinal, e.Start, e.End, end)
					}
					end = e.End
					if tr := e.Field("trace"); tr.Exists() && o.Fields != nil && tr.Deferred() {
						t.Error("a wanted field is deferred")
					}
					if got, want := jsonOf(t, e.Value), jsonOf(t, list.Index(n)); !bytes.Equal(got, want) {
						t.Errorf("element %d is\n%.300s\nwant\n%.300s", n, got, want)
					}
					n++
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if n != list.Len() || c.want != n {
					t.Errorf("%d elements, Load has %d, want %d", n, list.Len(), c.want)
				}
				if o.Index && n > 0 && sd.Elements() > 0 {
					v, err := sd.Element(n - 1)
					if err != nil || !bytes.Equal(jsonOf(t, v), jsonOf(t, list.Index(n-1))) {
						t.Errorf("the last element again: %v", err)
					}
				}
			}
		})
	}
}

// TestScanDefers checks that unwanted fields are not decoded, and can be.
func TestScanDefers(t *testing.T) {
	for _, name := range []string{"f02_head_pd_children", "f11_sample_objects"} {
		f := openTest(t, "testdata/dumps/"+name+".pt", nil)
		full, err := f.Load(LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		deferred := 0
		_, err = f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"index", "status"}}, func(e Element) error {
			for _, k := range []string{"trace", "metadata", "tokens", "rollout_log_probs"} {
				v := e.Field(k)
				if v.Deferred() {
					deferred++
				}
				want := full.Root().Get("samples").Index(e.Ordinal).Field(k)
				if !bytes.Equal(jsonOf(t, v), jsonOf(t, want)) {
					t.Errorf("%s of element %d differs", k, e.Ordinal)
				}
				if v.Deferred() {
					t.Errorf("%s of element %d is still deferred after it was read", k, e.Ordinal)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if deferred < 4*4 {
			t.Errorf("%s: only %d fields were deferred", name, deferred)
		}
	}
}

// TestScanIdentity: two elements that share an object see the same identity, although the second
// refers to something that was forgotten.
func TestScanIdentity(t *testing.T) {
	trace := "}q\x05(" + uni("events") + "q\x06](}" + uni("n") + "K\x01sK\x02eu"
	p := "\x80\x02}(" + uni("samples") + "](}(" + uni("index") + "q\x01K\x00" + uni("trace") + "q\x02" + trace + "u}(h\x01K\x01h\x02h\x05u}(h\x01K\x02h\x02}ueu."
	f, err := OpenBytes([]byte(p), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, fields := range [][]string{nil, {"index"}, {"trace"}} {
		var ids []uint64
		var views []string
		if _, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: fields}, func(e Element) error {
			ids = append(ids, e.Get("trace").ID())
			views = append(views, string(jsonOf(t, e.Get("trace"))))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(ids) != 3 || ids[0] == 0 || ids[0] != ids[1] || ids[1] == ids[2] {
			t.Errorf("fields %v: identities %v", fields, ids)
		}
		if views[0] != `{"events":[{"n":1},2]}` || views[1] != views[0] {
			t.Errorf("fields %v: views %v", fields, views)
		}
	}
}

func TestScanStops(t *testing.T) {
	f := openTest(t, "testdata/dumps/f02_head_pd_children.pt", nil)
	n := 0
	d, err := f.Scan(ScanOptions{Path: []string{"samples"}}, func(Element) error {
		if n++; n == 3 {
			return Stop
		}
		return nil
	})
	if err != nil || n != 3 || d == nil {
		t.Errorf("stopped after %d: %v", n, err)
	}
	mine := errors.New("mine")
	if _, err = f.Scan(ScanOptions{Path: []string{"samples"}}, func(Element) error { return mine }); err != mine {
		t.Errorf("got %v", err)
	}
	if _, err = f.Scan(ScanOptions{Path: []string{"nothing"}}, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "leads to nothing") {
		t.Errorf("got %v", err)
	}
	if _, err = f.Scan(ScanOptions{Path: []string{"rollout_id"}}, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "kind int") {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("a visitor's panic does not pass")
			}
		}()
		_, _ = f.Scan(ScanOptions{Path: []string{"samples"}}, func(Element) error { panic("mine") })
	}()
	defer func() {
		if recover() == nil {
			t.Error("a visitor's runtime error does not pass")
		}
	}()
	_, _ = f.Scan(ScanOptions{Path: []string{"samples"}}, func(e Element) error {
		var none []int
		return fmt.Errorf("%d", none[e.Ordinal])
	})
}

// TestScanShapes visits lists that are not written in the plain way.
func TestScanShapes(t *testing.T) {
	for name, c := range map[string]struct {
		pickle string
		path   []string
		want   string
	}{
		"root list":       {"\x80\x02](K\x01K\x02" + uni("x") + "Ne.", nil, `1 2 "x" null `},
		"one by one":      {"\x80\x02]}" + uni("a") + "K\x01sa}a.", nil, `{"a":1} {} `},
		"protocol 0":      {"(lp0\n(dp1\nS'a'\np2\nI1\nsa(dp3\ng2\nI2\nsa.", nil, `{"a":1} {"a":2} `},
		"protocol 0 path": {"(dp0\nS'samples'\np1\n(lp2\n(dp3\nS'trace'\nI5\nsS'b'\nI6\nsas.", []string{"samples"}, `{"trace":5,"b":6} `},
		"single key":      {"\x80\x02}" + uni("samples") + "](}" + uni("a") + "]s}" + uni("b") + "K\x01ses.", []string{"samples"}, `{"a":[]} {"b":1} `},
		"tuple":           {"\x80\x02}" + uni("samples") + "K\x01}\x86s.", []string{"samples"}, `1 {} `},
		"set":             {"\x80\x04\x8f(K\x01K\x02\x90.", nil, `1 2 `},
		"dict":            {"\x80\x02}(" + uni("a") + "K\x01" + uni("b") + "K\x02u.", nil, `1 2 `},
		"groups":          {"\x80\x02](](}K\x01e]}ae.", nil, `[{},1] [{}] `},
		"shared list":     {"\x80\x02}(" + uni("x") + "]q\x00K\x01a" + uni("samples") + "h\x00u.", []string{"samples"}, `1 `},
		"deeper":          {"\x80\x02}(" + uni("a") + "}(" + uni("b") + "](K\x01K\x02eK\x03K\x04uu.", []string{"a", "b"}, `1 2 `},
		"two batches":     {"\x80\x02](}}e(}K\x01e.", nil, `{} {} {} 1 `},
		"memo in tuple":   {"\x80\x02](K\x01\x85q\x00}h\x00e.", nil, `{"$tuple":[1]} {} {"$tuple":[1]} `},
		"objects":         {"\x80\x02](cx\nA\nq\x00)\x81}" + uni("k") + "K\x01sbh\x00)\x81}be.", nil, `{"$obj":{"class":"x.A","state":{"k":1}}} {"$obj":{"class":"x.A","state":{}}} `},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := OpenBytes([]byte(c.pickle), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, fields := range [][]string{nil, {"trace"}} {
				got := ""
				if _, err := f.Scan(ScanOptions{Path: c.path, Fields: fields}, func(e Element) error {
					got += string(jsonOf(t, e.Value)) + " "
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if got != c.want {
					t.Errorf("fields %v: visited %s, want %s", fields, got, c.want)
				}
			}
		})
	}
}

// TestScanCostsNoMemory: twice the samples need no more memory.
func TestScanCostsNoMemory(t *testing.T) {
	allocs := func(samples int) float64 {
		var b bytes.Buffer
		if err := writeSlime(&b, samples); err != nil {
			t.Fatal(err)
		}
		f, err := OpenBytes(b.Bytes(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(3, func() {
			events := 0
			_, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace"}}, func(e Element) error {
				for _, ev := range e.Get("trace").Get("events").All() {
					if ev.Get("type").Is("span_end") {
						events++
					}
				}
				return nil
			})
			if err != nil || events != samples*28 {
				t.Fatal(events, err)
			}
		})
	}
	few, many := allocs(20), allocs(60)
	if many > few+40 {
		t.Errorf("20 samples cost %v allocations, 60 cost %v", few, many)
	}
}

// TestScanNumbers visits the elements of a long list of numbers, in pickles with and without MEMOIZE.
func TestScanNumbers(t *testing.T) {
	const n = 200_000
	var batches strings.Builder
	for range n / 1000 {
		batches.WriteString("(" + strings.Repeat("K\x07", 1000) + "e")
	}
	for _, p := range []string{"\x80\x02]q\x00" + batches.String() + ".", "\x80\x04]\x94" + batches.String() + "."} {
		f, err := OpenBytes([]byte(p), nil)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		if _, err := f.Scan(ScanOptions{}, func(e Element) error {
			i, _ := e.Int()
			sum += i
			return nil
		}); err != nil || sum != 7*n {
			t.Errorf("sum %d, %v", sum, err)
		}
	}
	// Empty lists, which may always grow: held until their batch ends.
	f, err := OpenBytes([]byte("\x80\x02]("+strings.Repeat("]", n)+"e."), nil)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	if _, err := f.Scan(ScanOptions{}, func(e Element) error {
		count++
		return nil
	}); err != nil || count != n {
		t.Errorf("%d empty lists, %v", count, err)
	}
}

// TestElementsAgain decodes elements of a scan many times: neither memory nor work adds up.
func TestElementsAgain(t *testing.T) {
	f := openTest(t, "testdata/dumps/f15_protocol4.pt", nil)
	d, err := f.Scan(ScanOptions{Path: []string{"samples"}, Index: true}, func(Element) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for round := range 300 {
		for i := range d.Elements() {
			v, err := d.Element(i)
			if err != nil {
				t.Fatal(err)
			}
			if ix, ok := v.Get("index").Int(); !ok || int(ix) != i {
				t.Fatalf("element %d has index %d", i, ix)
			}
		}
		if round == 0 {
			nodes = len(d.nodes)
		}
	}
	if len(d.nodes) != nodes {
		t.Errorf("%d nodes after one round, %d after many", nodes, len(d.nodes))
	}
	if _, err := d.Element(d.Elements()); err == nil {
		t.Error("an element beyond the last")
	}
	if id, ok := d.Root().Get("rollout_id").Int(); !ok || id != 12 {
		t.Errorf("the root afterwards: %d", id)
	}
}

// TestConcurrentReaders reads one File from several goroutines, tensors included.
func TestConcurrentReaders(t *testing.T) {
	for _, name := range []string{"f09_tensors_multimodal", "f16_legacy_nonzip", "f18_zip_deflated"} {
		f := openTest(t, "testdata/dumps/"+name+".pt", nil)
		views := make([]string, 4)
		var wg sync.WaitGroup
		for i := range views {
			wg.Go(func() {
				d, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"index"}}, func(e Element) error {
					views[i] += string(jsonOf(t, e.Value))
					return nil
				})
				if err != nil || d == nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range views {
			if views[i] != views[0] || len(views[0]) < 1000 {
				t.Errorf("%s: reader %d sees something else", name, i)
			}
		}
	}
}

// TestScanRefersBack scans elements that refer to strings, numbers, classes and containers of much
// earlier ones, which the scan has packed away meanwhile.
func TestScanRefersBack(t *testing.T) {
	for _, proto := range []byte{2, 4} {
		var p bytes.Buffer
		p.Write([]byte{opProto, proto})
		slots := 0
		put := func() int {
			if proto == 4 {
				p.WriteByte(opMemoize)
			} else {
				p.WriteString("r" + put4(slots))
			}
			slots++
			return slots - 1
		}
		get := func(i int) { p.WriteString("j" + put4(i)) }
		rnd := rand.New(rand.NewPCG(5, 6))
		var strs, dicts, tuples, numbers, classes []int
		p.WriteString("](")
		const n = 3000
		for i := range n {
			p.WriteString("}(")
			p.WriteString(uni("s"))
			put()
			if rnd.IntN(2) == 0 {
				p.WriteString(uni(fmt.Sprintf("string %d", i)))
			} else {
				p.WriteString("\x8c\x05" + fmt.Sprintf("%05d", i))
			}
			strs = append(strs, put())
			p.WriteString(uni("d") + "}")
			dicts = append(dicts, put())
			p.WriteString(uni("i") + "M" + string([]byte{byte(i), byte(i >> 8)}) + "s")
			p.WriteString(uni("t") + "K\x01]") // a tuple of a number and a list
			put()
			p.WriteString("K\x07a\x86")
			tuples = append(tuples, put())
			if i%50 == 0 {
				p.WriteString(uni("n") + "G\x3f\xf0\x00\x00\x00\x00\x00" + string([]byte{byte(i / 50)}))
				numbers = append(numbers, put())
				p.WriteString(uni("c") + "cmod\nClass" + fmt.Sprint(i) + "\n")
				classes = append(classes, put())
				p.WriteString(uni("b") + "C\x03abc")
				strs = append(strs, put())
			}
			if i > 0 && rnd.IntN(3) == 0 {
				for k, of := range [][]int{strs, dicts, tuples, numbers, classes} {
					p.WriteString(uni(fmt.Sprintf("r%d", k)))
					get(of[rnd.IntN(len(of))])
				}
				p.WriteString(uni("o"))
				get(classes[rnd.IntN(len(classes))])
				p.WriteString(")\x81")
			}
			p.WriteString("u")
			if i%1000 == 999 {
				p.WriteString("e(")
			}
		}
		p.WriteString("Ne.")
		f, err := OpenBytes(p.Bytes(), nil)
		if err != nil {
			t.Fatal(err)
		}
		full, err := f.Load(LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var want []Value
		for _, v := range full.Root().All() {
			want = append(want, v)
		}
		for _, fields := range [][]string{nil, {"s", "r0", "r4"}, {"d", "r1", "o"}} {
			d, err := f.Scan(ScanOptions{Fields: fields, Index: true}, func(e Element) error {
				if rnd.IntN(4) > 0 && e.Ordinal < n-20 {
					return nil
				}
				if got, want := jsonOf(t, e.Value), jsonOf(t, want[e.Ordinal]); !bytes.Equal(got, want) {
					return fmt.Errorf("element %d is\n%s\nwant\n%s", e.Ordinal, got, want)
				}
				if a, b := e.Get("r1").ID(), want[e.Ordinal].Get("r1").ID(); a != b {
					return fmt.Errorf("element %d has a dict with identity %d, want %d", e.Ordinal, a, b)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("protocol %d, fields %v: %v", proto, fields, err)
			}
			packed := 0
			for _, pg := range d.memo.pages {
				if pg.narrow != nil {
					packed++
				}
			}
			if packed == 0 {
				t.Error("no memo page was packed")
			}
			for i := 0; i < n; i += 97 {
				v, err := d.Element(i)
				if err != nil || !bytes.Equal(jsonOf(t, v), jsonOf(t, want[i])) {
					t.Fatalf("protocol %d: element %d again: %v", proto, i, err)
				}
			}
		}
	}
}

// TestMemoPages assigns slots of packed pages late.
func TestMemoPages(t *testing.T) {
	var m memoTable
	for i := range 3 * pageSlots {
		a := uint64(0)
		if i%3 == 0 {
			a = mkCell(ckStr, subLen4, 1000+7*i, 0).a
		}
		m.add(a)
	}
	m.pack(0)
	m.pack(1)
	m.set(1, mkCell(ckNode, 0, 5, 0).a)
	if m.pack(0) != 0 || m.pages[0].wide == nil {
		t.Error("a page with a node was packed")
	}
	if m.pages[1].narrow == nil {
		t.Error("a page of strings was not packed")
	}
	for i := range 3 * pageSlots {
		want := uint64(0)
		switch {
		case i == 1:
			want = mkCell(ckNode, 0, 5, 0).a
		case i%3 == 0:
			want = mkCell(ckStr, subLen4, 1000+7*i, 0).a
		}
		if m.get(i) != want {
			t.Fatalf("slot %d is %x, want %x", i, m.get(i), want)
		}
	}
	far := memoTable{}
	for i := range pageSlots {
		far.add(mkCell(ckDeferred, 0, i<<20, 0).a)
	}
	if far.pack(0) != 0 {
		t.Error("a page that spans 4 GiB was packed")
	}
}
