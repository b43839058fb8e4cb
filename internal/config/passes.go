package config

import (
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// ForwardPasses says where forward-pass messages come from, what is kept of them and where they go.
type ForwardPasses struct {
	ZMQ []PassEngineSocket `yaml:"zmq"`
	// PlaneZMQ is Dynamo's event plane over ZMQ, with brokers or without.
	PlaneZMQ *PassPlaneZMQ `yaml:"plane_zmq"`
	// NATS is Dynamo's event plane over NATS.
	NATS *PassNATS `yaml:"nats"`
	// Socket is the UNIX socket that Dynamo's exporter connects to.
	Socket string `yaml:"socket"`
	// Files are dynamo.fpm.trace.v1 files or patterns, followed as they grow.
	Files []string   `yaml:"files"`
	Relay *PassRelay `yaml:"relay"`
	// Keep says which passes become rows of the event store: "all" (the default), "bursts", "off".
	Keep string `yaml:"keep"`
	// Retention of rows outside bursts, as 1h, the default; those in bursts stay as long as other events.
	Retention string     `yaml:"retention"`
	Burst     PassBursts `yaml:"burst"`
	// Pools say which components are a pool of engines, and the limits of one engine of it.
	Pools map[string]PassPool `yaml:"pools"`
	// Runtime is the engines' image or package with its version, as sglang-runtime:1.2.0: some are known to send nothing.
	Runtime string `yaml:"runtime"`
}

// PassEngineSocket is an engine's PUB sockets, one for each data-parallel rank.
type PassEngineSocket struct {
	Endpoint string `yaml:"endpoint"` // ipc:///tmp/sglang-fpm, of which .RANK is appended, or tcp://HOST:PORT, of which the port counts on
	Ranks    int    `yaml:"ranks"`    // 0: the endpoint as it stands
	// Engine is the instance (HOST:PORT as scraped) that sends; it tells whether the engine is busy while nothing comes.
	Engine    string `yaml:"engine"`
	Namespace string `yaml:"namespace"`
	Component string `yaml:"component"`
	// Encoding is "map" (the default) or "positional": arrays in the order of the schema's fields are taken too.
	Encoding string `yaml:"encoding"`
	Line     int    `yaml:"-"`
}

// PassPlaneZMQ is where publishers of an event plane are: one of the three.
type PassPlaneZMQ struct {
	Brokers   []string `yaml:"brokers"`   // XPUB endpoints, or one entry in the form of DYN_ZMQ_BROKER_URL
	Channels  []string `yaml:"channels"`  // publishers' endpoints
	Discovery string   `yaml:"discovery"` // file:///PATH, or http://HOST:2379 of etcd, several with commas
	Encoding  string   `yaml:"encoding"`
}

// PassNATS is a NATS server.
type PassNATS struct {
	URL       string   `yaml:"url"`       // nats://HOST:4222, several with commas; "embedded" is one of this process
	Listen    string   `yaml:"listen"`    // of the embedded server, HOST:PORT for other processes; "" for none
	Namespace string   `yaml:"namespace"` // Dynamo's; "" for all
	Subjects  []string `yaml:"subjects"`
	User      string   `yaml:"user"`
	// PasswordFile and TokenFile hold the secret; it never stands in the configuration.
	PasswordFile    string   `yaml:"password_file"`
	TokenFile       string   `yaml:"token_file"`
	CredentialsFile string   `yaml:"credentials_file"`
	NKeySeedFile    string   `yaml:"nkey_seed_file"`
	CAFiles         []string `yaml:"ca_files"`
	Encoding        string   `yaml:"encoding"`
}

// PassRelay is where engines' messages are passed on to, unaltered: one of nats, bind and brokers.
type PassRelay struct {
	NATS      *PassNATS `yaml:"nats"`
	Bind      string    `yaml:"bind"`    // tcp://HOST:PORT or ipc:///PATH
	Brokers   []string  `yaml:"brokers"` // XSUB endpoints
	Namespace string    `yaml:"namespace"`
	Component string    `yaml:"component"`
	Endpoint  string    `yaml:"endpoint"`
	Queue     int       `yaml:"queue"` // messages that may wait; 0: 65,536
	// Planes passes on what came from an event plane too; only for connecting two planes.
	Planes bool `yaml:"planes"`
}

// PassBursts says around what every pass is kept.
type PassBursts struct {
	Seconds int      `yaml:"seconds"`  // before and after; 0: 30
	On      []string `yaml:"on"`       // of gap, restart, model_change, alert; empty: all but gap
	PerHour int      `yaml:"per_hour"` // bursts that start by themselves; 0: 12
}

// PassPool is a pool of engines that is scaled as one. Limits that are 0 are read from the engines' metrics where they tell.
type PassPool struct {
	Components       []string `yaml:"components"`
	MaxBatchedTokens int64    `yaml:"max_num_batched_tokens"`
	MaxKVTokens      int64    `yaml:"max_kv_tokens"`
	MaxSeqs          int64    `yaml:"max_num_seqs"`
	ContextLength    int64    `yaml:"context_length"`
	GPUs             int      `yaml:"gpus"`
}

// Words of the section.
var (
	passKeeps     = []string{"", "all", "bursts", "off"}
	passEncodings = []string{"", "map", "positional"}
	passTriggers  = []string{"gap", "restart", "model_change", "alert"}
	passPools     = []string{"prefill", "decode"}
)

// Embedded as a NATS server's URL means one of this process.
const Embedded = "embedded"

// DefaultPassRetention is how long rows of passes outside bursts are kept when nobody says.
const DefaultPassRetention = time.Hour

// RetentionTime is the retention as a duration.
func (f *ForwardPasses) RetentionTime() time.Duration {
	d, err := model.ParseDuration(f.Retention)
	if err != nil || d == 0 { // checked on loading
		return DefaultPassRetention
	}
	return time.Duration(d)
}

// Any tells whether passes are received from anywhere.
func (f *ForwardPasses) Any() bool {
	return len(f.ZMQ) > 0 || f.PlaneZMQ != nil || f.NATS != nil || f.Socket != "" || len(f.Files) > 0
}

// checkPasses checks forward_passes.
func (d *document) checkPasses(f *ForwardPasses, word func(*yaml.Node, string, string, []string), once func(*yaml.Node, string, string), fail func(*yaml.Node, string, ...any)) {
	top := child(d.value, "forward_passes")
	if top == nil {
		return
	}
	word(top, "keep", f.Keep, passKeeps)
	if f.Retention != "" {
		if v, err := model.ParseDuration(f.Retention); err != nil {
			fail(at(top, "retention"), "retention: %v", err)
		} else if v != 0 && (time.Duration(v) < time.Minute || time.Duration(v) > 7*24*time.Hour) {
			fail(at(top, "retention"), "retention: %s is not between 1m and 7d: passes come by the thousand a second", f.Retention)
		}
	}
	list := child(top, "zmq")
	for i := range f.ZMQ {
		z, n := &f.ZMQ[i], list.Content[i]
		z.Line = n.Line
		if !strings.HasPrefix(z.Endpoint, "ipc://") && !strings.HasPrefix(z.Endpoint, "tcp://") {
			fail(at(n, "endpoint"), "endpoint: %q is no engine's socket: write ipc:///tmp/sglang-fpm or tcp://HOST:PORT", z.Endpoint)
			continue
		}
		once(n, "zmq endpoint", z.Endpoint)
		if z.Ranks < 0 || z.Ranks > 4096 {
			fail(at(n, "ranks"), "ranks: %d is not between 0 and 4096", z.Ranks)
		}
		word(n, "encoding", z.Encoding, passEncodings)
	}
	if p := f.PlaneZMQ; p != nil {
		n := child(top, "plane_zmq")
		given := 0
		for _, there := range []bool{len(p.Brokers) > 0, len(p.Channels) > 0 || p.Discovery != ""} {
			if there {
				given++
			}
		}
		if given != 1 {
			fail(n, "plane_zmq: give brokers:, or channels: and discovery:")
		}
		if s := p.Discovery; s != "" && !strings.HasPrefix(s, "file:///") && !strings.HasPrefix(s, "http://") && !strings.HasPrefix(s, "https://") {
			fail(at(n, "discovery"), "discovery: %q is neither file:///PATH nor etcd's http://HOST:2379", s)
		}
		word(n, "encoding", p.Encoding, passEncodings)
	}
	if p := f.NATS; p != nil {
		d.checkNATS(child(top, "nats"), p, word, fail)
	}
	f.Socket = d.join(strings.TrimPrefix(f.Socket, "unix://"))
	for i := range f.Files {
		f.Files[i] = d.join(f.Files[i])
	}
	if r := f.Relay; r != nil {
		n := child(top, "relay")
		given := 0
		for _, there := range []bool{r.NATS != nil, r.Bind != "", len(r.Brokers) > 0} {
			if there {
				given++
			}
		}
		if given != 1 {
			fail(n, "relay: give one of nats:, bind: and brokers:")
		}
		if r.NATS != nil {
			d.checkNATS(child(n, "nats"), r.NATS, word, fail)
		}
		if r.Namespace == "" || r.Component == "" {
			fail(n, "relay: namespace: and component: are missing: engines' sockets do not say where their messages belong")
		}
		if r.Queue < 0 {
			fail(at(n, "queue"), "queue: %d is no number of messages", r.Queue)
		}
		if !f.Any() {
			fail(n, "relay: there is nothing to pass on: name a source, as zmq: [{endpoint: ipc:///tmp/sglang-fpm}]")
		}
	}
	burst := child(top, "burst")
	for _, on := range f.Burst.On {
		word(burst, "on", on, passTriggers)
	}
	if s := f.Burst.Seconds; s < 0 || s > 600 {
		fail(at(burst, "seconds"), "seconds: %d is not between 1 and 600", s)
	}
	if s := f.Burst.PerHour; s < 0 {
		fail(at(burst, "per_hour"), "per_hour: %d is no number of bursts", s)
	}
	pools := child(top, "pools")
	owner := map[string]string{}
	for _, name := range passPools { // in a fixed order, so that the message is the same each time
		p, ok := f.Pools[name]
		if !ok {
			continue
		}
		n := child(pools, name)
		for _, c := range p.Components {
			if other, taken := owner[c]; taken {
				fail(n, "components: %s is in the pool %s already", c, other)
			}
			owner[c] = name
		}
		for key, v := range map[string]int64{"max_num_batched_tokens": p.MaxBatchedTokens, "max_kv_tokens": p.MaxKVTokens, "max_num_seqs": p.MaxSeqs, "context_length": p.ContextLength, "gpus": int64(p.GPUs)} {
			if v < 0 {
				fail(at(n, key), "%s: %d is less than nothing; leave it out when it is not known", key, v)
			}
		}
	}
	for name := range f.Pools {
		word(pools, name, name, passPools)
	}
}

func (d *document) checkNATS(n *yaml.Node, p *PassNATS, word func(*yaml.Node, string, string, []string), fail func(*yaml.Node, string, ...any)) {
	if p.URL == "" {
		fail(n, "nats: url: is missing; write nats://HOST:4222, or %s", Embedded)
	}
	if p.Listen != "" {
		if p.URL != Embedded {
			fail(at(n, "listen"), "listen: belongs to url: %s only", Embedded)
		} else if err := CheckListen(p.Listen); err != nil {
			fail(at(n, "listen"), "listen: %v", err)
		}
	}
	word(n, "encoding", p.Encoding, passEncodings)
	secrets := 0
	for _, s := range []*string{&p.PasswordFile, &p.TokenFile, &p.CredentialsFile, &p.NKeySeedFile} {
		if *s != "" {
			secrets++
			*s = d.join(*s)
		}
	}
	if secrets > 1 {
		fail(n, "nats: give one of password_file:, token_file:, credentials_file: and nkey_seed_file:")
	}
	if (p.User == "") != (p.PasswordFile == "") {
		fail(n, "nats: user: and password_file: go together")
	}
	for i := range p.CAFiles {
		p.CAFiles[i] = d.join(p.CAFiles[i])
	}
}
