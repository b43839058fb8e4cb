package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put4(i int) string { return string([]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}) }

func uni(s string) string { return "X" + put4(len(s)) + s }

// hostile are pickles made to execute, hang, exhaust memory or confuse. err is what Load must say,
// nil for those that are harmless data; json is what the view must be then, "" for any.
var hostile = map[string]struct {
	pickle string
	err    error
	json   string
}{
	"os.system": {"\x80\x02cposix\nsystem\nq\x00" + uni("touch /tmp/torchfile-was-here") + "\x85R.", nil,
		`{"$obj":{"class":"posix.system","state":{},"args":["touch /tmp/torchfile-was-here"],"call":true}}`},
	"eval in protocol 0":   {"c__builtin__\neval\n(S'1+1'\ntR.", nil, `{"$obj":{"class":"builtins.eval","state":{},"args":["1+1"],"call":true}}`},
	"inst":                 {"(S'id'\nios\nsystem\n.", nil, `{"$obj":{"class":"os.system","state":{},"args":["id"]}}`},
	"obj":                  {"(cos\nsystem\nS'id'\no.", nil, `{"$obj":{"class":"os.system","state":{},"args":["id"]}}`},
	"getattr chain":        {attrChain(3000), ErrLimit, ""},
	"memo bomb":            {"\x80\x02]r\xff\xff\xff\xff.", nil, `[]`},
	"memo slots":           {"\x80\x02N" + strings.Repeat("r\xff\xff\xff\x7f", 3) + ".", nil, `null`},
	"unassigned memo":      {"\x80\x02h\x05.", ErrCorrupt, ""},
	"self list":            {"\x80\x02]q\x00h\x00a.", nil, `[{"$cycle":1}]`},
	"self dict":            {"\x80\x02}q\x00" + uni("me") + "h\x00s.", nil, `{"me":{"$cycle":1}}`},
	"tuple in itself":      {"\x80\x02]q\x00(h\x00tq\x01a.", nil, `[{"$tuple":[{"$cycle":2}]}]`},
	"string of 4 GiB":      {"\x80\x02X\xff\xff\xff\xffab.", ErrIncomplete, ""},
	"string of 2^63":       {"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fab.", ErrCorrupt, ""},
	"integer of 2 GiB":     {"\x80\x02\x8b\xff\xff\xff\x7fab.", ErrIncomplete, ""},
	"integer of -1 bytes":  {"\x80\x02\x8b\xff\xff\xff\xffab.", ErrIncomplete, ""},
	"frame of 2^64":        {"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", nil, `null`},
	"protocol 200":         {"\x80\xc8N.", ErrNotTorch, ""},
	"empty stack":          {"\x80\x02.", ErrCorrupt, ""},
	"pop of nothing":       {"\x80\x020.", ErrCorrupt, ""},
	"append to a number":   {"\x80\x02K\x01K\x02a.", ErrCorrupt, ""},
	"append to nothing":    {"\x80\x02(K\x02e.", ErrCorrupt, ""},
	"appends below mark":   {"\x80\x02](K\x01a.", ErrCorrupt, ""},
	"odd dict":             {"\x80\x02}(K\x01u.", ErrCorrupt, ""},
	"build of a number":    {"\x80\x02K\x01}b.", nil, ""},
	"reduce of a list":     {"\x80\x02]K\x01\x85R.", nil, ""},
	"no stop":              {"\x80\x02}(" + uni("a"), ErrIncomplete, ""},
	"deep":                 {"\x80\x02" + strings.Repeat("]", 100000) + strings.Repeat("a", 99999) + ".", nil, ""},
	"deep marks":           {"\x80\x02" + strings.Repeat("(", 100000) + "N.", nil, "null"},
	"dup":                  {"\x80\x02N" + strings.Repeat("2", 100000) + ".", nil, "null"},
	"tensor of no storage": {"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89Nt" + "R.", nil, ""},
	"not a number":         {"I12x4\n.", ErrCorrupt, ""},
	"text escape":          {"S'\\x4'\n.", ErrCorrupt, ""},
	"raw unicode":          {"V\\u00e9\\ud83d\\\\u\n.", nil, ""},
	"deque in itself":      {"\x80\x02ccollections\ndeque\n)Rq\x00h\x00a.", nil, `{"$str":"deque([(...)])","$type":"collections.deque"}`},
	"deque in its list":    {"\x80\x02]q\x01ccollections\ndeque\n)Rq\x00h\x01aa.", nil, ""},
	"slices":               {"\x80\x02c__builtin__\nslice\nq\x00" + strings.Repeat("h\x00", 50000) + "N" + strings.Repeat("NN\x87R", 50000) + "0N.", nil, "null"},
	"slices shown":         {"\x80\x02c__builtin__\nslice\nq\x000" + strings.Repeat("h\x00", 50000) + "N" + strings.Repeat("NN\x87R", 50000) + ".", nil, ""},
	"slice laughs":         {sliceLaughs(60), nil, ""},
	"scalars":              {"\x80\x02cnumpy.core.multiarray\nscalar\nq\x00cnumpy\ndtype\n" + uni("O8") + "\x89\x88\x87Rq\x0100" + strings.Repeat("h\x00h\x01", 50000) + "K\x05" + strings.Repeat("\x86R", 50000) + ".", nil, ""},
	"calls of calls":       {"\x80\x02cx\nA\n" + strings.Repeat(")R", 100000) + ".", nil, ""},
	"array in itself": {"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rq\x00(K\x01K\x01\x85cnumpy\ndtype\n" +
		uni("O8") + "\x89\x88\x87R\x89]h\x00atb.", nil, ""},
	"array of nothing": {"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01\x8a\x06\x00\x00\x00\x00\x00\x01\x85cnumpy\ndtype\n" +
		uni("S0") + "\x89\x88\x87R\x89U\x00tb.", nil, ""},
	"laughs":              {laughs(24), nil, ""},
	"shared dtype laughs": {dtypeLaughs(), nil, ""},
	"global names":        {"\x80\x02" + uni("torch") + uni("Size") + "\x93.", nil, `{"$global":"torch.Size"}`},
	"global of numbers":   {"\x80\x04K\x01K\x02\x93.", ErrCorrupt, ""},
	"persistent id":       {"\x80\x02" + uni("weird") + "Q.", nil, `{"$persistent":"weird"}`},
	"text persistent id":  {"Pweird\n.", nil, `{"$persistent":"weird"}`},
	"extension":           {"\x80\x02\x82\x07.", nil, `{"$global":"copyreg.extension.7"}`},
	"out-of-band buffer":  {"\x80\x05\x97\x98.", nil, `{"$buffer":0}`},
	"rewritten memo":      {"\x80\x02](K\x01q\x00K\x02q\x00h\x00e.", nil, `[1,2,2]`},
	"late change":         {"\x80\x02](}q\x00}h\x00" + uni("k") + "K\x01s0e.", nil, `[{"k":1},{}]`},
}

