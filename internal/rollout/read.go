package rollout

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/rollscope/rollscope/torchfile"
)

// Options are the choices of [Read].
type Options struct {
	// RewardKey names the entry of a dict reward that counts (slime's --reward-key).
	RewardKey string
	// NoTrace leaves Trace.Events and Requests empty, NoMask leaves EffectiveLength missing; both save time.
	NoTrace, NoMask bool
	// Only, when not nil, tells which ordinals the visitor wants; others are counted, not decoded.
	Only func(ordinal int) bool
	// Entry, when not nil, is given each entry of a list that is streamed, before the samples in it are
	// visited, so that somebody else needs no pass of their own. Header.Streamed says that those were all
	// entries. An error of it ends the reading and is returned.
	Entry func(v torchfile.Value) error
	// Eval says that the dump is one of an evaluation. slime tells that by the file's name alone
	// (rollout_eval_7.pt, see [FromName]); a file that says so itself needs no hint.
	Eval bool
	// RolloutID is the step's number where the caller knows it (from the file's name). It counts when
	// the file does not tell.
	RolloutID Int
}

// Header is what a dump says about itself.
type Header struct {
	Kind      Kind
	RolloutID Int
	Samples   int    // entries, samples without a trace and entries that are no samples included
	Shape     string // what the file holds: "dict of samples", "list of samples", "train dict", "datasets", "nothing"
	Nested    bool   // samples stood in lists within the list
	Streamed  bool   // all samples came out of a list that was streamed
	// Datasets are the keys under which an evaluation's samples stood, in the order of the file.
	Datasets []string
	// Opaque lists the classes of the file that nobody here has, each once, sorted. slime's Sample and
	// its parts are known.
	Opaque []string
	// Problems are oddities of the file rather than of one sample.
	Problems []Problem
}

// Shapes of a dump.
const (
	ShapeDict     = "dict of samples"
	ShapeList     = "list of samples"
	ShapeTrain    = "train dict"
	ShapeDatasets = "datasets"
	ShapeNothing  = "nothing"
)

var (
	// errWhole ends a scan whose list is not streamed: the Doc that comes back is walked instead.
	errWhole = errors.New("the list was decoded whole")
	// ErrShape: the file can be read, and holds nothing that looks like samples.
	ErrShape = errors.New("no samples in this file")
)

// Read visits the samples of a dump in the order of the file. An error of the visitor ends it and is
// returned ([torchfile.Stop] ends it without one); a sample that cannot be decoded is visited with its
// Problems. An error of the file is returned after the samples before it have been visited, together
// with a Header of those.
//
// Dumps of {"rollout_id", "samples": [...]} are streamed: memory does not grow with the file. Others
// are decoded whole first, which takes a few percent of the file's size.
func Read(f *torchfile.File, opts Options, visit func(*Sample) error) (*Header, error) {
	r := newReader(f, opts, visit)
	err := f.Guard(func() error { return r.read(f) })
	if errors.Is(err, torchfile.Stop) {
		err = nil
	}
	return r.finish(), err
}

// FromName reads what slime puts into a dump's file name: rollout_7.pt is rollout 7, rollout_eval_7.pt
// the evaluation at rollout 7. The number is the last one in the name.
func FromName(name string) (kind Kind, id Int) {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	if i := strings.IndexByte(name, '.'); i > 0 {
		name = name[:i]
	}
	end := len(name)
	for end > 0 && (name[end-1] < '0' || name[end-1] > '9') {
		end--
	}
	start := end
	for start > 0 && name[start-1] >= '0' && name[start-1] <= '9' {
		start--
	}
	if n, ok := pyInt(name[start:end]); ok {
		id = Int{n, true}
	}
	if before, ok := strings.CutSuffix(name[:start], "eval_"); ok && (before == "" || strings.ContainsAny(before[len(before)-1:], "_-.")) {
		kind = Eval
	}
	return kind, id
}

