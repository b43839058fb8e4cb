package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// Reason says in one stable word why a target gives no metrics. A status is "http_404" and so on.
type Reason string

// Reasons.
const (
	ReasonNone              Reason = ""
	ReasonNoMetricsYet      Reason = "no_metrics_yet" // answers, and has nothing to say yet: no failure
	ReasonConnectionRefused Reason = "connection_refused"
	ReasonConnectionReset   Reason = "connection_reset"
	ReasonUnreachable       Reason = "unreachable"
	ReasonTimeout           Reason = "timeout"
	ReasonDNS               Reason = "dns"
	ReasonTLS               Reason = "tls"
	ReasonNotHTTP           Reason = "not_http"
	ReasonNotAnExposition   Reason = "not_an_exposition"
	ReasonBadLine           Reason = "bad_line" // an exposition with unreadable lines
	ReasonContentType       Reason = "content_type"
	ReasonBodySizeLimit     Reason = "body_size_limit"
	ReasonSampleLimit       Reason = "sample_limit"
	ReasonLabelLimit        Reason = "label_limit"
	ReasonTargetLimit       Reason = "target_limit"
	ReasonBadConfig         Reason = "bad_config" // credentials or certificates cannot be read
	ReasonOther             Reason = "other"
)

// HTTPReason is the reason of an answer with another status than 200.
func HTTPReason(status int) Reason { return Reason("http_" + strconv.Itoa(status)) }

// failure is why a target gives no metrics.
type failure struct {
	reason  Reason
	message string // one sentence, an unexpected body quoted
	hint    string
}

// answer is what a request for a target's metrics gave.
type answer struct {
	status      int // 0: no answer
	contentType string
	body        []byte
	err         error // instead of an answer, or of reading it
}

var statusText = regexp.MustCompile(`^server returned HTTP status (\d{3})`)

// classifyError judges the error of a scrape, without its body. refused is what the parser or a
// limit said; it is then the same error as err.
func classifyError(err error, refused bool, u string) failure {
	if err == nil {
		return failure{}
	}
	msg := err.Error()
	if m := statusText.FindStringSubmatch(msg); m != nil {
		n, convErr := strconv.Atoi(m[1])
		if convErr == nil {
			return classifyStatus(n, nil, u)
		}
	}
	switch {
	case strings.Contains(msg, "body size limit exceeded"):
		return failure{ReasonBodySizeLimit, "the answer is larger than body_size_limit", "raise body_size_limit of this job"}
	case strings.Contains(msg, "sample limit exceeded"):
		return failure{ReasonSampleLimit, "the answer has more samples than sample_limit: none of it is stored", "raise sample_limit of this job, or drop series with metric_relabel_configs"}
	case strings.Contains(msg, "label_limit exceeded"), strings.Contains(msg, "label_name_length_limit"), strings.Contains(msg, "label_value_length_limit"):
		return failure{ReasonLabelLimit, msg + ": none of the answer is stored", "raise the limit of this job"}
	case strings.Contains(msg, "target_limit exceeded"):
		return failure{ReasonTargetLimit, msg, "raise target_limit of this job"}
	case strings.Contains(msg, "Content-Type"):
		return failure{ReasonContentType, msg, "set fallback_scrape_protocol: PrometheusText0.0.4 for this job if the body is an exposition"}
	case refused:
		return failure{ReasonBadLine, "the answer cannot be read: " + plainError(err).Error(), ""}
	}
	return classifyConnection(err, u)
}

// classifyConnection judges an error of the network.
func classifyConnection(err error, u string) failure {
	msg := trimURL(err)
	var dns *net.DNSError
	var hostErr x509.HostnameError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &dns):
		if dns.IsTimeout {
			return failure{ReasonDNS, "the name server did not answer for " + dns.Name, "use the address instead of the name, or check /etc/resolv.conf"}
		}
		return failure{ReasonDNS, dns.Name + " cannot be resolved", "is the host name right, and known on this machine? An address works without DNS"}
	case strings.Contains(msg, "server gave HTTP response to HTTPS client"):
		return failure{ReasonTLS, "the target speaks plain HTTP on this port", "use scheme: http"}
	case errors.As(err, &hostErr):
		return failure{ReasonTLS, msg, "the certificate is for another name: set tls_config.server_name"}
	case errors.As(err, &authority):
		return failure{ReasonTLS, msg, "set tls_config.ca_file to the certificate authority's file"}
	case errors.As(err, &invalid), errors.As(err, &verify), errors.As(err, &record), errors.As(err, &alert), strings.Contains(msg, "tls:"), strings.Contains(msg, "x509:"):
		return failure{ReasonTLS, msg, ""}
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure{ReasonConnectionRefused, "nothing listens at " + hostOf(u), "has the engine started, is the port right, and does it listen on another address than 127.0.0.1?"}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTDOWN):
		return failure{ReasonUnreachable, "there is no route to " + hostOf(u), "is this machine in the same network?"}
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return failure{ReasonTimeout, "no answer within the scrape timeout", "a busy engine can block its HTTP server; raise scrape_timeout if it answers slowly"}
	case strings.Contains(msg, "malformed HTTP response"):
		if strings.Contains(msg, `\x15\x03`) {
			return failure{ReasonNotHTTP, "the target speaks TLS on this port", "use scheme: https"}
		}
		return failure{ReasonNotHTTP, "the target does not speak HTTP/1 on this port: " + plainError(err).Error(), "a gRPC port has no metrics; scrape the engine's HTTP port"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		return failure{ReasonConnectionReset, "the connection was closed before the answer was complete", "did the engine crash or restart?"}
	case strings.Contains(msg, "unable to read") || strings.Contains(msg, "unable to use") || strings.Contains(msg, "no such file"):
		return failure{ReasonBadConfig, msg, "a file that this job's authorization or tls_config names cannot be read"}
	}
	return failure{ReasonOther, msg, ""}
}

