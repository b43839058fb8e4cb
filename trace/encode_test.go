package trace

import (
	"encoding/json"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

type inner struct{ B uint8 }

type failing struct{}

func (failing) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }
func (failing) String() string               { return "failing" }

func TestAppendValue(t *testing.T) {
	five := 5
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, `null`},
		{(*int)(nil), `null`},
		{&five, `5`},
		{true, `true`},
		{uint16(7), `7`},
		{int8(-7), `-7`},
		{float32(0.5), `0.5`},
		{2.0, `2.0`},
		{1e16, `1e+16`},
		{1e-7, `1e-07`},
		{-0.000001, `-0.000001`},
		{math.MaxFloat64, `1.7976931348623157e+308`},
		{[]float64{math.NaN(), math.Inf(1), math.Inf(-1)}, `["NaN","Infinity","-Infinity"]`},
		{[]string(nil), `null`},
		{[2]bool{true, false}, `[true,false]`},
		{map[int]string{2: "b", 1: "a"}, `{"1":"a","2":"b"}`},
		{map[string]any(nil), `null`},
		{json.Number("12345678901234567890"), `12345678901234567890`},
		{json.Number("nope"), `"nope"`},
		{json.Number(""), `""`},
		{json.Number(`"x"`), `"\"x\""`},
		{json.RawMessage(` {"a": 1} `), `{"a":1}`},
		{json.RawMessage(`{`), `"[123]"`},
		{failing{}, `"failing"`},
		{panics{}, `"{0}"`},
		{mean{}, `"(trace.mean that cannot be read)"`},
		{time.Second / 4, `0.25`},
		{time.Unix(0, 0).UTC(), `"1970-01-01T00:00:00Z"`},
		{net.IPv4(1, 2, 3, 4), `[0,0,0,0,0,0,0,0,0,0,255,255,1,2,3,4]`},
		{2i, `"(0+2i)"`},
		{Attrs{{"b", 1}, {"a", []any{Attrs{}}}}, `{"b":1,"a":[{}]}`},
		{(*Carrier)(nil), `null`},
		{struct {
			inner
			A    int    `json:"a"`
			Skip string `json:"-"`
			Zero int    `json:",omitempty"`
			One  *int   `json:"one,omitzero"`
			low  int
		}{inner: inner{3}, A: 1, low: 2}, `{"B":3,"a":1}`},
		{"\x00é\xff\u2028\ud7ff", `"\u0000é` + "\ufffd\u2028\ud7ff\""},
	} {
		got := string(appendValue(nil, c.v, 0))
		if got != c.want || !json.Valid([]byte(got)) {
			t.Errorf("%#v: %s, want %s", c.v, got, c.want)
		}
	}
	long := string(appendValue(nil, errors.New(strings.Repeat("ä", 6000)), 0))
	equal(t, len(long), maxText+2)
	loop := []any{nil}
	loop[0] = loop
	if got := appendValue(nil, loop, 0); !json.Valid(got) || len(got) > 1000 {
		t.Errorf("%.100s", got)
	}
	type node struct{ Next *node }
	ring := &node{}
	ring.Next = ring
	if got := appendValue(nil, ring, 0); !json.Valid(got) || len(got) > 5000 {
		t.Errorf("%.100s", got)
	}
	var deep Attrs
	for range 500 {
		deep = Attrs{{"d", deep}}
	}
	if got := appendValue(nil, deep, 0); !json.Valid(got) || len(got) > 1000 {
		t.Errorf("%.100s", got)
	}
}
