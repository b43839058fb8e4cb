package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/units"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// Off as an address means: not at all.
const Off = "off"

// Traces says how spans come in, which of them are kept, and where they go.
type Traces struct {
	// OTLPGRPC and OTLPHTTP are addresses to listen on; empty for the default (loopback, if the port is
	// free), "off" for none.
	OTLPGRPC string `yaml:"otlp_grpc"`
	OTLPHTTP string `yaml:"otlp_http"`
	// Tempo is where Tempo's HTTP API is served, for Grafana's datasource; empty and "off" as above.
	Tempo string `yaml:"tempo"`
	// Sampling is package tailsample's policy, its own form or the collector's tail_sampling; its Kind is 0
	// without one.
	Sampling yaml.Node `yaml:"sampling"`
	Forward  []Forward `yaml:"forward"`
}

// Forward is a collector that gets what comes in.
type Forward struct {
	Endpoint string            `yaml:"endpoint"` // http(s)://HOST:PORT for OTLP/HTTP, HOST:PORT or grpc(s)://HOST:PORT for gRPC
	Headers  map[string]string `yaml:"headers"`
	// All sends what sampling throws away too.
	All bool `yaml:"all"`
	// Insecure takes any certificate of grpcs:// and https://.
	Insecure bool   `yaml:"insecure"`
	CAFile   string `yaml:"ca_file"`
	MaxQueue string `yaml:"max_queue"` // of the queue on disk, as 1GB
	Line     int    `yaml:"-"`
}

// LogFile is a set of log files to follow.
type LogFile struct {
	Path string `yaml:"path"` // a file or a pattern, as /var/log/sglang/*.log; - is the standard input, syslog+tcp://HOST:PORT a socket
	// Engine is the instance (HOST:PORT as scraped) that writes it; empty for one that the lines name.
	Engine  string `yaml:"engine"`
	Service string `yaml:"service"`
	// Timezone of time stamps without a zone, as Europe/Berlin; empty for the offset seen while following.
	Timezone string `yaml:"timezone"`
	Line     int    `yaml:"-"`
}

// Events says where spans, requests, logs and forward passes are kept, and how long.
type Events struct {
	Retention string `yaml:"retention"` // as 30d; 0 and empty for the default
	MaxSize   string `yaml:"max_size"`  // as 20GB (2^30 bytes each, as Prometheus has it); empty for no limit
	MinFree   string `yaml:"min_free"`  // disk space to leave free, as 1GB
	// Fsync makes what was acknowledged survive a power failure, not only a crash.
	Fsync bool `yaml:"fsync"`
	// URL of a VictoriaLogs that keeps them instead of this machine.
	URL string `yaml:"url"`
}

// DefaultEventRetention is how long events are kept when nobody says.
const DefaultEventRetention = 30 * 24 * time.Hour

// RetentionTime is the retention as a duration.
func (e Events) RetentionTime() time.Duration {
	d, err := model.ParseDuration(e.Retention)
	if err != nil || d == 0 { // checked on loading
		return DefaultEventRetention
	}
	return time.Duration(d)
}

// MaxBytes is the size limit in bytes, 0 for none.
func (e Events) MaxBytes() int64 { return bytesOf(e.MaxSize) }

// MinFreeBytes is the space to leave free in bytes, 0 for the default.
func (e Events) MinFreeBytes() int64 { return bytesOf(e.MinFree) }

// QueueBytes is the limit of a forwarder's queue in bytes, 0 for the default.
func (f Forward) QueueBytes() int64 { return bytesOf(f.MaxQueue) }

func bytesOf(s string) int64 {
	n, err := units.ParseBase2Bytes(s)
	if err != nil { // checked on loading; empty is none
		return 0
	}
	return int64(n)
}

