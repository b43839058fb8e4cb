package fpmbus

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const fpmLine = `{"timestamp":1250,"event":{"schema":"dynamo.fpm.trace.v1","source":{"namespace":"default","component":"backend","producer_id":"4192"},"capture_mode":"sampled","observed_at_unix_ms":%d,"fpm":{"version":1,"counter_id":%d}}}`
const requestLine = `{"timestamp":1250,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1782777601250,"request":{"request_id":"r1"}}}`

func exportLine(publisher uint64, seq int) string {
	return fmt.Sprintf(`{"namespace":"default","component":"backend","publisher_id":%d,"sequence":%d,"published_at_ms":%d,"metrics":{"version":1,"counter_id":%d}}`, publisher, seq, 1782777601250+seq, seq)
}

func TestExportSocket(t *testing.T) {
	path := socketPath(t, "s")
	src := must[Source](t)(NewExportSocket(ExportSocketOptions{Common: Common{Name: "export", MaxMessage: 1000}, Path: path}))
	k := &keeper{}
	b, stop := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "k", Sink: k}}})
	eventually(t, "listening", func() bool { return b.Sources()[0].State == Listening })
	c := must[net.Conn](t)(net.Dial("unix", path))
	fmt.Fprintf(c, "%s\n\n%s\nnonsense\n{\"metrics\":5}\n%s\n%s\n%s", exportLine(1<<53+1, 0), exportLine(1<<53+1, 1), exportLine(1<<53+1, 1), strings.Repeat("x", 2000), exportLine(1<<53+1, 4)) // the last line has no end
	_ = c.Close()
	c = must[net.Conn](t)(net.Dial("unix", path))
	fmt.Fprintf(c, "%s\n%s", exportLine(9, 7), exportLine(9, 8)[:40]) // cut off
	_ = c.Close()
	eventually(t, "all came", func() bool { return k.count() == 4 && dropsOf(b.Drops(), "export", "cut_off") == 1 })
	for i, m := range k.messages() {
		if m.Source != "export" || m.Encoding != JSON || m.Namespace != "default" || m.Component != "backend" || !json.Valid(m.Payload) || m.Published.IsZero() || !m.HasSequence || !m.HasPublisher {
			t.Errorf("%d: %+v", i, m)
		}
	}
	s := b.Sources()[0]
	if s.Missed != 2 || s.Repeats != 1 || s.Connects != 2 || dropsOf(b.Drops(), "export", "bad_record") != 2 || dropsOf(b.Drops(), "export", "too_large") != 1 {
		t.Errorf("%+v, %+v", s, b.Drops())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := bind("ipc://" + path); err == nil {
		t.Error("a second one listens at the same path")
	}
	stop()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left behind")
	}
	// A socket that a killed process left is replaced; any other file is not.
	l := must[*net.UnixListener](t)(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	again := must[net.Listener](t)(bind("ipc://" + path))
	_ = again.Close()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bind("ipc://" + path); err == nil {
		t.Error("a file was replaced")
	}
}