// attrChain asks for an attribute of an attribute of an attribute ...
func attrChain(n int) string {
	return "\x80\x02" + strings.Repeat("c__builtin__\ngetattr\n", n) + "cos\npath\n" + strings.Repeat(uni("x")+"\x86R", n) + "."
}

// laughs is a list of lists of lists ..., each twice the same: 2^n elements in all.
func laughs(n int) string {
	p := "\x80\x02]q\x00"
	for i := 1; i <= n; i++ {
		p += fmt.Sprintf("](h%ch%ceq%c", i-1, i-1, i)
	}
	return p + "."
}

// sliceLaughs is a slice of slices of slices ..., each twice the same.
func sliceLaughs(n int) string {
	p := "\x80\x02Nq\x01"
	for i := 2; i < n; i++ {
		p += fmt.Sprintf("c__builtin__\nslice\nh%ch%cN\x87Rq%c", i-1, i-1, i)
	}
	return p + "."
}

// dtypeLaughs is a structured numpy type whose fields are all the same structured type, and so on.
func dtypeLaughs() string {
	p := "\x80\x02"
	dtype := func(state string) string {
		return "cnumpy\ndtype\n" + uni("V8") + "\x89\x88\x87R(K\x03" + uni("|") + state + "K\x08K\x01K\x00tb"
	}
	p += dtype("NNN") + "q\x00"
	for i := 1; i < 15; i++ {
		var names, fields string
		for k := range 8 {
			n := fmt.Sprintf("f%d", k)
			names += uni(n)
			fields += uni(n) + "h" + string(rune(i-1)) + "K\x00\x86"
		}
		p += dtype("N("+names+"t}("+fields+"u") + "q" + string(rune(i))
	}
	return p + "cnumpy.core.multiarray\nscalar\nh\x0e" + uni("12345678") + "\x86R."
}

func TestHostile(t *testing.T) {
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			f, err := OpenBytes([]byte(h.pickle), &Options{Limits: tightLimits})
			var d *Doc
			if err == nil {
				d, err = f.Load(LoadOptions{})
			}
			if h.err != nil {
				if !errors.Is(err, h.err) {
					t.Fatalf("got %v, want %v", err, h.err)
				}
				checkTyped(t, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			err = WriteJSON(&b, d.Root(), JSONOptions{MaxBytes: 1 << 20})
			if err != nil && !errors.Is(err, ErrLimit) {
				t.Fatal(err)
			}
			if h.json != "" && b.String() != h.json {
				t.Errorf("view is %s\nwant    %s", b.String(), h.json)
			}
			readEveryWay(t, []byte(h.pickle))
		})
	}
	if _, err := os.Stat("/tmp/torchfile-was-here"); err == nil {
		t.Fatal("a pickle was executed")
	}
}

// TestEveryDump reads each test dump by every entry point, and checks that they agree.
func TestEveryDump(t *testing.T) {
	files, _ := filepath.Glob("testdata/dumps/*.pt")
	more, _ := filepath.Glob(shared + "/*.pt")
	crash, _ := filepath.Glob(shared + "/crash/*.pt")
	bad := map[string]bool{"c19_truncated_zip.pt": true, "d03_rollout_8.pt": true, "d03_html.pt": true}
	for _, name := range append(append(files, more...), crash...) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !readEveryWay(t, b) && !bad[filepath.Base(name)] && len(b) < 40<<10 {
				t.Error("cannot be loaded")
			}
		})
	}
}
