package torchfile

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func loadTest(t *testing.T, name string, o *Options) *Doc {
	t.Helper()
	d, err := openTest(t, "testdata/dumps/"+name+".pt", o).Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func loadPickle(t *testing.T, p string) Value {
	t.Helper()
	f, err := OpenBytes([]byte(p), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Root()
}

// TestMissingClasses reads a dump of objects whose classes nobody here has.
func TestMissingClasses(t *testing.T) {
	d := loadTest(t, "d01_rollout_7", nil)
	for i, s := range d.Root().Get("samples").All() {
		if s.Kind() != KindObject || s.Class().String() != "slime.utils.types.Sample" {
			t.Fatalf("sample %d is a %s of %s", i, s.Kind(), s.Class())
		}
		e, ok := s.Attr("status").Enum()
		if !ok || !e.Value.Is("completed") {
			t.Errorf("status of sample %d: %+v", i, e)
		}
		if v := s.Field("metadata").Get("verdict"); v.Exists() {
			if f, ok := v.Attr("score").Float(); !ok || f != 0.5 || v.Class().String() != "acme_rewards.v2.Verdict" {
				t.Errorf("verdict of sample %d: score %v of %s", i, f, v.Class())
			}
		}
	}
	unknown := ""
	for _, g := range d.Globals() {
		if !g.Known {
			unknown += g.String() + " "
		}
	}
	if !strings.Contains(unknown, "acme_rewards.v2.Verdict") || strings.Count(unknown, "Verdict") != 1 {
		t.Errorf("unknown classes: %s", unknown)
	}

	// The same names are found when the values that use them are skipped.
	f := openTest(t, "testdata/dumps/d01_rollout_7.pt", nil)
	sd, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"index"}}, func(Element) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(sd.Globals()) != fmt.Sprint(d.Globals()) {
		t.Errorf("a scan finds the classes %v, Load %v", sd.Globals(), d.Globals())
	}
}

func TestObjectForms(t *testing.T) {
	d := loadTest(t, "f23_missing_dataclass", nil)
	tool := d.Root().Get("samples").Index(0).Get("metadata").Get("tool")
	if tool.Class().String() != "agent_env.types.ToolResult" || tool.Attr("name").Str() != "python" {
		t.Errorf("a dataclass: %s", tool.PyRepr())
	}
	slots := tool.Attr("nested")
	if a, ok := slots.Attr("a").Int(); !ok || a != 1 || slots.Attr("b").Str() != "two" {
		t.Errorf("slots: %v %v", a, slots.State().PyRepr())
	}
	if slots.Attr("none").Exists() || slots.Get("a").Exists() {
		t.Error("attributes that are not there")
	}

	hints := &Options{Classes: map[string]ClassHint{
		"m.Color":  {Enum: map[string]any{"RED": 1, "CRIMSON": 1, "BLUE": "b", "NO": nil, "YES": true, "PI": 3.5}},
		"m.Point":  {Fields: []string{"x", "y"}},
		"m.Frozen": {Fields: []string{"p", "q"}},
	}}
	f, err := OpenBytes([]byte("\x80\x02](cm\nColor\nq\x00K\x01\x85Rc__builtin__\ngetattr\nh\x00"+uni("BLUE")+"\x86Rcm\nPoint\nK\x05K\x06\x86\x81cm\nFrozen\n)\x81](K\x07K\x08ebe."), hints)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v := doc.Root()
	if e, ok := v.Index(0).Enum(); !ok || e.Name != "CRIMSON" || e.Class.Name != "Color" {
		t.Errorf("enum by value: %+v", e)
	}
	if e, ok := v.Index(1).Enum(); !ok || e.Name != "BLUE" || e.Known != "b" {
		t.Errorf("enum by name: %+v", e)
	}
	if y, _ := v.Index(2).Attr("y").Int(); y != 6 || v.Index(2).PyStr() != "Point(x=5, y=6)" {
		t.Errorf("namedtuple: %s", v.Index(2).PyStr())
	}
	if q, _ := v.Index(3).Attr("q").Int(); q != 8 {
		t.Errorf("frozen dataclass: %d", q)
	}
}

