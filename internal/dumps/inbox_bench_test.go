package dumps

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// benchBody is a batch of 64 samples of about 7 kB.
func benchBody(m message) string {
	var b strings.Builder
	b.WriteString(m.body())
	for i := range 64 {
		fmt.Fprintf(&b, `{"index":%d,"prompt":%q,"reward":1.0,"trace":{"version":1,"trace_id":"t%d","events":[`, i, strings.Repeat("some words ", 100), i)
		for e := range 40 {
			if e > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"type":"event","name":"sandbox_ready","ts":%d.5,"trace_id":"t%d","attempt":0,"attrs":{"seconds":%d.25}}`, 1e9+e, i, e)
		}
		b.WriteString("]}}\n")
	}
	return b.String()
}

// BenchmarkInboxTake takes a compressed batch, synchronised to disk; bytes are those of its text.
func BenchmarkInboxTake(b *testing.B) {
	x, err := OpenInbox(b.TempDir(), InboxOptions{MinFree: -1, MaxBytes: 1 << 40, MaxBatches: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	bodies := make([]string, b.N)
	for i := range bodies {
		body := benchBody(message{part: i})
		b.SetBytes(int64(len(body)))
		bodies[i] = zipped(body)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, body := range bodies {
		if _, err := x.Take(context.Background(), strings.NewReader(body)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInboxDump makes a dump of 32 batches; the memory that it takes is that of one of them.
func BenchmarkInboxDump(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		x, err := OpenInbox(b.TempDir(), InboxOptions{MinFree: -1, Linger: -1})
		if err != nil {
			b.Fatal(err)
		}
		size := 0
		for part := range 32 {
			body := benchBody(message{part: part, final: part == 31})
			size += len(body)
			if _, err := x.Take(context.Background(), strings.NewReader(zipped(body))); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(int64(size))
		b.StartTimer()
		x.settle(context.Background())
		if s := x.Status(); s.Batches != 0 {
			b.Fatal(s)
		}
	}
}
