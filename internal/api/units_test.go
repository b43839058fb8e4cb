package api

import (
	"compress/gzip"
	"io"
	"math"
	"net"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	for in, want := range map[string]time.Time{
		"now":                                 now,
		"now-1h":                              now.Add(-time.Hour),
		"now-1h30m":                           now.Add(-90 * time.Minute),
		"now-7d":                              now.AddDate(0, 0, -7),
		"now+5m":                              now.Add(5 * time.Minute),
		"now 5m":                              now.Add(5 * time.Minute), // a plus that was not escaped
		"1767366000":                          time.Unix(1767366000, 0),
		"1767366000.25":                       time.Unix(1767366000, 250e6),
		"2026-01-02T15:00:00Z":                now,
		"2026-01-02T16:00:00.000000001+01:00": now.Add(1),
	} {
		got, err := parseTime(in, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "yesterday", "now-", "now-1", "nowadays", "-5", "Inf", "1e300", "2026-01-02", "now*2"} {
		if got, err := parseTime(in, now); err == nil {
			t.Errorf("%q was read as %v", in, got)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"now-1h", "1767366000.25", "2026-01-02T15:00:00Z", "now", "now-", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := parseTime(s, now); err == nil && got.Format(time.RFC3339Nano) == "" {
			t.Error(s)
		}
	})
}

func TestDefaultStep(t *testing.T) {
	for _, c := range []struct{ span, want time.Duration }{
		{time.Minute, time.Second}, {time.Hour, 15 * time.Second}, {24 * time.Hour, 10 * time.Minute}, {7 * 24 * time.Hour, time.Hour},
		{365 * 24 * time.Hour, 24 * time.Hour},
	} {
		if got := defaultStep(c.span, 240); got != c.want {
			t.Errorf("%v: %v, want %v", c.span, got, c.want)
		}
	}
}

func TestParseTokens(t *testing.T) {
	tokens, err := ParseTokens([]byte("# ours\n\nread 0123456789abcdef\nadmin sha256:"+strings.Repeat("ab", 32)+"\n"), "t")
	if err != nil || len(tokens) != 2 || tokens[1].Scope != ScopeAdmin || tokens[1].SHA256[0] != 0xab {
		t.Fatalf("%v %v", tokens, err)
	}
	for _, bad := range []string{"read short", "root 0123456789abcdef", "read", "read sha256:zz", "read 0123456789 abcdef"} {
		if _, err := ParseTokens([]byte("\n"+bad), "t"); err == nil || !strings.Contains(err.Error(), "t:2") || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestScopeOf(t *testing.T) {
	tokens, err := ParseTokens([]byte("write write-token-0123456789"), "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		access Access
		auth   string
		want   Scope
		bad    bool
	}{
		{"nothing known", Access{}, "", ScopeRead, false},
		{"loopback", Access{Loopback: true}, "", ScopeAdmin, false},
		{"write needs the token, so does admin", Access{Loopback: true, Tokens: tokens}, "", ScopeRead, false},
		{"with the token", Access{Tokens: tokens}, "Bearer write-token-0123456789", ScopeWrite, false},
		{"a wrong token", Access{Tokens: tokens}, "Bearer other", ScopeNone, true},
		{"another scheme", Access{Tokens: tokens}, "Basic eDp5", ScopeRead, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		got, e := c.access.scopeOf(r)
		if got != c.want || (e != nil) != c.bad {
			t.Errorf("%s: %v %v", c.name, got, e)
		}
	}
}

func TestHosts(t *testing.T) {
	loop := Hosts{Listen: []net.Addr{&net.TCPAddr{IP: net.IPv6loopback, Port: 9090}}, Hostname: "gpu-7.example.com"}
	open := Hosts{Listen: []net.Addr{&net.TCPAddr{IP: net.IPv6unspecified, Port: 9090}}, Hostname: "gpu-7.example.com"}
	for _, c := range []struct {
		host       string
		loop, open bool
	}{
		{"", true, true},
		{"localhost", true, true},
		{"LOCALHOST.:9090", true, true},
		{"rollscope.localhost:9090", true, true},
		{"127.0.0.1", true, true},
		{"127.1.2.3:80", true, true},
		{"[::1]:9090", true, true},
		{"[::ffff:127.0.0.1]", true, true},
		{"10.0.0.7:9090", false, true},
		{"[2001:db8::7]:9090", false, true},
		{"gpu-7:9090", false, true},
		{"GPU-7.example.com", false, true},
		{"gpu-8", false, false},
		{"127.0.0.1.evil.example", false, false},
		{"evil.example", false, false},
	} {
		if got := loop.allowed(c.host); got != c.loop {
			t.Errorf("loopback, %q: %v", c.host, got)
		}
		if got := open.allowed(c.host); got != c.open {
			t.Errorf("network, %q: %v", c.host, got)
		}
	}
}

func TestTidy(t *testing.T) {
	nan := math.NaN()
	e := Envelope[Overview]{Data: Overview{
		Golden: []SignalData{{Lines: []Line{{Values: []*float64{&nan, ptr(1.0)}, Now: Number{Value: &nan}, TopBound: ptr(math.Inf(1))}}}},
		Engines: Engines{Engines: []Engine{{Signals: map[string]Number{"x": {Value: ptr(math.Inf(-1)), State: StateUnknown}},
			Sparks: map[string]Spark{"x": {}}}}},
	}}
	tidy(reflect.ValueOf(&e))
	l := e.Data.Golden[0].Lines[0]
	if l.Values[0] != nil || l.Values[1] == nil || l.Now.Value != nil || l.TopBound != nil || l.Labels == nil {
		t.Errorf("%+v", l)
	}
	g := e.Data.Engines.Engines[0]
	if g.Signals["x"].Value != nil || g.Signals["x"].State != StateUnknown || g.Sparks["x"].Values == nil || g.DPRanks == nil {
		t.Errorf("%+v", g)
	}
	if e.Warnings == nil || e.Dropped == nil || e.Data.Alerts == nil || e.Data.Counts == nil {
		t.Errorf("%+v", e)
	}
}

func TestCompression(t *testing.T) {
	a := newAPI(t)
	plain := ask(a, "GET", ours+"/signals", "")
	packed := ask(a, "GET", ours+"/signals", "", "Accept-Encoding: br, gzip;q=0.5")
	if packed.Header().Get("Content-Encoding") != "gzip" || plain.Header().Get("Content-Encoding") != "" {
		t.Fatalf("encodings %q, %q", packed.Header().Get("Content-Encoding"), plain.Header().Get("Content-Encoding"))
	}
	z, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil || string(body) != plain.Body.String() {
		t.Errorf("%v: the packed answer is another answer", err)
	}
	if w := ask(a, "GET", ours+"/config", "", "Accept-Encoding: gzip"); w.Header().Get("Content-Encoding") != "" {
		t.Error("a small answer was packed")
	}
	if w := ask(a, "GET", ours+"/signals", "", "Accept-Encoding: gzip;q=0"); w.Header().Get("Content-Encoding") != "" {
		t.Error("packed though refused")
	}
}

func TestEngineID(t *testing.T) {
	for _, c := range [][3]string{{"sglang", "10.0.0.1:30000", "sglang/10.0.0.1:30000"}, {"a/b", "x%2F/y", "a%2Fb/x%252F%2Fy"}, {"", "i", "/i"}} {
		id := EngineID(c[0], c[1])
		if job, instance := splitEngineID(id); id != c[2] || job != c[0] || instance != c[1] {
			t.Errorf("%v: %s gives back %q, %q", c, id, job, instance)
		}
	}
}

func TestSay(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		more bool
		want string
	}{
		{0.4123, "seconds", false, "412 ms"}, {4.2, "seconds", false, "4200 ms"}, {60, "seconds", true, ">= 60 s"}, {12.345, "seconds", false, "12.3 s"},
		{0.873, "ratio", false, "87.3 %"}, {0, "seconds", false, "0 ms"}, {1234.5, "tokens/s", false, "1234 tokens/s"}, {3, "1", false, "3"},
	} {
		if got := say(Number{Value: &c.v, AtLeast: c.more}, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.v, c.unit, got, c.want)
		}
	}
	if got := say(Number{State: StateIdle}, "seconds"); got != "idle" {
		t.Error(got)
	}
}