func TestCapturedRecords(t *testing.T) {
	for _, line := range bytes.Split(bytes.TrimSpace(capture(t, "fpm_export.ndjson")), []byte("\n")) {
		m, err := parseExported(line)
		if err != nil || m.Publisher != 7587888160958627 || m.Namespace != "default" || !bytes.Contains(m.Payload, []byte("7587888160958627365")) {
			t.Errorf("%+v, %v", m, err)
		}
	}
	m, err := parseTraced(bytes.TrimSpace(capture(t, "fpm_trace_v1.jsonl")))
	if err != nil || m.Producer != "4192" || m.Component != "backend" || m.Published.UnixMilli() != 1782777601250 || !bytes.HasPrefix(m.Payload, []byte(`{"version":1`)) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestTraceFiles(t *testing.T) {
	dir := t.TempDir()
	plain, zipped := filepath.Join(dir, "a.000001.jsonl"), filepath.Join(dir, "b.000001.jsonl.gz")
	src := must[Source](t)(NewTraceFiles(TraceFilesOptions{
		Common: Common{Name: "files", MaxMessage: 4096}, Paths: []string{filepath.Join(dir, "*.jsonl"), filepath.Join(dir, "*.jsonl.gz")},
		Every: 5 * time.Millisecond, Since: time.UnixMilli(1000),
	}))
	k := &keeper{}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "k", Sink: k}}})
	eventually(t, "no file yet", func() bool { return b.Sources()[0].State == Missing })
	write := func(name, s string) {
		f := must[*os.File](t)(os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	n := 0
	line := func() string { n++; return fmt.Sprintf(fpmLine, 1782777601250, n) + "\n" }
	upTo := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return k.count() >= n })
		time.Sleep(20 * time.Millisecond)
		if k.count() != n {
			t.Fatalf("%s: %d came, %d were written", what, k.count(), n)
		}
	}
	// Plain: whole lines, a line in two writes, other things.
	write(plain, line()+line())
	upTo("two lines")
	l := line()
	write(plain, l[:50])
	time.Sleep(30 * time.Millisecond)
	write(plain, l[50:]+strings.Repeat("y", 5000)+"\n"+`{"event":{"schema":"dynamo.audit.v3"}}`+"\nnonsense\n"+fmt.Sprintf(fpmLine, 5, 0)+"\n"+line())
	upTo("a line in two writes")
	// A gzip member that grows, flush by flush, then a second member.
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	flush := func(s string, end bool) {
		_, _ = z.Write([]byte(s))
		if end {
			_ = z.Close()
		} else {
			_ = z.Flush()
		}
		write(zipped, buf.String())
		buf.Reset()
		if end {
			z.Reset(&buf)
		}
	}
	flush(line()+line(), false)
	upTo("a member that is not finished")
	half := line()
	flush(half[:30], false)
	time.Sleep(30 * time.Millisecond)
	flush(half[30:]+line(), false)
	upTo("it goes on")
	flush(line(), true)
	upTo("it is finished")
	flush(line(), true)
	flush(line()+strings.TrimSuffix(line(), "\n"), true)
	upTo("more members")
	// A file that takes the place of another is read from its beginning.
	if err := os.Remove(plain); err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	write(plain, line()+requestLine+"\n")
	n++
	upTo("a new file with an old name")
	last := k.messages()[n-1]
	if last.Record != RequestTrace || last.Published.UnixMilli() != 1782777601250 || !bytes.Contains(last.Payload, []byte("request_end")) || last.Encoding != JSON {
		t.Errorf("%+v, %s", last, last.Payload)
	}
	seen := map[string]int{}
	for _, m := range k.messages() {
		seen[string(m.Payload)]++
	}
	if len(seen) != n {
		t.Errorf("%d different payloads of %d", len(seen), n)
	}
	d, s := b.Drops(), b.Sources()[0]
	if dropsOf(d, "files", "too_large") != 1 || dropsOf(d, "files", "bad_record") != 1 || dropsOf(d, "files", "old") != 1 || s.Other != 1 || len(d) != 3 {
		t.Errorf("%+v, %+v", d, s)
	}
	// Damage is told once and not read on.
	write(zipped, "this is no gzip member at all")
	eventually(t, "damage", func() bool { return dropsOf(b.Drops(), "files", "unreadable") == 1 })
	write(zipped, "nor this")
	time.Sleep(30 * time.Millisecond)
	if n := dropsOf(b.Drops(), "files", "unreadable"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestTraceFilesOnce(t *testing.T) {
	dir := t.TempDir()
	var gz bytes.Buffer
	z := gzip.NewWriter(&gz)
	for i := range 1000 {
		fmt.Fprintf(z, fpmLine+"\n", 1782777601250, i)
	}
	_ = z.Flush() // no end: the process was killed
	for name, b := range map[string][]byte{"a.gz": gz.Bytes(), "b": []byte(fmt.Sprintf(fpmLine, 1, 1)), "c": nil, "d": []byte("x")} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src := must[Source](t)(NewTraceFiles(TraceFilesOptions{Common: Common{Name: "f"}, Paths: []string{filepath.Join(dir, "*")}, Once: true}))
	n := 0
	if err := src.Run(context.Background(), func(Message) { n++ }); err != nil || n != 1001 || src.Status()[0].State != Ended {
		t.Errorf("%d, %v, %+v", n, err, src.Status())
	}
}

// Only a file that holds every pass shows losses by the numbers that are missing in it.
func TestTraceFileCaptureMode(t *testing.T) {
	line := fmt.Sprintf(fpmLine, 1782777601250, 1)
	for _, c := range []struct {
		mode    string
		sampled bool
	}{{`"capture_mode":"sampled",`, true}, {`"capture_mode":"full",`, false}, {`"capture_mode":"all",`, false}, {"", true}} {
		m, err := parseTraced([]byte(strings.Replace(line, `"capture_mode":"sampled",`, c.mode, 1)))
		if err != nil || m.Sampled != c.sampled {
			t.Errorf("%q: sampled %v, %v; want %v", c.mode, m.Sampled, err, c.sampled)
		}
	}
}

func TestDiscovery(t *testing.T) {
	value := `{"type":"EventChannel","scope":{"kind":"endpoint","endpoint":{"namespace":"default","component":"backend","name":"generate"}},"topic":"forward-pass-metrics","instance_id":7587888160958627,"transport":{"kind":"Zmq","config":{"endpoint":"tcp://10.0.0.7:41959"}}}`
	bare := `{"type":"EventChannel","scope":{"kind":"component"},"topic":"forward-pass-metrics","instance_id":1,"transport":{"kind":"Zmq","config":{"endpoint":"tcp://10.0.0.8:1"}}}`
	other := strings.Replace(value, "forward-pass-metrics", "kv-events", 1)
	nats := `{"type":"EventChannel","topic":"forward-pass-metrics","transport":{"kind":"Nats","config":{"subject_prefix":"x"}}}`
	key := "v1/event_channels/namespace/my%20ns/component/backend/topic/forward-pass-metrics/1"
	want := []Channel{{"tcp://10.0.0.7:41959", Scope{"default", "backend", "generate"}}, {"tcp://10.0.0.8:1", Scope{"my ns", "backend", ""}}}
	ctx := context.Background()
	check := func(name string, d Discover) {
		t.Helper()
		got, err := d(ctx)
		if err != nil || len(got) != 2 || got[0] != want[0] && got[1] != want[0] || got[0] != want[1] && got[1] != want[1] {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	dir := t.TempDir()
	list := filepath.Join(dir, "list.json")
	if err := os.WriteFile(list, []byte(fmt.Sprintf(`[{"key":"a","value":%s},{"key":%q,"value":%s},{"key":"c","value":%s},{"key":"d","value":%s}]`, value, key, bare, other, nats)), 0o600); err != nil {
		t.Fatal(err)
	}
	check("list", FileDiscovery(list))
	tree := filepath.Join(dir, "tree")
	for name, v := range map[string]string{"v1/event_channels/x/1": value, filepath.FromSlash(key): bare, "v1/event_channels/x/3": other, "v1/instances/y": "{", "junk": "\x00"} {
		at := filepath.Join(tree, strings.ReplaceAll(name, "%20", "%2520"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte(v), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	check("directory", FileDiscovery(tree))
	if _, err := FileDiscovery(filepath.Join(dir, "none"))(ctx); err == nil {
		t.Error("a path that is not there")
	}
	for _, bad := range []string{"", "{}", `[{"key":"a","value":5}]`, `[{"value":{"type":"EventChannel","topic":"forward-pass-metrics","transport":{"kind":"Zmq"}}}]`} {
		if err := os.WriteFile(list, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := FileDiscovery(list)(ctx); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
	if got, err := channelsOfList("capture", capture(t, "discovery_event_channel.json")); err != nil || len(got) != 1 || got[0] != want[0] {
		t.Errorf("capture: %+v, %v", got, err)
	}
}

// Publishers that discovery names are connected to; those that it names no longer are left.
func TestPlaneZMQFollowsDiscovery(t *testing.T) {
	dir := t.TempDir()
	list := filepath.Join(dir, "list.json")
	announce := func(endpoints ...string) {
		var entries []string
		for _, e := range endpoints {
			entries = append(entries, fmt.Sprintf(`{"key":"v1/event_channels/namespace/ns/component/c/topic/t/1","value":{"type":"EventChannel","topic":"forward-pass-metrics","transport":{"kind":"Zmq","config":{"endpoint":%q}}}}`, e))
		}
		if err := errors.Join(os.WriteFile(list+".new", []byte("["+strings.Join(entries, ",")+"]"), 0o600), os.Rename(list+".new", list)); err != nil {
			t.Fatal(err)
		}
	}
	a := startPeer(t, "plane", "tcp", "10", "0", "1", Topic)
	c := startPeer(t, "plane", "tcp", "10", "0", "2", Topic)
	at, ct := a.says()["bound"].(string), c.says()["bound"].(string)
	src := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Name: "plane", Retry: quick}, Discover: FileDiscovery(list), Every: 10 * time.Millisecond}))
	k := &keeper{}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "k", Sink: k}}})
	eventually(t, "discovery is missing", func() bool { s := b.Sources(); return len(s) == 1 && s[0].State == Missing && s[0].Error != "" })
	connected := func(n int) func() bool {
		return func() bool {
			s := b.Sources()
			if len(s) != n+1 {
				return false
			}
			for _, one := range s {
				if one.State != Connected {
					return false
				}
			}
			return true
		}
	}
	announce(at)
	eventually(t, "one", connected(1))
	announce(at, ct, "nonsense")
	eventually(t, "two", connected(2))
	a.tell("go")
	c.tell("go")
	eventually(t, "all messages", func() bool { return k.count() == 20 })
	announce(ct)
	eventually(t, "one is left", connected(1))
	if m := k.messages()[0]; m.Namespace != "ns" || m.Component != "c" {
		t.Errorf("%+v", m)
	}
	if dropsOf(b.Drops(), "plane", "bad_endpoint") == 0 {
		t.Errorf("%+v", b.Drops())
	}
}

