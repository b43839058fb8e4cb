package logpush

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is a sink that remembers.
type kept struct {
	mu   sync.Mutex
	list []Entry
	err  error
	more chan struct{}
}

func (k *kept) sink(_ context.Context, batch []Entry) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	k.list = append(k.list, batch...)
	if k.more != nil {
		select {
		case k.more <- struct{}{}:
		default:
		}
	}
	return nil
}

func (k *kept) all() []Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.list)
}

// show writes an entry as text: time, service, source, line, fields.
func show(e Entry) string {
	var b strings.Builder
	if e.Time != 0 {
		b.WriteString(time.Unix(0, e.Time).UTC().Format("15:04:05.999999999 "))
	}
	b.WriteString(e.Service + "|" + e.Source + "|" + e.Line)
	for _, f := range e.Fields {
		b.WriteString(" " + f.Name + "=" + f.Value)
	}
	return b.String()
}

// at is 2026-08-18 06:13:20.000000001 UTC.
const at = "1787033600000000001"

func bytesField(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// pushRequest is one stream with one line as Promtail sends it.
func pushRequest(labels, line string) []byte {
	ts := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1787033600)
	ts = protowire.AppendVarint(protowire.AppendTag(ts, 2, protowire.VarintType), 1)
	meta := bytesField(bytesField(nil, 1, []byte("trace_id")), 2, []byte("ab"))
	entry := bytesField(bytesField(bytesField(nil, 1, ts), 2, []byte(line)), 3, meta)
	return bytesField(nil, 1, bytesField(bytesField(nil, 1, []byte(labels)), 2, entry))
}