func TestNumbers(t *testing.T) {
	v := loadPickle(t, "\x80\x02](K\x07M\x00\x01J\xff\xff\xff\xff\x8a\x00\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00G\x3f\xf8\x00\x00\x00\x00\x00\x00N\x88L-123456789012345678901234567890L\ne.")
	for i, want := range []string{"7", "256", "-1", "0", "9223372036854775808", "1.5", "None", "True", "-123456789012345678901234567890"} {
		if got := v.Index(i).PyStr(); got != want {
			t.Errorf("element %d is %s, want %s", i, got, want)
		}
	}
	if f, ok := v.Index(4).Number(); !ok || f != math.Ldexp(1, 63) {
		t.Errorf("2^63 as a float: %v %v", f, ok)
	}
	if _, ok := v.Index(4).Int(); ok {
		t.Error("2^63 fits an int64")
	}
	if b, ok := v.Index(8).BigInt(); !ok || b.String() != "-123456789012345678901234567890" {
		t.Errorf("a long in text: %v", b)
	}
	if _, ok := v.Index(7).Number(); ok {
		t.Error("True is a number")
	}
	if x, ok := v.Ints(nil); ok {
		t.Errorf("a mixed list as integers: %v", x)
	}
	// Packed lists.
	p := loadPickle(t, "\x80\x02](K\x07M\x00\x01\x88e(\x8a\x02\x00\x80eK\x09a.")
	ints, ok := p.Ints([]int64{99})
	if !ok || fmt.Sprint(ints) != "[99 7 256 1 -32768 9]" || p.Len() != 5 {
		t.Errorf("packed: %v %v %d", ints, ok, p.Len())
	}
	if i, _ := p.Index(3).Int(); i != -32768 || p.Index(5).Exists() || p.Index(-1).Exists() {
		t.Errorf("index 3 is %d", i)
	}
	g := loadPickle(t, "\x80\x02](G\x3f\xf8\x00\x00\x00\x00\x00\x00NK\x02e.")
	floats, ok := g.Floats(nil)
	if !ok || floats[0] != 1.5 || !math.IsNaN(floats[1]) || floats[2] != 2 {
		t.Errorf("floats: %v", floats)
	}
	if _, ok := g.Ints(nil); ok {
		t.Error("floats as integers")
	}
}

// TestZeroValue asks a value that is not there everything.
func TestZeroValue(t *testing.T) {
	var v Value
	v = v.Get("a").Attr("b").Field("c").Index(3).State().Args()
	walk(v, 0)
	if v.Exists() || v.Kind() != KindInvalid || v.IsNone() || v.Len() != 0 || v.Str() != "" || v.Bytes() != nil || v.Is("") || v.ID() != 0 ||
		v.Err() != nil || v.Deferred() || v.Class() != (Class{}) || v.Called() || v.Kwargs().Exists() {
		t.Error("the zero Value is something")
	}
	if got := string(jsonOf(t, v)); got != "null" {
		t.Errorf("its view is %s", got)
	}
}

func TestTensors(t *testing.T) {
	zoo := loadTest(t, "f15_protocol2", nil).Root().Get("samples").Index(0).Get("extra").Get("zoo")
	tensor := func(k string) Tensor {
		t.Helper()
		x, err := zoo.Get(k).Tensor()
		if err != nil {
			t.Fatal(k, err)
		}
		return x
	}
	col := tensor("view_col")
	if col.Contiguous() || fmt.Sprint(col.Shape, col.Stride, col.Offset) != "[4] [6] 2" {
		t.Errorf("a column: %+v", col)
	}
	if x, err := col.Float64s(nil); err != nil || fmt.Sprint(x) != "[2 8 14 20]" {
		t.Errorf("a column: %v %v", x, err)
	}
	if b, err := col.Bytes(); err != nil || len(b) != 16 {
		t.Errorf("a column's bytes: %d %v", len(b), err)
	}
	if tensor("base_shared").Storage.Key != col.Storage.Key {
		t.Error("views do not share their storage")
	}
	if p := tensor("param"); p.Class != "Parameter" || !p.RequiresGrad {
		t.Errorf("a parameter: %+v", p)
	}
	if c, err := tensor("c64").Complex128s(nil); err != nil || c[0] != 1+2i {
		t.Errorf("complex: %v %v", c, err)
	}
	if _, err := tensor("c64").Float64s(nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("complex as real: %v", err)
	}
	if _, err := tensor("f32").Int64s(nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("floats as integers: %v", err)
	}
	sparse := tensor("sparse")
	if sparse.Layout != "sparse_coo" || sparse.Indices == nil || sparse.Values.DType != Float32 {
		t.Errorf("sparse: %+v", sparse)
	}
	if _, err := sparse.Float64s(nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("sparse: %v", err)
	}
	if f, ok := zoo.Get("f64_scalar").Number(); !ok || f != math.Pi {
		t.Errorf("a scalar: %v", f)
	}
	if _, err := zoo.Tensor(); err == nil {
		t.Error("a dict is a tensor")
	}
}

