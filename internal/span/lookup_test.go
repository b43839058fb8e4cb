package span

import (
	"errors"
	"strings"
	"testing"
)

// TestCaseO09 has the ways in which an id that begins with zeros is asked for.
func TestCaseO09(t *testing.T) {
	pb, _, err := FromJSON(read(t, "O09/lead.json"))
	if err != nil {
		t.Fatal(err)
	}
	id := decodeAll(t, pb)[0].Trace
	for _, c := range []struct {
		text          string
		exact, suffix bool
	}{
		{"00fbb99bfc59174ccefa0338d4886914", true, false},
		{"fbb99bfc59174ccefa0338d4886914", true, false},
		{"FBB99BFC59174CCEFA0338D4886914", true, false},
		{" 0xfbb99bfc59174ccefa0338d4886914\n", true, false},
		{"00fbb99b-fc59-174c-cefa-0338d4886914", true, false},
		{"00-00fbb99bfc59174ccefa0338d4886914-0000000000000032-01", true, false},
		{"APu5m/xZF0zO+gM41IhpFA==", true, false},
		{"cefa0338d4886914", false, true},
		{"CEFA0338D4886914", false, true},
		{"14914236658609580308", false, true}, // the same in decimal
		{"0000000000000000cefa0338d4886914", false, false},
		{"fa0338d4886914", false, false},
	} {
		l, err := ParseLookup(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		exact := false
		for _, e := range l.Exact {
			exact = exact || e == id
		}
		if exact != c.exact || l.Matches(id) != (c.exact || c.suffix) {
			t.Errorf("%q: exact %v, matches %v: %+v", c.text, exact, l.Matches(id), l)
		}
	}
	for _, text := range []string{"", "  ", "nonsense", "hello-world", "0x", "0", strings.Repeat("0", 32), strings.Repeat("a", 33), "fbb99bfc59174ccefa0338d488691g", "trace_id:abc", "12 34", "\x00"} {
		if _, err := ParseLookup(text); !errors.Is(err, ErrNotTraceID) || !strings.Contains(err.Error(), "not a trace id") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTraceparent(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	c, err := ParseTraceparent(good)
	if err != nil || c.Traceparent() != good {
		t.Fatalf("%v %v", c, err)
	}
	for text, ok := range map[string]bool{
		good:                               true,
		" " + good + "\t":                  true,
		"cc" + good[2:] + "-later":         true,
		"cc" + good[2:]:                    true,
		"cc" + good[2:] + "x":              false,
		good + "-x":                        false,
		"ff" + good[2:]:                    false,
		strings.ToUpper(good):              false,
		good[:54]:                          false,
		strings.Replace(good, "-", "_", 1): false,
		"00-" + strings.Repeat("0", 32) + good[35:]:     false,
		good[:36] + strings.Repeat("0", 16) + good[52:]: false,
		"": false,
	} {
		if _, err := ParseTraceparent(text); (err == nil) != ok || err != nil && !errors.Is(err, ErrTraceparent) {
			t.Errorf("%q: %v", text, err)
		}
	}
	headers := map[string]string{TraceparentHeader: good, TracestateHeader: "a=1, b=2"}
	c, err = Extract(func(h string) string { return headers[h] })
	if err != nil || c.State.String() != "a=1,b=2" {
		t.Fatalf("%+v %v", c, err)
	}
	out := map[string]string{}
	c.State, _ = c.State.With("b", "3")
	c.Inject(func(k, v string) { out[k] = v })
	if out[TraceparentHeader] != good || out[TracestateHeader] != "b=3,a=1" {
		t.Errorf("injected %v", out)
	}
	headers[TracestateHeader] = "a=1,a=2"
	if c, err = Extract(func(h string) string { return headers[h] }); err != nil || c.State != nil {
		t.Errorf("a wrong tracestate costs only itself: %+v %v", c, err)
	}
}

func TestTraceState(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"a=1":                           "a=1",
		" a=1 ,\tb=2,,":                 "a=1,b=2",
		"fw529a3039@dt=x/y z":           "fw529a3039@dt=x/y z",
		"0rojo=00f067aa0ba902b7":        "0rojo=00f067aa0ba902b7",
		"A=1":                           "error",
		"a":                             "error",
		"a=":                            "error",
		"a=1=2":                         "error",
		"a=é":                           "error",
		"a@0b=1":                        "error",
		"a=1,a=2":                       "error",
		strings.Repeat("k", 257) + "=1": "error",
		strings.Repeat("x=1,", 5000):    "error",
	} {
		ts, err := ParseTraceState(text)
		if err != nil && want != "error" || err == nil && ts.String() != want {
			t.Errorf("%.40q: %q %v, want %q", text, ts, err, want)
		}
	}
	var many []string
	for i := range 33 {
		many = append(many, "k"+string(rune('a'+i%26))+string(rune('a'+i/26))+"=1")
	}
	if _, err := ParseTraceState(strings.Join(many, ",")); err == nil {
		t.Error("33 members were taken")
	}
	if ts, err := ParseTraceState(strings.Join(many[:32], ",")); err != nil || len(ts) != 32 {
		t.Errorf("32 members: %v", err)
	} else if ts, err = ts.With("new", "v"); err != nil || len(ts) != 32 || ts[0].Key != "new" {
		t.Errorf("one more than 32: %v %v", ts, err)
	}
	if th, ok := Threshold("x=1,ot=rv:abcdef01234567;th:c"); !ok || th != 0xc<<52 {
		t.Errorf("threshold %x %v", th, ok)
	}
	if _, ok := Threshold("x=1"); ok {
		t.Error("a threshold out of nothing")
	}
	if rv := Randomness(TraceID{15: 7}, "ot=rv:abcdef01234567"); rv != 0xabcdef01234567 {
		t.Errorf("randomness %x", rv)
	}
	if rv := Randomness(TraceID{0: 9, 15: 7}, ""); rv != 7 {
		t.Errorf("randomness %x", rv)
	}
}