// reader is the state of one Read.
type reader struct {
	opts  Options
	visit func(*Sample) error
	hdr   Header
	doc   *torchfile.Doc // of the last Load or Scan

	sample  Sample
	words   intern
	text    arena
	ints    []int64
	floats  []float64
	fields  [numFields]torchfile.Value
	shared  map[uint64]int // carrier's identity -> ordinal of the first sample that has it
	spans   spanTable
	roots   []string
	entries int64 // how many more entries may be looked at
	events  int64 // how many more events may be looked at
	work    int64 // how many more steps may be taken within dicts and masks; see afford

	dataset string
	stack   []uint64 // identities of the lists around an entry
	path    []int    // places in them
	part    int      // samples seen in the present member
	partOf  [2]int
	top     int // top-level entries that are done
	end     int64
}

func newReader(f *torchfile.File, opts Options, visit func(*Sample) error) *reader {
	r := &reader{opts: opts, visit: visit, shared: map[uint64]int{}, partOf: [2]int{-1, -1}}
	r.hdr.RolloutID = opts.RolloutID
	if opts.Eval {
		r.hdr.Kind = Eval
	}
	// A file has no more entries, events or dict entries than bytes, but what is referred to over and over
	// has: that must not be paid for each time.
	size := pickleSize(f)
	r.entries = 2*size + 1<<20
	r.events = 2*size + 1<<20
	r.work = 4*size + 1<<22
	return r
}

// pickleSize is at least the size of the file's pickle in bytes, which is compressed in some files.
func pickleSize(f *torchfile.File) int64 {
	size := f.Size()
	for _, r := range f.Records() {
		if r.Compressed && strings.HasSuffix(r.Name, "data.pkl") {
			size = max(size, min(r.Size, 4<<30))
		}
	}
	return size
}

// wanted are the keys that a sample's visitor needs; others are decoded when asked for.
func (r *reader) wanted() []string {
	out := make([]string, 0, len(fieldNames))
	for name, id := range fieldNames {
		if id == fTrace && r.opts.NoTrace || id == fLossMask && r.opts.NoMask {
			continue
		}
		out = append(out, name)
	}
	sort.Strings(out)
	return out
}

var samplesPath = []string{"samples"}

func (r *reader) read(f *torchfile.File) error {
	// The first element tells what the file is, and the number that stands before it.
	streamed := false
	d, err := f.Scan(torchfile.ScanOptions{Path: samplesPath, Fields: []string{"index"}}, func(e torchfile.Element) error {
		if e.End > 0 {
			streamed = true
			return torchfile.Stop
		}
		return errWhole
	})
	if d == nil {
		return err
	}
	r.doc = d
	r.header(d.Root())
	if !streamed {
		if errors.Is(err, torchfile.ErrOrder) {
			return r.load(f)
		}
		if errors.Is(err, errWhole) || d.Cut() == nil {
			err = nil
		}
		if e := r.whole(d.Root()); e != nil {
			return e
		}
		return err
	}
	r.hdr.Shape, r.hdr.Streamed = ShapeDict, true
	var failed error
	d, err = f.Scan(torchfile.ScanOptions{Path: samplesPath, Fields: r.wanted()}, func(e torchfile.Element) error {
		r.end = e.End
		if r.opts.Entry != nil {
			if failed = r.opts.Entry(e.Value); failed != nil {
				return failed
			}
		}
		failed = r.entry(e.Value, e.Ordinal, e.Partial)
		r.top++
		return failed
	})
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, torchfile.ErrOrder):
		return r.load(f)
	case d != nil:
		r.doc = d
		r.header(d.Root())
	}
	return err
}

// load reads a file that cannot be streamed: something in it changes a value after it was complete.
func (r *reader) load(f *torchfile.File) error {
	r.hdr.Streamed = false
	d, err := f.Load(torchfile.LoadOptions{Path: samplesPath, Fields: r.wanted()})
	if d == nil {
		return err
	}
	r.doc = d
	r.header(d.Root())
	r.fileProblem("order", "samples", "the file changes values after they are complete; it was decoded whole")
	if e := r.whole(d.Root()); e != nil {
		return e
	}
	return err
}

// header takes what stands beside the samples.
func (r *reader) header(root torchfile.Value) {
	id := root.Field("rollout_id")
	if n, why := integer(id); why == "" {
		r.hdr.RolloutID = Int{n, true}
	} else if s := id.RawStr(); s != nil {
		if kind, n := FromName(string(s[:min(len(s), 64)])); n.OK {
			r.hdr.RolloutID = n
			if kind == Eval {
				r.hdr.Kind = Eval
			}
		}
	}
	for _, key := range [...]string{"evaluation", "is_eval", "eval"} {
		if b, ok := root.Field(key).Bool(); ok && b {
			r.hdr.Kind = Eval
		}
	}
}