// checkEvents checks traces, logs and events, and joins relative paths with the file's directory.
func (d *document) checkEvents(r *Rollscope, each func(string, func(int, *yaml.Node)), once func(*yaml.Node, string, string), fail func(*yaml.Node, string, ...any)) {
	traces, events := child(d.value, "traces"), child(d.value, "events")
	for key, addr := range map[string]string{"otlp_grpc": r.Traces.OTLPGRPC, "otlp_http": r.Traces.OTLPHTTP, "tempo": r.Traces.Tempo} {
		if err := CheckListen(addr); err != nil {
			fail(at(traces, key), "%s: %v", key, err)
		}
	}
	size := func(n *yaml.Node, key, value string) {
		if value == "" {
			return
		}
		if b, err := units.ParseBase2Bytes(value); err != nil || b < 0 {
			fail(at(n, key), "%s: %q is not a size: write a number and a unit, as 20GB", key, value)
		}
	}
	if r.Traces.Forward != nil {
		list := child(traces, "forward")
		for i := range r.Traces.Forward {
			f, n := &r.Traces.Forward[i], list.Content[i]
			f.Line = n.Line
			if err := checkEndpoint(f.Endpoint); err != nil {
				fail(at(n, "endpoint"), "endpoint: %v", err)
				continue
			}
			once(n, "forward endpoint", f.Endpoint)
			f.CAFile = d.join(f.CAFile)
			size(n, "max_queue", f.MaxQueue)
		}
	}
	each("logs", func(i int, n *yaml.Node) {
		l := &r.Logs[i]
		l.Line = n.Line
		if err := CheckLogPath(l.Path); err != nil {
			fail(at(n, "path"), "path: %v", err)
			return
		}
		once(n, "logs path", l.Path)
		if l.Timezone != "" {
			if _, err := time.LoadLocation(l.Timezone); err != nil {
				fail(at(n, "timezone"), "timezone: %q is no name of the time zone database: write one as Europe/Berlin, or UTC", l.Timezone)
			}
		}
		if l.Path != "-" && !IsSyslog(l.Path) {
			l.Path = d.join(l.Path)
		}
	})
	if e := r.Events.Retention; e != "" {
		if v, err := model.ParseDuration(e); err != nil {
			fail(at(events, "retention"), "retention: %v", err)
		} else if v != 0 && time.Duration(v) < 24*time.Hour {
			fail(at(events, "retention"), "retention: %s is too short: events are dropped by whole days, so one day is the least", e)
		}
	}
	size(events, "max_size", r.Events.MaxSize)
	size(events, "min_free", r.Events.MinFree)
	if u := r.Events.URL; u != "" {
		if err := httpURL(u); err != nil {
			fail(at(events, "url"), "url: %v", err)
		}
		if r.Events.Retention != "" || r.Events.MaxSize != "" || r.Events.MinFree != "" {
			fail(at(events, "url"), "url: the server there has its own retention and size: leave out retention:, max_size: and min_free:")
		}
	}
}

// CheckListen says what is wrong with an address to listen on; empty and "off" are fine.
func CheckListen(addr string) error {
	if addr == "" || addr == Off {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is no address: write HOST:PORT, or %s", addr, Off)
	}
	if port == "" {
		return fmt.Errorf("%q has no port: write HOST:PORT, or %s", addr, Off)
	}
	return nil
}

// CheckLogPath says what is wrong with a pattern of log files; "-" is the standard input.
func CheckLogPath(path string) error {
	if path == "" {
		return errors.New("is missing; write a file or a pattern, as /var/log/sglang/*.log")
	}
	if rest, ok := strings.CutPrefix(path, "syslog+"); ok {
		u, err := url.Parse(rest)
		if err != nil || u.Scheme != "tcp" && u.Scheme != "udp" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
			return fmt.Errorf("%q is no socket for syslog: write syslog+tcp://HOST:PORT or syslog+udp://HOST:PORT", path)
		}
		return nil
	}
	if _, err := filepath.Match(path, "x"); err != nil {
		return fmt.Errorf("%q is no pattern: a [ without its ], or a \\ at the end", path)
	}
	return nil
}

// IsSyslog tells a socket from a file.
func IsSyslog(path string) bool { return strings.HasPrefix(path, "syslog+") }

// checkEndpoint says what is wrong with a collector's address.
func checkEndpoint(s string) error {
	if s == "" {
		return errors.New("is missing; write http://HOST:4318 for OTLP/HTTP, or HOST:4317 for gRPC")
	}
	if !strings.Contains(s, "://") {
		if _, _, err := net.SplitHostPort(s); err != nil {
			return fmt.Errorf("%q is no address: write HOST:PORT for gRPC, or http://HOST:PORT", s)
		}
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is no address: write http://HOST:PORT, or grpc://HOST:PORT", s)
	}
	switch u.Scheme {
	case "http", "https", "grpc", "grpcs":
		return nil
	}
	return fmt.Errorf("%q: the scheme %s is none of http, https, grpc, grpcs", s, u.Scheme)
}
