package scrape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

// Worker is one engine of a router's list, with all its data-parallel ranks together.
type Worker struct {
	Address string // host:port
	Scheme  string // http or https
	Ranks   []int  // data-parallel ranks that the list names, sorted; nil without
	Role    engine.Role
	Model   string // "" not said
	Healthy *bool  // nil not said; false when any of its ranks is unhealthy
}

// Skipped is something that was discovered and cannot be scraped.
type Skipped struct {
	Address string
	Reason  string // one sentence
	From    string // where it was found: a job or the URL of a list
}

// noEndpoint is said of addresses that speak no HTTP.
const noEndpoint = "skipped: no metrics endpoint known"

// Addresses turns worker addresses as routers write them (http://host:port, host:port@rank,
// grpc://host:port) into what can be scraped: each host:port once, its ranks collected. What cannot
// be is named with the reason; nothing is dropped silently.
func Addresses(urls []string) (workers []Worker, skipped []Skipped) {
	list := make([]listed, len(urls))
	for i, u := range urls {
		list[i] = listed{URL: u}
	}
	return join(list)
}

// listed is one entry of a worker list.
type listed struct {
	URL        string `json:"url"`
	Model      string `json:"model_id"`
	ModelToo   string `json:"model"`
	Type       string `json:"worker_type"`
	Healthy    *bool  `json:"healthy"`
	IsHealthy  *bool  `json:"is_healthy"`
	Connection string `json:"connection_mode"`
}

// ParseWorkerList reads the answer of a router's GET /workers (an object with workers, each with its
// url) or GET /list_workers (an object with urls).
func ParseWorkerList(body []byte) ([]Worker, []Skipped, error) {
	var doc struct {
		Workers json.RawMessage `json:"workers"`
		URLs    []string        `json:"urls"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, nil, fmt.Errorf("this is no worker list: %w", err)
	}
	if doc.URLs != nil {
		w, s := Addresses(doc.URLs)
		return w, s, nil
	}
	if len(doc.Workers) == 0 || bytes.Equal(doc.Workers, []byte("null")) {
		return nil, nil, fmt.Errorf("this is no worker list: it has neither workers nor urls: %s", excerpt(body))
	}
	var list []listed
	if err := json.Unmarshal(doc.Workers, &list); err != nil {
		var urls []string
		if json.Unmarshal(doc.Workers, &urls) != nil {
			return nil, nil, fmt.Errorf("workers cannot be read: %w", err)
		}
		w, s := Addresses(urls)
		return w, s, nil
	}
	w, s := join(list)
	return w, s, nil
}

func join(list []listed) (workers []Worker, skipped []Skipped) {
	byAddr := map[string]int{}
	for _, l := range list {
		a, err := parseAddress(l.URL)
		if err != nil {
			skipped = append(skipped, Skipped{Address: l.URL, Reason: err.Error()})
			continue
		}
		key := a.scheme + "://" + a.host
		i, ok := byAddr[key]
		if !ok {
			i = len(workers)
			byAddr[key] = i
			workers = append(workers, Worker{Address: a.host, Scheme: a.scheme})
		}
		w := &workers[i]
		if a.rank >= 0 && !slices.Contains(w.Ranks, a.rank) {
			w.Ranks = append(w.Ranks, a.rank)
			slices.Sort(w.Ranks)
		}
		for _, m := range []string{l.Model, l.ModelToo} {
			if w.Model == "" {
				w.Model = m
			}
		}
		switch strings.ToLower(l.Type) {
		case "prefill":
			w.Role = engine.Prefill
		case "decode":
			w.Role = engine.Decode
		}
		for _, h := range []*bool{l.Healthy, l.IsHealthy} {
			if h != nil && (w.Healthy == nil || *w.Healthy) {
				v := *h
				w.Healthy = &v
			}
		}
	}
	return workers, skipped
}

// address is a worker address taken apart.
type address struct {
	scheme string // http or https
	host   string // host:port
	rank   int    // -1 without
}

// parseAddress takes [scheme://]host:port[@rank][/] apart. The error is the reason why it cannot be
// scraped.
func parseAddress(s string) (address, error) {
	a := address{scheme: "http", rank: -1}
	rest := strings.TrimSpace(s)
	if i := strings.Index(rest, "://"); i >= 0 {
		a.scheme, rest = strings.ToLower(rest[:i]), rest[i+3:]
	}
	switch a.scheme {
	case "http", "https":
	case "grpc", "grpcs":
		return a, fmt.Errorf("%s", noEndpoint)
	default:
		return a, fmt.Errorf("skipped: %s:// is no scheme that metrics are read by", a.scheme)
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		if strings.Trim(rest[i:], "/") != "" {
			return a, fmt.Errorf("skipped: %q has a path, which a worker's address does not", s)
		}
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		n, err := strconv.Atoi(rest[i+1:])
		if err != nil || n < 0 {
			return a, fmt.Errorf("skipped: %q is no data-parallel rank", rest[i+1:])
		}
		a.rank, rest = n, rest[:i]
	}
	if rest == "" {
		return a, fmt.Errorf("skipped: the host is missing")
	}
	u, err := url.Parse(a.scheme + "://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return a, fmt.Errorf("skipped: %q is no HOST:PORT", rest)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[a.scheme]
	}
	a.host = net.JoinHostPort(u.Hostname(), port)
	return a, nil
}

// WorkerListURLs are the addresses at which a router with the given base URL may list its workers,
// to be tried in order.
func WorkerListURLs(base string) []string {
	b := strings.TrimRight(base, "/")
	return []string{b + "/workers", b + "/list_workers"}
}
