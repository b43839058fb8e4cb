package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/grafana/regexp"
)

// Hosts says under which names this server may be addressed. A page of another site can make a
// browser send requests to us under a name of its own that it points at our address (DNS rebinding);
// the Host header then carries that name, and is refused.
type Hosts struct {
	// Listen are the addresses listened on, host:port. When one is not loopback, every IP address is
	// a good name (a name that is an address cannot be pointed elsewhere).
	Listen []net.Addr
	// External is the URL under which others reach this server, nil if not configured.
	External *url.URL
	// Allowed are further names: "rollscope.example.com", "*.example.com", "*" for any.
	Allowed []string
	// Hostname is this machine's name, "" if not known.
	Hostname string
	// CORS matches whole origins ("https://grafana.example.com") whose pages may read from us; nil
	// means none. It never lets them write.
	CORS *regexp.Regexp
}

// allowed tells whether a request that names the server host (with or without port) is for us.
func (h Hosts) allowed(host string) bool {
	if host == "" { // HTTP/1.0: no browser sends that
		return true
	}
	name := hostname(host)
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if h.External != nil && name == hostname(h.External.Host) {
		return true
	}
	for _, pattern := range h.Allowed {
		pattern = strings.ToLower(pattern)
		if pattern == "*" || pattern == name || strings.HasPrefix(pattern, "*.") && strings.HasSuffix(name, pattern[1:]) {
			return true
		}
	}
	open := !LoopbackOnly(h.Listen)
	if ip, err := netip.ParseAddr(name); err == nil {
		return open || ip.Unmap().IsLoopback()
	}
	if !open || h.Hostname == "" {
		return false
	}
	// On the network a machine is reached by its short or its full name.
	full := strings.ToLower(h.Hostname)
	short, _, _ := strings.Cut(full, ".")
	return name == full || name == short
}

// foreign tells whether r comes from a page of another origin.
func (h Hosts) foreign(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" { // "null": a sandboxed frame, a file, a redirect
		return true
	}
	if strings.EqualFold(u.Host, r.Host) {
		return false
	}
	return h.External == nil || !strings.EqualFold(u.Host, h.External.Host)
}

// crossSite tells what a browser says of a request that it sent without an Origin header.
func crossSite(r *http.Request) bool {
	return slices.Contains([]string{"cross-site", "same-site"}, r.Header.Get("Sec-Fetch-Site"))
}

// mayRead tells whether a page of r's foreign origin may read from us.
func (h Hosts) mayRead(r *http.Request) bool {
	return h.CORS != nil && h.CORS.MatchString(r.Header.Get("Origin"))
}

// hostname returns the name in a host or host:port, lower case, without brackets and final dot.
func hostname(hostport string) string {
	name := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	return strings.ToLower(strings.TrimSuffix(name, "."))
}