func TestHandler(t *testing.T) {
	gz := func(s string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = io.WriteString(w, s)
		_ = w.Close()
		return b.String()
	}
	tests := []struct {
		name, path, kind, encoding, body string
		status                           int
		want                             []string // entries
		says                             string   // in the answer
		drops                            []Drop
	}{
		{name: "loki metadata that is no object", path: "/loki/api/v1/push", kind: "application/json", status: 400,
			body: `{"streams":[{"stream":{"app":"sglang-7b","namespace":"llm"},"values":[["` + at + `","Decode batch","x"],["` + at + `","b"]]}]}`,
			says: "streams[0].values[0]: metadata must be an object"},
		{name: "loki json, two lines", path: "/insert/loki/api/v1/push", kind: "application/json; charset=utf-8", status: 204,
			body: `{"streams":[{"stream":{"app":"sglang-7b","namespace":"llm"},"values":[["` + at + `","Decode batch",{"trace_id":"ab"}],["` + at + `","b"]]}]}`,
			want: []string{
				"06:13:20.000000001 sglang-7b|app=sglang-7b,namespace=llm|Decode batch app=sglang-7b namespace=llm trace_id=ab",
				"06:13:20.000000001 sglang-7b|app=sglang-7b,namespace=llm|b app=sglang-7b namespace=llm",
			}},
		{name: "loki protobuf in snappy", path: "/loki/api/v1/push?extra_fields=cluster=a", kind: "application/x-protobuf", status: 204,
			body: string(s2.EncodeSnappy(nil, pushRequest(`{app="a\"b", job="j"}`, "hello"))),
			want: []string{`06:13:20.000000001 a"b|app=a"b,job=j|hello app=a"b job=j trace_id=ab cluster=a`}},
		{name: "loki protobuf that is none", path: "/loki/api/v1/push", kind: "application/x-protobuf", status: 400, body: "hello", says: "not a snappy block"},
		{name: "loki labels that are none", path: "/loki/api/v1/push", kind: "application/x-protobuf", status: 400,
			body: string(s2.EncodeSnappy(nil, pushRequest(`{app=`, "hello"))), says: "a value must be quoted"},
		{name: "loki json without streams", path: "/loki/api/v1/push", kind: "application/json", status: 400, body: `{}`, says: "has no streams"},
		{name: "json lines", path: "/insert/jsonline?_stream_fields=pod,app&_time_field=ts&_msg_field=text&ignore_fields=noise", status: 200,
			body: `{"ts":"2026-08-18T06:13:20.5Z","text":"one","app":"x","pod":"p","n":1234567890123456789,"deep":{"a":[1,2],"b":true},"noise":"z"}` + "\n\n" + `{"text":"two","app":"y"}`,
			want: []string{
				`06:13:20.5 x|app=x,pod=p|one app=x pod=p deep.a=[1,2] deep.b=true n=1234567890123456789`,
				"y|app=y|two app=y",
			}},
		{name: "json lines in gzip with no content type", path: "/insert/jsonline", encoding: "gzip", kind: "application/x-www-form-urlencoded", status: 200,
			body: gz(`{"_time":"1787033600","_msg":"m"}`), want: []string{"06:13:20 ||m"}},
		{name: "a bad line among good ones", path: "/insert/jsonline", status: 200,
			body: `{"_msg":"m"}` + "\nnot json\n" + `{"_msg":"n","_time":"yesterday"}` + "\n" + `{} {}`, want: []string{"||m"},
			drops: []Drop{{"jsonline", "bad_time", 1}, {"jsonline", "no_object", 2}}},
		{name: "only bad lines", path: "/insert/jsonline", status: 400, body: "x\n", says: "line 1 is no JSON object", drops: []Drop{{"jsonline", "no_object", 1}}},
		{name: "not gzip", path: "/insert/jsonline", encoding: "gzip", status: 400, body: "x", says: "not gzip"},
		{name: "an encoding that is not read", path: "/insert/jsonline", encoding: "br", status: 415, body: "x", says: "send gzip"},
		{name: "extra field that is none", path: "/insert/jsonline?extra_fields=a", status: 400, body: "{}", says: "NAME=VALUE"},
		{name: "too large when unpacked", path: "/insert/jsonline", encoding: "gzip", status: 413, body: gz(strings.Repeat(" ", 2<<20)), says: "send smaller batches"},
		{name: "bulk", path: "/insert/elasticsearch/_bulk", status: 200,
			body: `{"create":{"_index":"logs"}}` + "\n" + `{"@timestamp":"2026-08-18T06:13:20Z","message":"m","kubernetes":{"labels":{"app":"engine"}}}` + "\n" + `{"index":{}}` + "\n" + `{"@timestamp":"x"}` + "\n",
			want: []string{"06:13:20 engine|engine|m kubernetes.labels.app=engine"},
			says: `"errors":true,"items":[{"create":{"status":201}},{"index":{"status":400,"error":`, drops: []Drop{{"elasticsearch", "bad_time", 1}}},
		{name: "bulk that deletes", path: "/insert/elasticsearch/_bulk", status: 400, body: `{"delete":{"_id":"1"}}` + "\n", says: `the action "delete" is not possible here`},
		{name: "bulk without a document", path: "/insert/elasticsearch/_bulk", status: 400, body: `{"create":{}}` + "\n", says: "a document is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := &kept{}
			h := New(Options{Sink: k.sink, MaxBody: 1 << 20})
			r := httptest.NewRequest("POST", tt.path, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.kind)
			r.Header.Set("Content-Encoding", tt.encoding)
			w := httptest.NewRecorder()
			switch {
			case strings.Contains(tt.path, "loki"):
				h.Loki(w, r)
			case strings.Contains(tt.path, "elastic"):
				h.Elastic(w, r)
			default:
				h.JSONLines(w, r)
			}
			if w.Code != tt.status {
				t.Errorf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if !strings.Contains(w.Body.String(), tt.says) {
				t.Errorf("%s does not say %q", w.Body, tt.says)
			}
			var got []string
			for _, e := range k.all() {
				got = append(got, show(e))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if got := h.Drops(); !slices.Equal(got, tt.drops) {
				t.Errorf("dropped %v, want %v", got, tt.drops)
			}
			s := h.Sources()
			if len(s) != 1 || (s[0].Error != "") != (tt.status >= 400) || s[0].Lines != int64(len(tt.want)) {
				t.Errorf("sources %+v", s)
			}
		})
	}
}

var errBusy = errors.New("the disk is full")

func TestSinkRefuses(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		retry  string
	}{{errBusy, 503, "5"}, {errors.New("broken"), 500, ""}} {
		h := New(Options{Sink: (&kept{err: tt.err}).sink, Busy: func(err error) bool { return errors.Is(err, errBusy) }})
		w := httptest.NewRecorder()
		h.JSONLines(w, httptest.NewRequest("POST", "/insert/jsonline", strings.NewReader(`{"_msg":"x"}`)))
		if w.Code != tt.status || w.Header().Get("Retry-After") != tt.retry || !strings.Contains(w.Body.String(), tt.err.Error()) {
			t.Errorf("%v: %d %q %s", tt.err, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
}

// What clients ask before they send a bulk request.
func TestElasticHandshake(t *testing.T) {
	h := New(Options{Sink: (&kept{}).sink})
	for _, path := range []string{"", "/", "/_license", "/_ilm/policy/x", "/_index_template/y", "/_ingest/pipeline/z", "/_nodes/http", "/logstash/pipeline"} {
		w := httptest.NewRecorder()
		h.Elastic(w, httptest.NewRequest("GET", "/insert/elasticsearch"+path, nil))
		var v any
		if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &v) != nil || w.Header().Get("X-Elastic-Product") != "Elasticsearch" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for path, code := range map[string]int{"/_bulk": http.StatusMethodNotAllowed, "/index/_search": http.StatusNotFound} {
		w := httptest.NewRecorder()
		h.Elastic(w, httptest.NewRequest("GET", "/insert/elasticsearch"+path, nil))
		if w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}

func TestParseTime(t *testing.T) {
	for in, want := range map[string]int64{
		"1787033600": 1787033600e9, "1787033600.25": 1787033600250e6, "1787033600123": 1787033600123e6,
		"1787033600123456": 1787033600123456e3, at: 1787033600000000001,
		"2026-08-18T08:13:20+02:00": 1787033600e9, "2026-08-18 06:13:20.5": 17870336005e8, "2026-08-18T08:13:20+0200": 1787033600e9, "2026-08-18": 1787011200e9,
	} {
		if got, err := parseTime(in); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "-1", "9999-01-01T00:00:00Z", "99999999999999999999", "1.x"} {
		if got, err := parseTime(in); err == nil {
			t.Errorf("%q is taken for %d", in, got)
		}
	}
}

func TestParseSyslog(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 5, 0, 0, time.UTC)
	berlin := time.FixedZone("", 3600)
	for in, want := range map[string]string{
		`<165>1 2026-08-18T06:13:20.003Z host7 sglang 811 ID47 [x@1 rank="0" a="q\"\]"][y] ` + "\ufeff" + `Decode batch`: `06:13:20.003 sglang|host7/sglang|Decode batch level=info syslog.facility=20 hostname=host7 proc_id=811 msg_id=ID47 x@1.rank=0 x@1.a=q"]`,
		`<0>1 - - - - - -`:                           `|| level=fatal syslog.facility=0`,
		`<34>Dec 31 23:59:01 host su: failed`:        `22:59:01 su|host/su|failed level=fatal syslog.facility=4 hostname=host`,
		`<13>Aug  8 06:13:20 h vllm[9]: text`:        `05:13:20 vllm|h/vllm|text level=info syslog.facility=1 hostname=h proc_id=9`,
		`<13>2026-08-18T06:13:20Z h app: text`:       `06:13:20 app|h/app|text level=info syslog.facility=1 hostname=h`,
		`just a line`:                                `||just a line`,
		`<999>x`:                                     `||<999>x`,
		`<13>1 nonsense`:                             `||1 nonsense level=info syslog.facility=1`,
		`<13>1 2026-08-18T06:13:20Z h a - - [x a="b`: `06:13:20 a|h/a|[x a="b level=info syslog.facility=1 hostname=h`,
	} {
		got := show(parseSyslog([]byte(in), now, berlin))
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
	if e := parseSyslog([]byte("<34>Dec 31 23:59:01 host su: x"), now, time.UTC); time.Unix(0, e.Time).UTC().Year() != 2026 {
		t.Errorf("a message of last year is of %v", time.Unix(0, e.Time).UTC())
	}
}

// The system's own logger over both networks, and a sender that counts its bytes.
func TestSyslogServer(t *testing.T) {
	logger, err := exec.LookPath("logger")
	if err != nil {
		t.Fatal("the program logger (bsdutils) is not installed")
	}
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			k := &kept{more: make(chan struct{}, 1)}
			s, err := ListenSyslog(SyslogOptions{Network: network, Address: "127.0.0.1:0", Sink: k.sink, Extra: []event.Field{{Name: "rack", Value: "7"}}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			host, port, _ := net.SplitHostPort(s.Addr().String())
			want := []string{"KV cache pool is full", "second line"}
			for i, line := range want {
				args := []string{"--" + network, "-n", host, "-P", port, "-t", "sglang", "--rfc5424", line}
				if i == 1 {
					args = []string{"--" + network, "-n", host, "-P", port, "-t", "sglang", "--rfc3164", "--octet-count", line}
					if network == "udp" {
						args = slices.DeleteFunc(args, func(s string) bool { return s == "--octet-count" })
					}
				}
				if out, err := exec.Command(logger, args...).CombinedOutput(); err != nil {
					t.Fatalf("logger: %v %s", err, out)
				}
				for len(k.all()) <= i {
					<-k.more
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			for i, e := range k.all() {
				if e.Line != want[i] || e.Service != "sglang" || e.Time == 0 || e.Fields[len(e.Fields)-1].Value != "7" {
					t.Errorf("%s", show(e))
				}
			}
			if src := s.Sources(); len(src) != 1 || src[0].Lines != 2 {
				t.Errorf("sources %+v", src)
			}
		})
	}
}

func TestSyslogFrames(t *testing.T) {
	k := &kept{}
	s := &Syslog{o: SyslogOptions{Sink: k.sink, Now: time.Now, Zone: time.UTC}, counts: counts{sources: map[string]*Source{}, drops: map[[2]string]int64{}}}
	long := strings.Repeat("x", maxLine+7)
	in := "5 <13>a" + "<13>b\n" + "7 <13>c\nd" + "3x\n" + "1234567890 no length\n" + long + "\n" + "last"
	if err := s.connection(context.Background(), strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range k.all() {
		got = append(got, e.Line[:min(len(e.Line), 12)])
	}
	if want := []string{"a", "b", "c\nd", "3x", "1234567890 n", "xxxxxxxxxxxx", "last"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if d := s.Drops(); len(d) != 1 || d[0] != (Drop{"syslog", "cut_at_1mib", 1}) {
		t.Errorf("dropped %v", d)
	}
	if err := s.connection(context.Background(), strings.NewReader("99 cut")); err == nil {
		t.Error("a cut message is no error")
	}
}

func FuzzPush(f *testing.F) {
	f.Add([]byte(`{"streams":[{"stream":{"a":"b"},"values":[["1","l",{"c":"d"}]]}]}`))
	f.Add(pushRequest(`{a="b"}`, "l"))
	f.Add([]byte("{\"create\":{}}\n{\"@timestamp\":\"1\",\"a\":{\"b\":[1]}}\n"))
	f.Add([]byte("<165>1 2026-08-18T06:13:20.003Z host7 sglang 811 ID47 [x@1 rank=\"0\"] m"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &parameters{}
		_, _ = lokiJSON(data, p)
		_, _ = lokiProto(data, p)
		_, _ = jsonLines(data, p)
		if out, actions, bad, err := bulk(data, p); err == nil && len(out)+len(bad) != len(actions) {
			t.Errorf("%d actions, %d entries, %d bad", len(actions), len(out), len(bad))
		}
		e := parseSyslog(data, time.Unix(1787033600, 0), time.UTC)
		if strings.ToValidUTF8(e.Line, "") != e.Line {
			t.Error("the line is not UTF-8")
		}
	})
}
