package systemport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// How long the answer for a host name is believed, and how long all look-ups for one answer of ours may take: a
// name server that is silent must not keep a probe waiting. Names for which there is no time left are asked for
// the next time.
const (
	nameAge     = time.Minute
	nameTimeout = 700 * time.Millisecond
	maxNames    = 10_000
)

// Machine knows which addresses are this machine's. It is safe for concurrent use.
type Machine struct {
	now   func() time.Time
	names func() []string // the machine's own names
	addrs func() ([]net.Addr, error)
	look  func(ctx context.Context, host string) ([]netip.Addr, error)

	mu    sync.Mutex
	known map[string]looked
}

type looked struct {
	local bool
	at    time.Time
}

// NewMachine asks the operating system. Host names are looked up at most once a minute each.
func NewMachine(now func() time.Time) *Machine {
	return &Machine{now: now, known: map[string]looked{}, addrs: net.InterfaceAddrs,
		names: func() []string {
			name, err := os.Hostname()
			if err != nil {
				return nil
			}
			return []string{name}
		},
		look: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}}
}

// Places returns a judge of addresses, good for one answer: it reads this machine's addresses once. A
// name that cannot be resolved is somebody else's.
func (m *Machine) Places(ctx context.Context) Place {
	left := nameTimeout
	own := map[netip.Addr]bool{}
	list, err := m.addrs()
	if err == nil { // without it only loopback is ours
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				own[p.Addr().Unmap()] = true
			}
		}
	}
	names := m.names()
	ours := func(a netip.Addr) bool {
		a = a.Unmap().WithZone("")
		return a.IsLoopback() || a.IsUnspecified() || own[a]
	}
	return func(instance string) (string, bool) {
		host, port, err := net.SplitHostPort(instance)
		if err != nil {
			host, port = strings.Trim(instance, "[]"), ""
		}
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		if m.hostIsOurs(ctx, host, names, ours, &left) {
			return "local:" + port, true
		}
		return instance, false
	}
}

// hostIsOurs looks names up for as long as left says.
func (m *Machine) hostIsOurs(ctx context.Context, host string, names []string, ours func(netip.Addr) bool, left *time.Duration) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return ours(a)
	}
	if host == "" {
		return false
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	for _, n := range names {
		if strings.EqualFold(n, host) {
			return true
		}
	}
	now := m.now()
	m.mu.Lock()
	l, ok := m.known[host]
	m.mu.Unlock()
	if ok && now.Sub(l.at) < nameAge && !now.Before(l.at) {
		return l.local
	}
	if *left <= 0 {
		return l.local // as it was known last
	}
	looking, cancel := context.WithTimeout(ctx, *left)
	defer cancel()
	addrs, err := m.look(looking, host)
	*left -= m.now().Sub(now)
	var no *net.DNSError
	switch {
	case ctx.Err() != nil:
		return l.local // who asked is gone: it says nothing about the name
	case err == nil:
		l.local = slices.ContainsFunc(addrs, ours)
	case errors.As(err, &no) && no.IsNotFound:
		l.local = false
	}
	l.at = now // an engine does not move because a name server is silent
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxNames {
		clear(m.known)
	}
	m.known[host] = l
	return l.local
}
