package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/rollscope/rollscope/internal/app"
)

func addServe(a *kingpin.Application, e *env) {
	o := &app.ServeOptions{System: &app.SystemOptions{}}
	cmd := a.Command("serve", "The recorder: scrape, store, evaluate rules, alert, and serve API and page.").HelpLong(`
Takes Prometheus's flags and a plain prometheus.yml, or targets on the command line:
  rollscope serve --scrape 10.0.0.11:30000 --scrape 10.0.0.12:30000
  rollscope serve --scrape-from-log /runs/7/train.log --storage.tsdb.path /runs/7/tsdb
  rollscope serve --rollouts '/runs/7/debug/rollout_{rollout_id}.pt' --storage.tsdb.path /runs/7/tsdb
  rollscope serve --scrape 10.0.0.11:30000 --logs '/runs/7/logs/*.log' --traces.otlp-grpc 10.0.0.5:4317
  rollscope serve --scrape 10.0.0.11:30000 --fpm ipc:///tmp/sglang-fpm --fpm-ranks 8
  rollscope serve --scrape 127.0.0.1:30000 --scrape 127.0.0.1:30001 --system-port 8081
  rollscope serve --config.file=prometheus.yml --storage.tsdb.path=data --storage.tsdb.retention.time=7d
`)
	cmd.Flag("config.file", "Configuration: a prometheus.yml, with an optional section rollscope.").StringVar(&o.ConfigFile)
	cmd.Flag("scrape", "Scrape HOST:PORT[/path] (repeatable); /metrics unless a path is given.").PlaceHolder("HOST:PORT").StringsVar(&o.Scrape)
	cmd.Flag("scrape-interval", "How often --scrape targets are read.").Default("5s").SetValue(duration(&o.ScrapeInterval))
	cmd.Flag("scrape-from-log", "Follow FILE for the router address that slime prints, over restarts.").PlaceHolder("FILE").StringVar(&o.ScrapeFromLog)
	cmd.Flag("sglang-router-ip", "Address of slime's router, as in slime's own flag.").StringVar(&o.RouterIP)
	cmd.Flag("sglang-router-port", "Port of slime's router.").IntVar(&o.RouterPort)
	cmd.Flag("rollouts", "Watch for rollout dumps (repeatable): slime's --save-debug-rollout-data.").PlaceHolder("'DIR/rollout_{rollout_id}.pt'").StringsVar(&o.Rollouts)
	cmd.Flag("logs", "Follow log files (repeatable); - is the standard input, syslog+tcp://HOST:PORT a socket.").PlaceHolder("'DIR/*.log'").StringsVar(&o.Events.Logs)
	cmd.Flag("fpm", "Receive forward passes (repeatable): ipc:///tmp/sglang-fpm or tcp://HOST:PORT of an engine, nats://HOST:4222/NAMESPACE of Dynamo; rollscope fpm --help lists all forms.").PlaceHolder("SOURCE").StringsVar(&o.FPM.Sources)
	cmd.Flag("fpm-ranks", "The engines' sockets of --fpm are the first of so many data-parallel ranks.").PlaceHolder("N").IntVar(&o.FPM.Ranks)
	eventFlags(cmd, &o.Events)
	storeFlags(cmd, &o.Store)
	webFlags(cmd, &o.Web)
	systemFlags(cmd, o.System)
	cmd.Flag("web.enable-remote-write-receiver", "Accept samples at /api/v1/write.").BoolVar(&o.RemoteWriteReceiver)
	cmd.Flag("web.enable-otlp-receiver", "Accept OTLP metrics at /api/v1/otlp/v1/metrics.").BoolVar(&o.OTLPReceiver)
	cmd.Flag("web.enable-lifecycle", "Accepted for Prometheus's sake; reload is open to the admin scope.").BoolVar(&o.Lifecycle)
	cmd.Flag("web.enable-admin-api", "Allow deletion and snapshots under /api/v1/admin.").BoolVar(&o.AdminAPI)
	cmd.Flag("rules.builtin", "Evaluate the built-in recording rules and alerts.").Default("true").BoolVar(&o.BuiltinRules)
	cmd.Action(func(*kingpin.ParseContext) error {
		o.Logger, o.Version, o.Out = e.logger(), e.version, e.out
		return app.Serve(e.ctx, *o)
	})
}

// systemFlags are Dynamo's settings of its system port: a flag wins over the variable.
func systemFlags(cmd *kingpin.CmdClause, o *app.SystemOptions) {
	cmd.Flag("system-port", "One port for this machine's engines as a Dynamo worker has it: /metrics of all in one, /health, /live. 0 takes a free port, -1 is none.").
		Envar("DYN_SYSTEM_PORT").Default("-1").SetValue(&portValue{&o.Port})
	cmd.Flag("system-host", "Address of the system port; unless set, the host of --web.listen-address.").Envar("DYN_SYSTEM_HOST").PlaceHolder("HOST").StringVar(&o.Host)
	cmd.Flag("system-health-path", "Path of its health; unless set, /health.").Envar("DYN_SYSTEM_HEALTH_PATH").PlaceHolder("PATH").StringVar(&o.Health)
	cmd.Flag("system-live-path", "Second path of it; unless set, /live.").Envar("DYN_SYSTEM_LIVE_PATH").PlaceHolder("PATH").StringVar(&o.Live)
	cmd.Flag("system-starting-health-status", "What an engine counts as while it starts, and a machine without engines: ready or notready (default).").
		Envar("DYN_SYSTEM_STARTING_HEALTH_STATUS").PlaceHolder("STATUS").StringVar(&o.Starting)
	cmd.Flag("system-use-endpoint-health-status", "Endpoints that decide the status, all of them; unless set, every engine.").
		Envar("DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS").PlaceHolder("JSON").StringVar(&o.Endpoints)
}