// trimURL gives an error's text without the 'Get "http://...": ' that net/http puts before it.
func trimURL(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err.Error()
	}
	return err.Error()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func hostOf(u string) string {
	if p, err := url.Parse(u); err == nil && p.Host != "" {
		return p.Host
	}
	return u
}

func pathOf(u string) string {
	if p, err := url.Parse(u); err == nil {
		return p.Path
	}
	return ""
}

// classifyAnswer judges an answer whose body is known. ok is false when there is nothing wrong with
// it as far as this goes: status 200.
func classifyAnswer(a answer, u string) (failure, bool) {
	if a.err != nil {
		return classifyConnection(a.err, u), true
	}
	if a.status != 200 {
		return classifyStatus(a.status, a.body, u), true
	}
	return failure{}, false
}

// classifyStatus judges another status than 200. body may be nil: not known.
func classifyStatus(status int, body []byte, u string) failure {
	f := failure{reason: HTTPReason(status), message: "HTTP " + strconv.Itoa(status)}
	text := excerpt(body)
	if text != "" {
		f.message += ": " + text
	}
	path := pathOf(u)
	router := strings.HasSuffix(strings.TrimRight(path, "/"), "/engine_metrics")
	switch {
	case strings.Contains(text, "Label names should agree"):
		f.hint = "the router cannot join engines whose label sets differ (PD with dp_rank on one side, or mixed versions) and then answers nothing at all; scrape the engines directly, or use a router with smg 1.3.3 or newer"
	case strings.Contains(text, "All backend requests failed"):
		f.hint = "the router reached none of its engines' /metrics: are they started with --enable-metrics? A router in DP-aware mode older than smg 1.9.0 asks at addresses that do not exist; scrape the engines directly"
	case strings.Contains(text, "No available workers"):
		f.hint = "the router has no engine registered yet"
	case status == 401 || status == 403:
		f.hint = "the target wants credentials: set authorization (or basic_auth) for this job; of an engine it is its --api-key"
	case status == 404 && router:
		f.hint = "this has no /engine_metrics: a router older than 0.2.3, another program's router, or an engine (whose path is /metrics)"
	case status == 404 && isLoadsPath(path):
		f.hint = "engines have /v1/loads from SGLang 0.5.8 on"
	case status == 404:
		f.hint = "SGLang answers /metrics only with --enable-metrics; in older versions the nodes of a multi-node engine with a rank above 0 expose nothing (changed in July 2025, sglang#7720): scrape the node of rank 0, or update. Of a router the path is /engine_metrics"
	case status == 405:
		f.hint = "the path exists and is not for reading: is metrics_path right?"
	case status == 503:
		f.hint = "the program is there and not ready"
	case status == 502 || status == 504:
		f.hint = "a proxy on the way did not reach the target"
	case status >= 300 && status < 400:
		f.hint = "the target redirects and follow_redirects is off, or it leads in circles"
	case status >= 500:
		f.hint = "the target's own log says why"
	}
	return f
}

// notAnExposition judges an answer of status 200 that is none.
func notAnExposition(e Exposition, u string) failure {
	f := failure{
		reason:  ReasonNotAnExposition,
		message: fmt.Sprintf("the answer is %s, not an exposition: %s", kindWords[e.Kind], e.Excerpt),
	}
	switch e.Kind {
	case KindHTML:
		f.hint = "a login page or a web front answers here: wrong port, wrong path, or a proxy that wants a login"
	case KindJSON:
		f.hint = "an API answers here: is metrics_path right? Engines have /metrics, routers /engine_metrics"
	case KindHTTP:
		f.hint = "this is a recorded answer with its headers; the exposition begins behind the blank line"
	case KindText, KindBinary:
		f.hint = "something else answers at " + hostOf(u) + pathOf(u)
	}
	return f
}

// noMetricsYet is the state of a target that answers with nothing.
func noMetricsYet() failure {
	return failure{
		reason:  ReasonNoMetricsYet,
		message: "no metrics yet (SGLang writes none until its first request or 30 s after start)",
		hint:    "send a request, or wait; a router answers so too when it reaches none of its engines (gateway 0.2.4 and older)",
	}
}

func sortedCounts(m map[string]int64) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
