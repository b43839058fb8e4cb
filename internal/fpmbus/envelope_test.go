package fpmbus

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestEnvelopeCaptures(t *testing.T) {
	payload := capture(t, "fpm_v1_active.msgpack")
	want := Envelope{Publisher: 7587888160958627, Sequence: 0, Published: time.UnixMilli(1782777601250).UTC(), Topic: Topic, Payload: payload}
	for _, name := range []string{"event_envelope_fpm.msgpack", "event_envelope_fpm_old_field_order.msgpack"} {
		b := capture(t, name)
		e, err := DecodeEnvelope(b)
		want := want
		if name != "event_envelope_fpm.msgpack" {
			want.Sequence, want.Payload = 1, capture(t, "fpm_v1_heartbeat.msgpack")
		}
		if err != nil || !sameEnvelope(e, want) {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if name == "event_envelope_fpm.msgpack" && !bytes.Equal(AppendEnvelope(nil, want), b) {
			t.Errorf("%s is not what we write:\n%x\n%x", name, AppendEnvelope(nil, want), b)
		}
	}
	var nats struct {
		New  string `json:"new_subject"`
		Old  string `json:"old_subject"`
		Data string `json:"data_hex"`
	}
	if err := json.Unmarshal(capture(t, "nats_fpm_message.json"), &nats); err != nil {
		t.Fatal(err)
	}
	data := must[[]byte](t)(hex.DecodeString(nats.Data))
	if e, err := DecodeEnvelope(data); err != nil || !sameEnvelope(e, want) {
		t.Errorf("NATS: %+v, %v", e, err)
	}
	for subject, scope := range map[string]Scope{nats.New: {"default", "backend", "generate"}, nats.Old: {"default", "backend", ""}} {
		if got, ok := ParseSubject(subject); !ok || got != scope || scope.Subject() != subject {
			t.Errorf("%s: %+v, %s", subject, got, scope.Subject())
		}
	}
}

// The frames of both ZMQ hops, as captured, go through the sources' own readers.
func TestFrameCaptures(t *testing.T) {
	var engine struct {
		Messages [][]string `json:"messages"`
	}
	if err := json.Unmarshal(capture(t, "zmq_engine_3frame.json"), &engine); err != nil {
		t.Fatal(err)
	}
	var got []Message
	src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Endpoint: "ipc:///x"})).(*engineSocket)
	src.emit = func(m Message) { got = append(got, m) }
	for _, m := range engine.Messages {
		src.take(frames(t, m))
	}
	if len(got) != 2 || got[0].Sequence != 42 || got[1].Sequence != 43 || !bytes.Equal(got[0].Payload, capture(t, "fpm_v1_active.msgpack")) || !bytes.Equal(got[1].Payload, capture(t, "fpm_v1_heartbeat.msgpack")) {
		t.Errorf("%+v", got)
	}
	var plane struct {
		Direct, Broker []string
	}
	if err := json.Unmarshal(capture(t, "zmq_event_plane_4frame.json"), &plane); err != nil {
		t.Fatal(err)
	}
	got = nil
	direct := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Channels: []Channel{{Endpoint: "tcp://h:1", Scope: Scope{"a", "b", "c"}}}})).(*planeZMQ)
	direct.emit = func(m Message) { got = append(got, m) }
	c := &channel{Channel: direct.o.Channels[0], m: direct.all}
	direct.take(c, frames(t, plane.Direct))
	direct.take(c, frames(t, plane.Direct)) // once more is a repeat
	direct.take(c, frames(t, plane.Broker)) // another subject
	if len(got) != 2 || got[0].Namespace != "a" || got[1].Namespace != "default" || got[1].Endpoint != "generate" || got[0].Publisher != 7587888160958627 {
		t.Errorf("%+v", got)
	}
	for i, bad := range [][]string{plane.Direct[:3], {plane.Direct[0], plane.Direct[1], plane.Direct[2], "02" + plane.Direct[3][2:]},
		{plane.Direct[0], "00", plane.Direct[2], plane.Direct[3]}, {plane.Direct[0], plane.Direct[1], plane.Direct[2], plane.Direct[3][:40]}} {
		direct.take(c, frames(t, bad))
		if n := dropsOf(direct.Drops(), direct.o.Name, "bad_frames"); n != int64(i+1) {
			t.Errorf("bad message %d: %+v", i, direct.Drops())
		}
	}
}

func frames(t *testing.T, in []string) [][]byte {
	var out [][]byte
	for _, s := range in {
		out = append(out, must[[]byte](t)(hex.DecodeString(s)))
	}
	return out
}

func sameEnvelope(a, b Envelope) bool {
	return a.Publisher == b.Publisher && a.Sequence == b.Sequence && a.Published.Equal(b.Published) && a.Topic == b.Topic && bytes.Equal(a.Payload, b.Payload)
}