// whole walks a value that was decoded whole.
func (r *reader) whole(root torchfile.Value) error {
	v := root.Field("samples")
	switch {
	case !v.Exists():
		v = root
	default:
		r.hdr.Shape = ShapeDict
	}
	switch {
	case isList(v):
		if r.hdr.Shape == "" {
			r.hdr.Shape = ShapeList
		}
		if v.Len() == 0 {
			r.hdr.Shape = ShapeNothing
		}
		return r.list(v)
	case isMapping(v) && r.isTrain(v.Field("rollout_data")): // save_debug_train_data before format_version 2
		r.hdr.Shape = ShapeTrain
		return r.train(v.Field("rollout_data"))
	case isMapping(v) && r.isTrain(v):
		r.hdr.Shape = ShapeTrain
		return r.train(v)
	case isMapping(v) && r.isDatasets(v):
		r.hdr.Shape = ShapeDatasets
		r.hdr.Kind = Eval
		return r.datasets(v)
	case isMapping(v) && looksLikeSample(v):
		r.hdr.Shape = ShapeDict
		return r.entry(v, 0, false)
	case isMapping(v) && v.Len() > 0 && allSamples(v):
		r.hdr.Shape = ShapeDict
		i := 0
		for _, x := range v.Pairs() {
			if err := r.entry(x, i, false); err != nil {
				return err
			}
			i++
		}
		return nil
	case isMapping(v) && r.hdr.Shape == ShapeDict && v.Len() == 0 || v.IsNone() && r.hdr.Shape == ShapeDict:
		r.hdr.Shape = ShapeNothing
		return nil
	}
	r.hdr.Shape = ShapeNothing
	return fmt.Errorf("%w: the top level is %s; expected {\"rollout_id\", \"samples\": [...]}, a list of samples, or a dict of lists", ErrShape, describe(root))
}

// list visits the entries of a list that was decoded whole, from the first that was not visited yet.
func (r *reader) list(v torchfile.Value) error {
	from := r.top
	r.stack = append(r.stack[:0], v.ID())
	for i, x := range v.All() {
		if i < from {
			continue
		}
		if err := r.entry(x, i, false); err != nil {
			return err
		}
		r.top++
	}
	return nil
}

// datasets visits an evaluation's samples, which stand under their dataset's name.
func (r *reader) datasets(v torchfile.Value) error {
	for key, x := range v.Pairs() {
		r.dataset = r.words.text(key, maxWord)
		r.partOf = [2]int{-1, -1}
		r.hdr.Datasets = append(r.hdr.Datasets, r.dataset)
		var err error
		switch s := x.Field("samples"); {
		case isList(s):
			r.top = 0
			err = r.list(s)
		case isList(x):
			r.top = 0
			err = r.list(x)
		default:
			err = r.train(x)
		}
		if err != nil {
			return err
		}
	}
	r.dataset = ""
	return nil
}

// isDatasets says that every value is {"samples": [...]}, {"rewards": [...]} or a list of samples.
func (r *reader) isDatasets(v torchfile.Value) bool {
	n := 0
	for _, x := range v.Pairs() {
		switch {
		case isList(x.Field("samples")), isList(x.Field("rewards")):
		case isList(x) && x.Len() > 0 && looksLikeSample(x.Index(0)):
		default:
			return false
		}
		n++
	}
	return n > 0
}

func allSamples(v torchfile.Value) bool {
	for _, x := range v.Pairs() {
		if !looksLikeSample(x) {
			return false
		}
	}
	return true
}

// maxNest bounds how deep lists of samples nest.
const maxNest = 64

