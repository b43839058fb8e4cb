package child

import (
	"slices"
	"testing"

	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"
)

func TestParseLine(t *testing.T) {
	var p lineParser
	for _, c := range []struct {
		line string
		at   int64
		want []logstorage.Field // nil: refused
	}{
		{`{"_seq":1000000000000000,"_time":1780000000000000001,"_msg":"Req","row":"span","b":"1","a":"2"}`, 1780000000000000001,
			[]logstorage.Field{{Name: "_msg", Value: "Req"}, {Name: "_seq", Value: "1000000000000000"}, {Name: "a", Value: "2"}, {Name: "b", Value: "1"}, {Name: "row", Value: "span"}}},
		{`{"_seq":1,"_time":2,"_msg":"a \"quoted\" \\ line\n\ttab\r\u0000\u001f, \"x\":\"y\"","row":"log"}`, 2,
			[]logstorage.Field{{Name: "_msg", Value: "a \"quoted\" \\ line\n\ttab\r\x00\x1f, \"x\":\"y\""}, {Name: "_seq", Value: "1"}, {Name: "row", Value: "log"}}},
		{"{\"_seq\":1,\"_time\":2,\"n\xffme\":\"v\xc3\"}", 2, []logstorage.Field{{Name: "_seq", Value: "1"}, {Name: "n\xffme", Value: "v\xc3"}}},
		{`{"_seq":1,"_time":-2}`, 0, nil},
		{`{"_seq":1,"_time":2,"a":"`, 0, nil},
		{`{"_seq":1,"_time":2,"a":1}`, 0, nil},
		{`{"_seq":1,"_time":2,"a":"\u12"}`, 0, nil},
		{`{"_seq":1,"_time":2,"a":"\x"}`, 0, nil},
		{`{"_seq":1,"_time":2,"a":"b"} `, 0, nil},
		{`{"_seq":1,"_time":x,"a":"b"}`, 0, nil},
		{`{"_time":2,"a":"b"}`, 0, nil},
		{``, 0, nil},
	} {
		at, err := p.parse([]byte(c.line))
		switch {
		case c.want == nil:
			if err == nil {
				t.Errorf("%s: read as %v", c.line, p.fields)
			}
		case err != nil || at != c.at || !slices.Equal(p.fields, c.want):
			t.Errorf("%s: %d %v %v, want %d %v", c.line, at, p.fields, err, c.at, c.want)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"_seq":1000000000000000,"_time":1780000000000000001,"_msg":"a\n\u0000b","row":"span"}`))
	f.Add([]byte(`{"_seq":1,"_time":2,"a":"\`))
	var p lineParser
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := p.parse(line); err == nil && len(p.fields) != len(p.found) {
			t.Errorf("%d fields of %d", len(p.fields), len(p.found))
		}
	})
}
