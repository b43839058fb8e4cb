package tracestore

import "github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"

// checkLogsQL reads a filter as the store does.
func checkLogsQL(filter string) (string, error) {
	q, err := logstorage.ParseQuery(spansOnly + " " + filter)
	if err != nil {
		return "", err
	}
	return q.String(), nil
}