// entry visits one member of a list: a sample, a list of such members, or what is neither.
func (r *reader) entry(v torchfile.Value, place int, partial bool) error {
	if r.entries--; r.entries < 0 {
		return fmt.Errorf("reading samples: %w: lists that hold each other have more entries than the file has bytes", torchfile.ErrLimit)
	}
	r.path = append(r.path, place)
	defer func() { r.path = r.path[:len(r.path)-1] }()
	inner := v
	if k := v.Kind(); k == torchfile.KindDict && r.afford(v.Len()) && !looksLikeSample(v) {
		if s := v.Get("samples"); isList(s) {
			inner = s
		}
	}
	if !isList(inner) {
		return r.leaf(v, partial, "")
	}
	if len(r.path) > maxNest {
		return r.leaf(v, partial, "lists are nested too deeply")
	}
	id := inner.ID()
	for _, x := range r.stack {
		if x == id {
			return r.leaf(v, partial, "a list that holds itself")
		}
	}
	r.hdr.Nested = true
	r.stack = append(r.stack, id)
	defer func() { r.stack = r.stack[:len(r.stack)-1] }()
	for i, x := range inner.All() {
		if err := r.entry(x, i, partial); err != nil {
			return err
		}
	}
	return nil
}

// leaf decodes and visits one sample, or what stands where one should.
func (r *reader) leaf(v torchfile.Value, partial bool, not string) error {
	ordinal := r.begin()
	if r.opts.Only != nil && !r.opts.Only(ordinal) {
		return nil
	}
	s := &r.sample
	s.Raw = v
	if partial {
		r.problem("cut", "", "the file ends within this sample")
	}
	switch {
	case not != "":
		r.problem("not_a_sample", "", not)
		s.Trace.Why = not
	case v.Err() != nil:
		r.problem("undecodable", "", v.Err().Error())
		s.Trace.Why = "the sample cannot be decoded"
	default:
		r.decode(v)
	}
	return r.visit(s)
}

// begin resets the sample for the next entry and returns its ordinal.
func (r *reader) begin() int {
	ordinal := r.hdr.Samples
	r.hdr.Samples++
	s := &r.sample
	*s = Sample{
		Ordinal: ordinal, End: r.end, Group: -1, Member: -1, Part: -1, Dataset: r.dataset,
		WeightVersions: s.WeightVersions[:0], Requests: s.Requests[:0], Problems: s.Problems[:0],
		Reward: Reward{Keys: s.Reward.Keys[:0], Parts: s.Reward.Parts[:0]},
		Trace:  Trace{SharedWith: -1, Own: -1, Events: s.Trace.Events[:0], Segments: s.Trace.Segments[:0]},
	}
	if len(r.path) >= 2 {
		s.Group, s.Member = r.path[0], r.path[1]
	}
	if len(r.path) >= 3 {
		if at := [2]int{s.Group, s.Member}; at != r.partOf {
			r.part, r.partOf = 0, at
		}
		s.Part = r.part
		r.part++
	}
	return ordinal
}

// finish completes the header.
func (r *reader) finish() *Header {
	h := &r.hdr
	if r.doc != nil {
		seen := map[string]bool{}
		for _, g := range r.doc.Globals() { // sorted: a class comes before its members
			name := g.Class.String()
			if g.Known || name == slimeSample || strings.HasPrefix(name, slimeSample+".") || standardLibrary(g.Class) {
				continue
			}
			if i := strings.LastIndexByte(name, '.'); i > 0 && seen[name[:i]] {
				continue // a member of an enum that is named already
			}
			seen[name] = true
			h.Opaque = append(h.Opaque, name)
		}
	}
	if h.Shape == "" {
		h.Shape = ShapeNothing
	}
	return h
}

const slimeSample = "slime.utils.types.Sample"

// standardLibrary says that a class is one of Python's own, which nobody misses.
func standardLibrary(c torchfile.Class) bool {
	switch c.Module {
	case "builtins", "collections", "copyreg", "datetime", "decimal", "enum", "fractions", "functools", "operator",
		"pathlib", "types", "uuid":
		return true
	}
	return false
}

// problem notes something odd about the present sample.
func (r *reader) problem(code, where, what string) {
	s := &r.sample
	if len(s.Problems) >= MaxProblems {
		s.MoreProblems++
		return
	}
	s.Problems = append(s.Problems, Problem{code, where, what})
}

func (r *reader) fileProblem(code, where, what string) {
	if len(r.hdr.Problems) < MaxProblems {
		r.hdr.Problems = append(r.hdr.Problems, Problem{code, where, what})
	}
}
