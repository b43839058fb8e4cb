package eventstore

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Proxy answers /select/... as VictoriaLogs does: queries, statistics, live tailing. Everything else of
// the server is out of reach.
func (s *Store) Proxy() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/select/") || strings.Contains(r.URL.Path, "..") || strings.HasPrefix(r.URL.Path, "/select/vmalert") {
			http.NotFound(w, r)
			return
		}
		err := s.complete(r.Context())
		var c *client
		if err == nil {
			c, err = s.answering(r.Context())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		target, err := url.Parse(c.base)
		if err != nil {
			http.Error(w, "the event store's URL: "+err.Error(), http.StatusInternalServerError)
			return
		}
		proxy := httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(target)
				// Who may ask what was decided before; the store knows no users of ours.
				p.Out.Header.Del("Authorization")
				p.Out.Header.Del("Cookie")
			},
			Transport:     c.http.Transport,
			FlushInterval: -1, // a tail is read line by line
			ModifyResponse: func(r *http.Response) error {
				for name := range r.Header {
					if strings.HasPrefix(name, "Access-Control-") {
						r.Header.Del(name) // other origins are the API's to allow
					}
				}
				return nil
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				if r.Context().Err() == nil {
					http.Error(w, c.broken(r.Context(), err).Error(), http.StatusBadGateway)
				}
			},
		}
		proxy.ServeHTTP(w, r)
	})
}

// collector shows the store's state as metrics.
type collector struct{ s *Store }

var (
	rowsDesc     = prometheus.NewDesc("rollscope_events_rows_total", "Rows that the event store accepted, by kind.", []string{"kind"}, nil)
	spoolDesc    = prometheus.NewDesc("rollscope_events_spool_bytes", "Bytes in the spool of the event store.", nil, nil)
	waitingDesc  = prometheus.NewDesc("rollscope_events_waiting_rows", "Rows that were accepted and not yet sent to the event store.", nil, nil)
	diskDesc     = prometheus.NewDesc("rollscope_events_disk_bytes", "Bytes of the event store on disk.", nil, nil)
	restartsDesc = prometheus.NewDesc("rollscope_events_restarts_total", "How often the event store's process ended and was started again.", nil, nil)
	damagedDesc  = prometheus.NewDesc("rollscope_events_damaged_parts", "Damaged parts that were set aside.", nil, nil)
	upDesc       = prometheus.NewDesc("rollscope_events_up", "1 when the event store takes rows and answers queries, or was never needed.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rowsDesc, spoolDesc, waitingDesc, diskDesc, restartsDesc, damagedDesc, upDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(out chan<- prometheus.Metric) {
	st := c.s.State()
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	for kind, n := range st.Rows {
		out <- prometheus.MustNewConstMetric(rowsDesc, prometheus.CounterValue, float64(n), string(kind))
	}
	gauge(spoolDesc, float64(st.SpoolBytes))
	gauge(waitingDesc, float64(st.Waiting))
	gauge(diskDesc, float64(st.DiskBytes))
	out <- prometheus.MustNewConstMetric(restartsDesc, prometheus.CounterValue, float64(st.Restarts))
	gauge(damagedDesc, float64(len(st.Damaged)))
	up := 0.0
	if st.State == StateOK || st.State == StateOff {
		up = 1
	}
	gauge(upDesc, up)
}