// TestTensorForms makes tensors by functions that the fixtures do not use.
func TestTensorForms(t *testing.T) {
	pid := func(class string, n int) string {
		return "(" + uni("storage") + "ctorch" + class + "\n" + uni("0") + uni("cpu") + "K" + string(rune(n)) + "tQ"
	}
	open := func(p string) Value {
		t.Helper()
		f, err := OpenBytes(zipOf(t, 0, "a/data.pkl", "\x80\x02"+p+".", "a/data/0", "\x38\x40\xb8\x7f"), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.Load(LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Root()
	}
	for name, c := range map[string]struct{ pickle, want string }{
		"float8":   {"ctorch._utils\n_rebuild_tensor_v3\n(" + pid(".storage\nUntypedStorage", 4) + "K\x00K\x04\x85K\x01\x85\x89NctorchX\nfloat8_e4m3fn\ntR", "[1 2 -1 NaN] torch.float8_e4m3fn Tensor"},
		"e5m2":     {"ctorch._utils\n_rebuild_tensor_v3\n(" + pid(".storage\nUntypedStorage", 4) + "K\x00K\x04\x85K\x01\x85\x89NctorchX\nfloat8_e5m2\ntR", "[0.5 2 -0.5 NaN] torch.float8_e5m2 Tensor"},
		"fnuz":     {"ctorch._utils\n_rebuild_tensor_v3\n(" + pid(".storage\nUntypedStorage", 4) + "K\x00K\x04\x85K\x01\x85\x89NctorchX\nfloat8_e4m3fnuz\ntR", "[0.5 1 -0.5 240] torch.float8_e4m3fnuz Tensor"},
		"e8m0":     {"ctorch._utils\n_rebuild_tensor_v3\n(" + pid(".storage\nUntypedStorage", 4) + "K\x01K\x01\x85K\x01\x85\x89NctorchX\nfloat8_e8m0fnu\ntR", "[1.0842021724855044e-19] torch.float8_e8m0fnu Tensor"},
		"uint16":   {"ctorch._utils\n_rebuild_tensor_v3\n(" + pid(".storage\nUntypedStorage", 4) + "K\x00K\x02\x85K\x01\x85\x89NctorchX\nuint16\ntR", "[16440 32696] torch.uint16 Tensor"},
		"quint8":   {"ctorch._utils\n_rebuild_qtensor\n(" + pid("\nQUInt8Storage", 4) + "K\x00K\x04\x85K\x01\x85N\x88NtR", "[56 64 184 127] torch.quint8 Tensor"},
		"expanded": {"ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "K\x01K\x03\x85K\x00\x85\x89NtR", "[64 64 64] torch.uint8 Tensor"},
		"subclass": {"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\ncm\nMine\n(" + pid("\nCharStorage", 4) + "K\x02K\x02\x85K\x01\x85\x89NtNtR", "[-72 127] torch.int8 m.Mine"},
	} {
		v := open(strings.ReplaceAll(c.pickle, "ctorchX", "ctorch"))
		x, err := v.Tensor()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f, err := x.Float64s(nil)
		if got := fmt.Sprint(f, " ", x.DType, " ", x.Class); err != nil || got != c.want {
			t.Errorf("%s is %s, want %s (%v)", name, got, c.want, err)
		}
	}
	meta, err := open("ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\nK\x02\x85K\x01\x85\x89tR").Tensor()
	if err != nil || meta.Storage.Location != "meta" || meta.Len() != 2 {
		t.Errorf("meta: %+v %v", meta, err)
	}
	if _, err := meta.Bytes(); err == nil {
		t.Error("a meta tensor has bytes")
	}
	for name, p := range map[string]string{
		"too long":   "ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "K\x00K\x05\x85K\x01\x85\x89NtR",
		"huge":       "ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "K\x00\x8a\x06\xff\xff\xff\xff\xff\x7f\x85K\x00\x85\x89NtR",
		"overflow":   "ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "K\x00\x8a\x05\xff\xff\xff\xff\x7f\x8a\x05\xff\xff\xff\xff\x7f\x86K\x01K\x01\x86\x89NtR",
		"far stride": "ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "K\x00K\x02\x85\x8a\x06\xff\xff\xff\xff\xff\x7f\x85\x89NtR",
		"negative":   "ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "J\xff\xff\xff\xffK\x02\x85K\x01\x85\x89NtR",
		"mismatch":   "ctorch._utils\n_rebuild_tensor_v2\n(" + pid("\nByteStorage", 4) + "K\x00K\x02\x85)\x89NtR",
		"no storage": "ctorch._utils\n_rebuild_tensor_v2\n(NK\x00K\x02\x85K\x01\x85\x89NtR",
		"no record":  "ctorch._utils\n_rebuild_tensor_v2\n((" + uni("storage") + "ctorch\nByteStorage\n" + uni("77") + uni("cpu") + "K\x02tQK\x00K\x02\x85K\x01\x85\x89NtR",
	} {
		x, err := open(p).Tensor()
		if err == nil {
			_, err = x.Float64s(nil)
		}
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		checkTyped(t, err)
	}
}

func TestStructuredArray(t *testing.T) {
	dtype := func(name, state string) string {
		return "cnumpy\ndtype\n" + uni(name) + "\x89\x88\x87R(K\x03" + state + "tb"
	}
	i4 := dtype("i4", uni("<")+"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00")
	s2 := dtype("S2", uni("|")+"NNNK\x02K\x01K\x00")
	rec := dtype("V6", uni("|")+"N("+uni("id")+uni("tag")+"t}("+uni("id")+i4+"K\x00\x86"+uni("tag")+s2+"K\x04\x86uK\x06K\x01K\x10")
	p := "\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nrecarray\nK\x00\x85C\x01b\x87R(K\x01K\x02\x85" + rec + "\x89C\x0c\x01\x00\x00\x00ab\xff\xff\xff\xffc\x00tb."
	v := loadPickle(t, p)
	a, err := v.NDArray()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := a.Each(func(e Elem) error {
		id, _ := e.Field("id")
		tag, _ := e.Field("tag")
		i, _ := id.Int()
		s, _ := tag.Text()
		got = append(got, fmt.Sprintf("%d=%s", i, s))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != "[1=ab -1=c]" || a.Class.Name != "recarray" || len(a.Type.Fields) != 2 || string(a.Raw()[4:6]) != "ab" {
		t.Errorf("%v of %s, %+v", got, a.Class, a.Type)
	}
	if j := string(jsonOf(t, v)); j != `{"$ndarray":{"dtype":[["id","<i4"],["tag","|S2"]],"shape":[2],"data":[[1,{"$bytes":"6162"}],[-1,{"$bytes":"63"}]]}}` {
		t.Errorf("view %s", j)
	}
	if _, err := a.Float64s(nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("as numbers: %v", err)
	}
}

// TestNothingIsCalled reads a dump whose pickle prints when Python loads it.
func TestNothingIsCalled(t *testing.T) {
	d := loadTest(t, "f32_reduce_exec", nil)
	j := string(jsonOf(t, d.Root()))
	if !strings.Contains(j, `{"$obj":{"class":"builtins.print","state":{},"args":[`) || !strings.Contains(j, `"call":true`) {
		t.Errorf("the call is not in the view: %.400s", j)
	}
	for _, g := range d.Globals() {
		if g.Name == "print" && g.Known {
			t.Error("print is known")
		}
	}
}

// TestOldForms reads what Python 2 and protocols 0 and 1 write.
func TestOldForms(t *testing.T) {
	for p, want := range map[string]string{
		"S'a\\'b\\\\\\n\\x41\\101\\t\\q'\n.":     `"a'b\\\nAA\t\\q"`,
		"S\"\\x00\\xff\"\n.":                     `{"$bytes":"00ff"}`,
		"U\x03\xff\x00a.":                        `{"$bytes":"ff0061"}`,
		"T\x02\x00\x00\x00ab.":                   `"ab"`,
		"V\\u4f60\\U0001f30d\\\\u\xe9\n.":        `"\u4f60\ud83c\udf0d\\\\u\u00e9"`,
		"I01\n.":                                 `true`,
		"F1.5\n.":                                `{"$f":"0x1.8000000000000p+0"}`,
		"Finf\n.":                                `{"$f":"inf"}`,
		"L123456789012345678901L\n.":             `{"$int":"123456789012345678901"}`,
		"(I1\nI2\nl.":                            `[1,2]`,
		"(S'k'\nI2\nd.":                          `{"k":2}`,
		"(I1\nS'x'\nt.":                          `{"$tuple":[1,"x"]}`,
		"c__builtin__\nxrange\n(I0\nI3\nI1\ntR.": `{"$str":"range(0, 3)","$type":"builtins.range"}`,
		"cexceptions\nKeyError\n(S'k'\ntR.":      `{"$obj":{"class":"builtins.KeyError","state":{},"args":["k"],"call":true}}`,
		"curlparse\nSplitResult\n.":              `{"$global":"urllib.parse.SplitResult"}`,
		"ccopy_reg\n_reconstructor\n(cm\nA\nc__builtin__\nobject\nNtR(dS'x'\nI1\nsb.":                             `{"$obj":{"class":"m.A","state":{"x":1}}}`,
		"ccopy_reg\n_reconstructor\n(cm\nL\nc__builtin__\nlist\n(lI1\naI2\natR.":                                  `{"$obj":{"class":"m.L","state":{},"items":[1,2]}}`,
		"ccopy_reg\n_reconstructor\n(cm\nD\nc__builtin__\ndict\n(dS'k'\nI1\nstR.":                                 `{"$obj":{"class":"m.D","state":{},"pairs":{"k":1}}}`,
		"ccopy_reg\n_reconstructor\n(cm\nI\nc__builtin__\nint\nI7\ntR.":                                           `{"$obj":{"class":"m.I","state":{},"args":[7]}}`,
		"ccopy_reg\n_reconstructor\n(cm\nT\nc__builtin__\ntuple\n(I1\nI2\nttR.":                                   `{"$obj":{"class":"m.T","state":{},"args":[1,2]}}`,
		"ccopy_reg\n__newobj__\n(cm\nN\nI1\ntR.":                                                                  `{"$obj":{"class":"m.N","state":{},"args":[1]}}`,
		"ccopyreg\n__newobj_ex__\n(cm\nX\n(I1\nt(dS'k'\nI2\nstR.":                                                 `{"$obj":{"class":"m.X","state":{},"args":[1]}}`,
		"ccollections\nOrderedDict\n((l(lS'a'\naI1\naa(lI2\naI3\naatR.":                                           `{"$OrderedDict":{"$pairs":[["a",1],[2,3]]}}`,
		"c__builtin__\nset\n((lI1\natR.":                                                                          `{"$set":[1]}`,
		"c__builtin__\nfrozenset\n(tR.":                                                                           `{"$frozenset":[]}`,
		"c__builtin__\nbytes\n(tR.":                                                                               `{"$bytes":""}`,
		"\x80\x02cm\nA\n)\x81}" + uni("a") + "K\x01sb}" + uni("b") + "K\x02sb.":                                   `{"$obj":{"class":"m.A","state":{"$tuple":[{"a":1},{"b":2}]}}}`,
		"\x80\x04\x8c\x01m\x8c\x01A\x93)}\x8c\x01kK\x01s\x92.":                                                    `{"$obj":{"class":"m.A","state":{},"kwargs":{"k":1}}}`,
		"\x80\x02cnumpy\nfloat64\n.":                                                                              `{"$global":"numpy.float64"}`,
		"\x80\x02c__builtin__\nEllipsis\n.":                                                                       `{"$str":"Ellipsis","$type":"builtins.ellipsis"}`,
		"\x80\x02c__builtin__\ncomplex\nG\x3f\xf8\x00\x00\x00\x00\x00\x00G\xc0\x00\x00\x00\x00\x00\x00\x00\x86R.": `{"$c":["0x1.8000000000000p+0","-0x1.0000000000000p+1"]}`,
	} {
		if got := string(jsonOf(t, loadPickle(t, p))); got != want {
			t.Errorf("%q reads as %s, want %s", p, got, want)
		}
	}
	a := loadPickle(t, "\x80\x02cm\nA\n)\x81}"+uni("a")+"K\x01sb}"+uni("b")+"K\x02sb.")
	if x, ok := a.Attr("a").Int(); !ok || x != 1 || !a.Attr("b").Exists() {
		t.Error("attributes of two states")
	}
}

// TestNumpyForms reads scalars of the types that fixtures lack.
func TestNumpyForms(t *testing.T) {
	scalar := func(name, order, data string) Value {
		p := "\x80\x03cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n" + uni(name) + "\x89\x88\x87R(K\x03" + uni(order) + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbC" + string(rune(len(data))) + data + "\x86R."
		return loadPickle(t, p)
	}
	for _, c := range []struct{ name, order, data, str string }{
		{"f16", "<", "\x00\x00\x00\x00\x00\x00\x00\xc0\xff\x3f\x00\x00\x00\x00\x00\x00", "1.5"},
		{"f16", "<", "\x00\x00\x00\x00\x00\x00\x00\x80\xff\xff\x00\x00\x00\x00\x00\x00", "-inf"},
		{"f2", ">", "\x3c\x00", "1.0"},
		{"i2", ">", "\x01\x02", "258"},
		{"u8", "<", "\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"},
		{"u4", "<", "\xff\xff\xff\xff", "4294967295"},
		{"u2", "<", "\xff\xff", "65535"},
		{"i1", "|", "\xff", "-1"},
		{"b1", "|", "\x01", "True"},
		{"c8", "<", "\x00\x00\x80\x3f\x00\x00\x00\xc0", "(1-2j)"},
		{"c16", "<", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x3f", "1j"},
		{"S3", "|", "ab\x00", "b'ab'"},
		{"V2", "|", "\x01\xff", `b'\x01\xFF'`},
	} {
		v := scalar(c.name, c.order, c.data)
		if got := v.PyStr(); got != c.str {
			t.Errorf("%s%s is %s, want %s (%v)", c.order, c.name, got, c.str, v.Err())
		}
		s, err := v.NPScalar()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if e := s.Elem(); string(e.Raw()) != c.data || e.Type() != s.Type || e.Object().Exists() {
			t.Errorf("%s: %+v", c.name, e)
		}
	}
	for _, bad := range []struct{ name, order, data string }{
		{"f8", "<", "123"}, {"f3", "<", "123"}, {"q9", "<", "1"}, {"", "<", ""}, {"i99999999999999999999", "<", ""}, {"b0", "|", ""},
	} {
		if _, err := scalar(bad.name, bad.order, bad.data).NPScalar(); err == nil {
			t.Errorf("%q with %d bytes: no error", bad.name, len(bad.data))
		} else {
			checkTyped(t, err)
		}
	}
	for unit, want := range map[string]string{"D": "1970-01-11", "h": "1970-01-01T10", "M": "1970-11", "Y": "1980", "W": "1970-03-12", "m": "1970-01-01T00:10",
		"s": "1970-01-01T00:00:10", "ms": "1970-01-01T00:00:00.010", "us": "1970-01-01T00:00:00.000010", "ns": "1970-01-01T00:00:00.000000010", "25s": "1970-01-01T00:04:10"} {
		if got := datetimeStr(10, unit); got != want {
			t.Errorf("10 of unit %s is %s, want %s", unit, got, want)
		}
	}
	if got := datetimeStr(-1, "ms"); got != "1969-12-31T23:59:59.999" {
		t.Errorf("before 1970: %s", got)
	}
}
