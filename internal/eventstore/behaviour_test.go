package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
)

// TestBehaviour is what a store does, wherever its rows lie.
func TestBehaviour(t *testing.T) {
	for _, place := range []struct {
		name string
		with func(t *testing.T, o *Options)
	}{
		{"child", func(*testing.T, *Options) {}},
		{"server", func(t *testing.T, o *Options) { o.Command, o.URL = nil, eventtest.Server(t)+"/" }},
	} {
		t.Run(place.name, func(t *testing.T) {
			o := testOptions(t, t.TempDir())
			place.with(t, &o)
			s, _ := start(t, o)
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) {
					// Rows of one behaviour are told from those of the others by their service.
					b.run(t, s, b.name)
				})
			}
		})
	}
}

func field(name, value string) event.Field { return event.Field{Name: name, Value: value} }

var behaviours = []struct {
	name string
	run  func(t *testing.T, s *Store, service string)
}{
	{"all_that_a_row_has", func(t *testing.T, s *Store, service string) {
		at := time.Now().Add(-time.Minute)
		mustAppend(t, s, event.Row{Kind: event.Request, Time: at.UnixNano(), Message: "rid-1", Service: service, Engine: "10.0.0.1:30000 r0",
			Fields: []event.Field{field("ttft", "0.25"), field("outcome", "ok"), field("empty", "")}})
		mustFlush(t, s)
		var got []string
		err := s.Query(within(t), Query{LogsQL: "service:=" + service}, func(fields []event.Field) error {
			for _, f := range fields {
				v := f.Value
				if f.Name == "_stream_id" || f.Name == "_seq" || f.Name == "received" {
					v = "..."
				}
				got = append(got, f.Name+"="+v)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		want := []string{`_msg=rid-1`, `_seq=...`, `_stream={engine="10.0.0.1:30000 r0",row="request",service="` + service + `"}`, `_stream_id=...`,
			`_time=` + at.UTC().Format("2006-01-02T15:04:05.000000000Z"), `engine=10.0.0.1:30000 r0`, `outcome=ok`, `received=...`, `row=request`, `service=` + service, `ttft=0.25`}
		for i := range got { // trailing zeros of a time are left out
			if v, ok := strings.CutPrefix(got[i], "_time="); ok {
				if parsed, err := time.Parse(time.RFC3339Nano, v); err == nil {
					got[i] = "_time=" + parsed.Format("2006-01-02T15:04:05.000000000Z")
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}},
	{"streams", func(t *testing.T, s *Store, service string) {
		at := time.Now()
		for i, kind := range []event.Kind{event.Span, event.Request, event.Observation, event.Log, event.Pass} {
			mustAppend(t, s, event.Row{Kind: kind, Time: at.UnixNano(), Message: fmt.Sprint(i), Service: service})
		}
		mustFlush(t, s)
		if got := ask(t, s, Query{LogsQL: `{row="log",service="` + service + `"}`}); len(got) != 1 {
			t.Errorf("%q", got)
		}
		if got := ask(t, s, Query{LogsQL: `{service="` + service + `"}`}); len(got) != 5 {
			t.Errorf("%q", got)
		}
	}},
	{"time_range_is_inclusive", func(t *testing.T, s *Store, service string) {
		at := time.Now().Add(-time.Hour).UnixNano()
		for i := range int64(5) {
			mustAppend(t, s, event.Row{Kind: event.Span, Time: at + i, Message: fmt.Sprint(i), Service: service})
		}
		mustFlush(t, s)
		got := ask(t, s, Query{LogsQL: "service:=" + service + " | fields _msg", From: at + 1, To: at + 3})
		if want := []string{"_msg=1", "_msg=2", "_msg=3"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := ask(t, s, Query{LogsQL: "service:=" + service, To: at - 1}); len(got) != 0 {
			t.Errorf("before them all: %q", got)
		}
	}},
	{"limit_takes_the_newest", func(t *testing.T, s *Store, service string) {
		at := time.Now().Add(-time.Hour).UnixNano()
		rows := make([]event.Row, 1000)
		for i := range rows {
			rows[i] = event.Row{Kind: event.Span, Time: at + int64(i), Message: fmt.Sprint(i), Service: service}
		}
		mustAppend(t, s, rows...)
		mustFlush(t, s)
		var got []string
		err := s.Query(within(t), Query{LogsQL: "service:=" + service, Limit: 3}, func(fields []event.Field) error {
			for _, f := range fields {
				if f.Name == "_msg" {
					got = append(got, f.Value)
				}
			}
			return nil
		})
		if want := []string{"999", "998", "997"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q %v, want %q", got, err, want)
		}
		got = nil
		err = s.Query(within(t), Query{LogsQL: "service:=" + service + " | sort by (_time) | fields _msg | limit 2"}, func(fields []event.Field) error {
			got = append(got, fields[0].Value)
			return nil
		})
		if want := []string{"0", "1"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q %v, want %q", got, err, want)
		}
	}},
	{"stop_and_errors_of_the_callback", func(t *testing.T, s *Store, service string) {
		at := time.Now().UnixNano()
		for i := range int64(10) {
			mustAppend(t, s, event.Row{Kind: event.Span, Time: at + i, Message: "x", Service: service})
		}
		mustFlush(t, s)
		n := 0
		if err := s.Query(within(t), Query{LogsQL: "service:=" + service}, func([]event.Field) error {
			n++
			if n == 3 {
				return ErrStop
			}
			return nil
		}); err != nil || n != 3 {
			t.Errorf("stop: %v after %d rows", err, n)
		}
		mine := errors.New("mine")
		if err := s.Query(within(t), Query{LogsQL: "service:=" + service}, func([]event.Field) error { return mine }); !errors.Is(err, mine) {
			t.Errorf("an error of the callback: %v", err)
		}
		ctx, cancel := context.WithCancel(within(t))
		err := s.Query(ctx, Query{LogsQL: "service:=" + service}, func([]event.Field) error { cancel(); return ctx.Err() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("canceled within: %v", err)
		}
		if err := s.Query(ctx, Query{LogsQL: "*"}, func([]event.Field) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled before: %v", err)
		}
	}},
	{"bad_query", func(t *testing.T, s *Store, _ string) {
		for _, q := range []string{"", "a | b c", `{row=`, "* | limit x"} {
			err := s.Query(within(t), Query{LogsQL: q}, func([]event.Field) error { return nil })
			var bad *QueryError
			if !errors.As(err, &bad) || bad.Query != q || bad.Words == "" {
				t.Errorf("%q: %v", q, err)
			}
		}
		// The server repeats the query before it says what is wrong with it.
		err := s.Query(within(t), Query{LogsQL: "service:in(" + strings.Repeat("value,", 1200) + "last) | limit nonsense"}, func([]event.Field) error { return nil })
		if err == nil || len(err.Error()) > 1500 || !strings.Contains(err.Error(), "service:in(value,") || strings.Count(err.Error(), "nonsense") < 2 {
			t.Errorf("a long query: %v", err)
		}
	}},
	{"outside_the_retention", func(t *testing.T, s *Store, service string) {
		now := time.Now()
		row := func(at time.Time, msg string) event.Row {
			return event.Row{Kind: event.Log, Time: at.UnixNano(), Message: msg, Service: service}
		}
		err := s.Append(within(t), []event.Row{
			row(now.Add(-31*24*time.Hour), "old"), row(now, "now"), row(now.Add(48*time.Hour), "future"),
			row(now.Add(-29*24*time.Hour), "old enough"), row(time.Unix(0, 5), "1970"), {Time: now.UnixNano(), Message: "no kind"},
		})
		var r *RejectedError
		if !errors.As(err, &r) || r.Rows != 4 || r.Reason != TooOld || r.Reasons[TooOld] != 2 || r.Reasons[TooNew] != 1 || r.Reasons[Unnamed] != 1 || !slices.Equal(r.At, []int{0, 2, 4, 5}) {
			t.Errorf("%#v", err)
		}
		mustFlush(t, s)
		got := ask(t, s, Query{LogsQL: "service:=" + service + " | fields _msg"})
		if want := []string{"_msg=now", "_msg=old enough"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		drops := map[string]int64{}
		for _, d := range s.Drops() {
			drops[d.Reason] = d.Count
		}
		if drops[TooOld] != 2 || drops[TooNew] != 1 || drops[Unnamed] != 1 {
			t.Errorf("drops %v", drops)
		}
	}},
	{"names_and_values_of_all_kinds", func(t *testing.T, s *Store, service string) {
		row := event.Row{Kind: event.Log, Time: time.Now().UnixNano(), Message: "line 1\nline 2\t\"quoted\" \\ \x00\x01\x1f \u2028 日本 🚀", Service: service, Engine: `e"\{}=,`}
		long := strings.Repeat("n", 200)
		hostile := []string{"", "_time", "_msg", "_stream", "_stream_id", "_seq", "row", "service", "engine", "received", "a b", `q"uote`, "new\nline", "日本", "a.b.c", "{x}", "*", "|", long, "nul\x00"}
		for i, name := range hostile {
			row.Add(name, fmt.Sprintf("v%d <&>'\"\\/\b\f", i))
		}
		row.Add("invalid", "a\xffb\xc3")
		row.Add("json", `{"a":{"b":[1,null]}}`)
		row.Add("number", "1e309")
		mustAppend(t, s, row)
		mustFlush(t, s)
		fields := map[string]string{}
		err := s.Query(within(t), Query{LogsQL: "service:=" + service}, func(fs []event.Field) error {
			for _, f := range fs {
				fields[f.Name] = f.Value
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if fields["_msg"] != row.Message || fields["engine"] != row.Engine {
			t.Errorf("message %q, engine %q", fields["_msg"], fields["engine"])
		}
		for i, name := range hostile {
			if want, got := fmt.Sprintf("v%d <&>'\"\\/\b\f", i), fields[fieldName(name)]; got != want {
				t.Errorf("%q: got %q, want %q", name, got, want)
			}
		}
		if fields["json"] != `{"a":{"b":[1,null]}}` || fields["number"] != "1e309" || !strings.HasPrefix(fields["invalid"], "a") {
			t.Errorf("json %q, number %q, invalid %q", fields["json"], fields["number"], fields["invalid"])
		}
		if got := ask(t, s, Query{LogsQL: `service:=` + service + ` "a b":*`}); len(got) != 1 {
			t.Errorf("by a name with a blank: %q", got)
		}
	}},
	{"empty_message", func(t *testing.T, s *Store, service string) {
		mustAppend(t, s, event.Row{Kind: event.Observation, Time: time.Now().UnixNano(), Service: service, Fields: []event.Field{field("a", "1")}})
		mustFlush(t, s)
		if got, want := ask(t, s, Query{LogsQL: "service:=" + service}), []string{"a=1 row=observation service=" + service}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}},
	{"huge_rows", func(t *testing.T, s *Store, service string) {
		limit := 1800 << 10
		if s.remote != nil {
			limit = 200 << 10 // a server that others started takes lines of 256 KB
		}
		now := time.Now().UnixNano()
		big := event.Row{Kind: event.Log, Time: now, Message: strings.Repeat("x", limit), Service: service}
		over := event.Row{Kind: event.Log, Time: now, Message: strings.Repeat("y", 2<<20), Service: service}
		wide := event.Row{Kind: event.Log, Time: now, Message: "wide", Service: service}
		for i := range 900 {
			wide.Add(fmt.Sprintf("f%d", i), "v")
		}
		many := event.Row{Kind: event.Log, Time: now, Message: "many", Service: service, Fields: make([]event.Field, 2500)}
		err := s.Append(within(t), []event.Row{big, over, wide, many})
		var r *RejectedError
		if !errors.As(err, &r) || r.Reasons[TooLarge] != 1 || r.Reasons[TooMany] != 1 {
			t.Errorf("%v", err)
		}
		mustFlush(t, s)
		var lengths []int
		err = s.Query(within(t), Query{LogsQL: "service:=" + service + " | sort by (_msg) | fields _msg"}, func(fields []event.Field) error {
			lengths = append(lengths, len(fields[0].Value))
			return nil
		})
		if want := []int{4, limit}; err != nil || !slices.Equal(lengths, want) {
			t.Errorf("got %d %v, want %d", lengths, err, want)
		}
	}},
	{"ten_thousand_rows_with_fields_of_their_own", func(t *testing.T, s *Store, service string) {
		now := time.Now().UnixNano()
		rows := make([]event.Row, 10_000)
		for i := range rows {
			rows[i] = event.Row{Kind: event.Span, Time: now + int64(i), Message: fmt.Sprint(i), Service: service, Engine: fmt.Sprint("e", i%7)}
			rows[i].Add(fmt.Sprintf("unknown.%d", i%500), fmt.Sprint(i))
			rows[i].Add("n", fmt.Sprint(i))
		}
		mustAppend(t, s, rows...)
		mustFlush(t, s)
		seen := map[string]int{}
		err := s.Query(within(t), Query{LogsQL: "service:=" + service}, func(fields []event.Field) error {
			for _, f := range fields {
				if f.Name == "n" {
					seen[f.Value]++
				}
			}
			return nil
		})
		if err != nil || len(seen) != len(rows) {
			t.Errorf("%d of %d rows, %v", len(seen), len(rows), err)
		}
		if got := ask(t, s, Query{LogsQL: "service:=" + service + " unknown.17:*"}); len(got) != 20 {
			t.Errorf("%d rows have a field that 20 have", len(got))
		}
	}},
	{"sent_again", func(t *testing.T, s *Store, service string) {
		now := time.Now().UnixNano()
		var rows []event.Row
		for i := range 500 {
			rows = append(rows, event.Row{Kind: event.Span, Time: now + int64(i), Message: fmt.Sprint(i), Service: service})
		}
		mustAppend(t, s, rows...)
		mustFlush(t, s)
		// As after a request whose answer was lost.
		c, err := s.client(within(t))
		if err != nil {
			t.Fatal(err)
		}
		first, last := s.spool.segments[0].first, s.drain.sent()
		d := newDrainer(s)
		d.confirmed, d.done, d.tried, d.generation = first-1, first-1, last, c.generation
		if err := d.reconcile(within(t), c); err != nil {
			t.Fatal(err)
		}
		mustFlush(t, s)
		if n := count(t, s, "service:="+service); n != 500 {
			t.Errorf("%d rows, 500 were sent", n)
		}
	}},
}