// Python's msgpack writes what we read, and reads what we write, over all sizes of numbers and payloads.
func TestEnvelopePython(t *testing.T) {
	var want []Envelope
	for i, n := range []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, 1<<53 + 1, math.MaxUint64} {
		want = append(want, Envelope{Publisher: n, Sequence: n, Published: time.UnixMilli(int64(1782777601250 + i)).UTC(), Topic: Topic, Payload: bytes.Repeat([]byte{byte(i)}, []int{0, 1, 255, 256, 65535, 65536}[i%6])})
	}
	script := `
import msgpack, sys, binascii
for line in sys.stdin:
    e = msgpack.unpackb(binascii.unhexlify(line.strip()))
    assert list(e) == ["publisher_id", "sequence", "published_at", "topic", "payload"] and isinstance(e["payload"], bytes), e
    e["later"] = {"a": [1, -5, 1.5, None, True, b"x" * 300, "y" * 300, list(range(20)), msgpack.ExtType(5, b"12345")]}
    e["published_at_ns"] = None
    print(binascii.hexlify(msgpack.packb(dict(reversed(list(e.items()))))).decode())
`
	var in strings.Builder
	for _, e := range want {
		fmt.Fprintln(&in, hex.EncodeToString(AppendEnvelope(nil, e)))
	}
	cmd := exec.Command(python(t), "-c", script)
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, err.(*exec.ExitError).Stderr)
	}
	lines := strings.Fields(string(out))
	if len(lines) != len(want) {
		t.Fatalf("%d answers", len(lines))
	}
	for i, line := range lines {
		b := must[[]byte](t)(hex.DecodeString(line))
		if e, err := DecodeEnvelope(b); err != nil || !sameEnvelope(e, want[i]) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestEnvelopeRefused(t *testing.T) {
	good := AppendEnvelope(nil, Envelope{Publisher: 1, Sequence: 2, Published: time.UnixMilli(3), Topic: Topic, Payload: []byte("x")})
	for i := range good { // cut off anywhere
		if _, err := DecodeEnvelope(good[:i]); !errors.Is(err, errEnvelope) {
			t.Errorf("%d bytes of it: %v", i, err)
		}
	}
	for name, b := range map[string]string{
		"a list": "\x93\x01\x02\x03", "an empty map": "\x80", "a map with a number as a key": "\x81\x01\x02",
		"a negative sequence": "\x81\xa8sequence\xff", "a negative sequence of 8 bytes": "\x81\xa8sequence\xd3\xff\xff\xff\xff\xff\xff\xff\xff",
		"a payload that is a list": "\x81\xa7payload\x93\x01\x02\x03", "a huge map": "\xdf\xff\xff\xff\xff", "a huge text": "\x81\xdb\xff\xff\xff\xff",
		"depth": "\x81\xa1a" + strings.Repeat("\x91", 100) + "\x01", "never used": "\x81\xa1a\xc1",
	} {
		if _, err := DecodeEnvelope([]byte(b)); !errors.Is(err, errEnvelope) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add(AppendEnvelope(nil, Envelope{Publisher: 1 << 60, Sequence: 2, Published: time.UnixMilli(1782777601250), Topic: Topic, Payload: []byte("payload")}))
	f.Add([]byte("\x81\xa1a\xdc\x00\x02\xc7\x01\x05x\xd4\x01x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEnvelope(b)
		if err != nil {
			return
		}
		if len(e.Topic) > 255 || e.Published.Nanosecond()%1e6 != 0 {
			return // we write neither
		}
		again, err := DecodeEnvelope(AppendEnvelope(nil, e))
		if err != nil || again.Publisher != e.Publisher || again.Sequence != e.Sequence || again.Topic != e.Topic || !bytes.Equal(again.Payload, e.Payload) {
			t.Fatalf("%+v became %+v, %v", e, again, err)
		}
	})
}

func TestSubjects(t *testing.T) {
	for _, s := range []Scope{{"default", "backend", "generate"}, {"a.b", "c d", "ü/%"}, {"n", "c", ""}, {"n", "", ""}} {
		if got, ok := ParseSubject(s.Subject()); !ok || got != s {
			t.Errorf("%+v is %s is %+v", s, s.Subject(), got)
		}
	}
	if got := (Scope{"a.b", "c d", "ü"}).Subject(); got != "namespace.a%2Eb.component.c%20d.endpoint.%C3%BC.forward-pass-metrics" {
		t.Error(got)
	}
	if got, ok := ParseSubject("namespace.my.ns.component.c.forward-pass-metrics"); !ok || got != (Scope{"my.ns", "c", ""}) {
		t.Errorf("a namespace with a dot: %+v", got)
	}
	for _, bad := range []string{"", "namespace", "namespace.forward-pass-metrics", "namespace.n.kv-events", "x.n.forward-pass-metrics", "namespace.n.component.c.forward-pass-metrics.x"} {
		if got, ok := ParseSubject(bad); ok {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func FuzzSubject(f *testing.F) {
	f.Add("namespace.default.component.backend.endpoint.generate.forward-pass-metrics")
	f.Add("namespace.a%2Eb%.component..forward-pass-metrics")
	f.Fuzz(func(t *testing.T, in string) {
		s, ok := ParseSubject(in)
		if !ok || s.Component == "" && s.Endpoint != "" {
			return
		}
		if again, ok := ParseSubject(s.Subject()); !ok || again != s {
			t.Fatalf("%q: %+v, then %+v", in, s, again)
		}
	})
}

func FuzzBrokers(f *testing.F) {
	f.Add("xsub=tcp://a:5555;tcp://b:5555 , xpub=tcp://a:5556;tcp://b:5556")
	f.Fuzz(func(t *testing.T, in string) {
		xsub, xpub, err := Brokers(in)
		if err == nil && len(xsub)+len(xpub) == 0 {
			t.Fatal("nothing and no error")
		}
	})
}

func TestBrokers(t *testing.T) {
	xsub, xpub, err := Brokers("xsub=tcp://a:5555;tcp://b:5555 , xpub=tcp://a:5556;tcp://b:5556")
	if err != nil || strings.Join(xsub, " ") != "tcp://a:5555 tcp://b:5555" || strings.Join(xpub, " ") != "tcp://a:5556 tcp://b:5556" {
		t.Error(xsub, xpub, err)
	}
	for _, bad := range []string{"", "tcp://a:1", "xsub=a", "xsub=tcp://a:1,pub=tcp://a:2", "xsub="} {
		if _, _, err := Brokers(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
