package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

func scanned(raw, key string) ([]string, error) {
	out := []string{}
	err := scanAttrs([]byte(raw), key, func(row int, v []byte) { out = append(out, fmt.Sprintf("%d:%s", row, v)) })
	return out, err
}

func TestScanAttrs(t *testing.T) {
	for _, x := range []struct {
		raw, key string
		want     []string
	}{
		{`[]`, "a", []string{}},
		{`[[],[null],[[{"a":1},null]],[[null,{"b":{"a":2},"a":"x,]}\""}],[{},{"a":[1,{"a":3}]}]]]`, "a", []string{"2:1", `3:"x,]}\""`, `3:[1,{"a":3}]`}},
		{` [ [ [ { "k\u0065y" : -1.5e3 , "other":true} , null ] ] ] `, "key", []string{"0:-1.5e3"}},
		{`[5,"x",{"a":1},[6,[7,{"a":8}]]]`, "a", []string{"3:8"}},
	} {
		if got, err := scanned(x.raw, x.key); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, not %q (%v)", x.raw, got, x.want, err)
		}
	}
	for _, raw := range []string{``, `[`, `[[`, `[[[{"a"`, `[[[{"a":`, `[[[{"a":1`, `[[[{a:1}]]]`, `[,]`, `[}`, `[[[{"a" 1}]]]`, `["x`, `[[[{"a":}]]]`} {
		if got, err := scanned(raw, "a"); err == nil {
			t.Errorf("%s was read as %q", raw, got)
		}
	}
}

// FuzzScanAttrs compares with encoding/json on what is valid.
func FuzzScanAttrs(f *testing.F) {
	f.Add(`[[[{"a":1},null]],[null]]`, "a")
	f.Add(`[[[null,{"a":"\\"}]]]`, "a")
	f.Fuzz(func(t *testing.T, raw, key string) {
		n := 0
		err := scanAttrs([]byte(raw), key, func(row int, v []byte) {
			n++
			(&attrValues{}).add(0, v)
		})
		var rows [][][]map[string]json.RawMessage
		if json.Unmarshal([]byte(raw), &rows) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		m := 0
		for _, items := range rows {
			for _, pair := range items {
				for _, attrs := range pair {
					if _, ok := attrs[key]; ok {
						m++
					}
				}
			}
		}
		if n < m { // a key that stands twice is found twice
			t.Fatalf("%q: %d values of %q, not %d", raw, n, key, m)
		}
	})
}