func storeFlags(cmd *kingpin.CmdClause, s *app.StoreOptions) {
	cmd.Flag("storage.tsdb.path", "Data directory: a Prometheus data directory and our own below it.").Default("data/").StringVar(&s.Dir)
	cmd.Flag("storage.tsdb.retention.time", "Keep samples this long.").Default("15d").SetValue(duration(&s.Retention))
	cmd.Flag("storage.tsdb.retention.size", "Keep at most this many bytes of blocks, as 20GB; 0 is no limit.").Default("0").BytesVar(&s.RetentionBytes)
	cmd.Flag("storage.tsdb.out-of-order-time-window", "Accept samples this much older than the newest.").Default("10m").SetValue(duration(&s.OutOfOrder))
	cmd.Flag("storage.snapshot-to", "Copy closed blocks and the log to this directory every --storage.snapshot-every: for a data directory on local disk beside a shared file system.").PlaceHolder("DIR").StringVar(&s.SnapshotTo)
	cmd.Flag("storage.snapshot-every", "How often.").Default("5m").SetValue(duration(&s.SnapshotEvery))
	cmd.Flag("query.timeout", "A query may take this long.").Default("2m").SetValue(duration(&s.QueryTimeout))
	cmd.Flag("query.max-concurrency", "So many queries at a time.").Default("20").IntVar(&s.QueryConcurrency)
	cmd.Flag("query.max-samples", "A query may load this many samples.").Default("50000000").IntVar(&s.QuerySamples)
	cmd.Flag("query.lookback-delta", "How long a sample is current.").Default("5m").SetValue(duration(&s.Lookback))
}

// eventFlags are those of spans, logs and requests; what is not given stands in the configuration.
func eventFlags(cmd *kingpin.CmdClause, o *app.EventOptions) {
	cmd.Flag("traces.otlp-grpc", "Address for OTLP over gRPC, or off. Unless set anywhere, 127.0.0.1:4317 when it is free.").PlaceHolder("HOST:PORT").StringVar(&o.OTLPGRPC)
	cmd.Flag("traces.otlp-http", "Address for OTLP over HTTP, or off. Unless set anywhere, 127.0.0.1:4318 when it is free; the main address takes OTLP too, below /v1.").PlaceHolder("HOST:PORT").StringVar(&o.OTLPHTTP)
	cmd.Flag("traces.tempo", "Address for Grafana's Tempo data source, or off. Unless set anywhere, 127.0.0.1:3200 when it is free.").PlaceHolder("HOST:PORT").StringVar(&o.Tempo)
	cmd.Flag("events.retention", "Keep spans, logs and requests this long; unless set anywhere, 30d.").PlaceHolder("30d").SetValue(duration(&o.Retention))
	cmd.Flag("events.max-size", "Keep at most this many bytes of them, as 50GB.").BytesVar(&o.MaxBytes)
	cmd.Flag("events.fsync", "Acknowledge what is on the disk, and not only with the operating system: a power cut loses nothing either.").BoolVar(&o.Fsync)
	cmd.Flag("events.url", "Keep them in this VictoriaLogs instead of our own.").PlaceHolder("URL").StringVar(&o.URL)
}

func webFlags(cmd *kingpin.CmdClause, w *app.WebOptions) {
	cmd.Flag("web.listen-address", "Address of API and page (repeatable).").Default("127.0.0.1:9090").StringsVar(&w.Listen)
	cmd.Flag("web.config.file", "TLS and users, in Prometheus's web configuration format.").StringVar(&w.ConfigFile)
	cmd.Flag("web.external-url", "Address under which this server is reached from outside, for links and host checks.").StringVar(&w.ExternalURL)
	cmd.Flag("web.allowed-hosts", "Further host names under which requests may arrive (repeatable).").StringsVar(&w.AllowedHosts)
	cmd.Flag("web.cors.origin", "Regular expression of whole origins whose pages may read from this server.").StringVar(&w.CORSOrigin)
	cmd.Flag("web.tokens-file", "File of bearer tokens and their scopes: a line each: read, write or admin, and the token or sha256:HASH.").StringVar(&w.TokensFile)
}

// portValue reads a port of one's own, 0 for a free one and -1 for none.
type portValue struct{ port *int }

func (v *portValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < -1 || n > 65535 {
		return fmt.Errorf("invalid port %q in --system-port or DYN_SYSTEM_PORT: 0 to 65535, or -1 for none", s)
	}
	*v.port = n
	return nil
}

func (v *portValue) String() string { return strconv.Itoa(*v.port) }

// durationValue reads Prometheus's durations (15d, 1h30m) into a time.Duration.
type durationValue struct{ d *time.Duration }

func duration(d *time.Duration) kingpin.Value { return &durationValue{d} }

func (v *durationValue) Set(s string) error {
	d, err := model.ParseDuration(s)
	*v.d = time.Duration(d)
	return err
}

func (v *durationValue) String() string { return model.Duration(*v.d).String() }