func TestEtcdErrors(t *testing.T) {
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, at := range [][]string{nil, {"http://" + l.Addr().String()}, {"http://127.0.0.1:1"}, {"::"}} {
		if got, err := EtcdDiscovery(at, client)(context.Background()); err == nil {
			t.Errorf("%v: %+v", at, got)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte(exportLine(1, 2)))
	f.Add([]byte(fmt.Sprintf(fpmLine, 1782777601250, 3)))
	f.Add([]byte(requestLine))
	f.Add([]byte(`{"schema":"dynamo.request.trace.v1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (Message, error){parseExported, parseTraced} {
			m, err := parse(b)
			if err == nil && !json.Valid(m.Payload) {
				t.Fatalf("payload %q of %q", m.Payload, b)
			}
		}
	})
}

func FuzzDiscovery(f *testing.F) {
	f.Add([]byte(`[{"key":"v1/event_channels/namespace/n/component/c/endpoint/e/topic/forward-pass-metrics/1","value":{"type":"EventChannel","topic":"forward-pass-metrics","transport":{"kind":"Zmq","config":{"endpoint":"tcp://h:1"}}}}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := channelsOfList("fuzz", b)
		for _, c := range got {
			if err == nil && c.Endpoint == "" {
				t.Fatal("a channel without an endpoint")
			}
		}
	})
}

// Whatever is in a file, each line is read once, however the file grows.
func FuzzTraceFileGrows(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(fpmLine+"\n"+requestLine+"\n", 1782777601250, 1)), 20)
	var gz bytes.Buffer
	z := gzip.NewWriter(&gz)
	fmt.Fprintf(z, fpmLine+"\n", 1782777601250, 1)
	_ = z.Close()
	f.Add(append(gz.Bytes(), gz.Bytes()...), 30)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if at < 2 || at > len(b) {
			return
		}
		name := filepath.Join(dir, fmt.Sprint(os.Getpid()))
		read := func(parts ...int) (n int64, drops string) {
			_ = os.Remove(name)
			src := must[Source](t)(NewTraceFiles(TraceFilesOptions{Paths: []string{name}})).(*traceFiles)
			for _, p := range parts {
				if err := os.WriteFile(name, b[:p], 0o600); err != nil {
					t.Fatal(err)
				}
				src.scan(context.Background(), func(Message) { n++ })
			}
			return n, fmt.Sprint(merged(src.Drops()))
		}
		one, d1 := read(len(b))
		two, d2 := read(at, len(b))
		if one != two || d1 != d2 {
			t.Fatalf("in one piece %d and %s, in two %d and %s", one, d1, two, d2)
		}
	})
}
