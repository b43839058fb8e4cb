package signal

import (
	"fmt"
	"io"
)

// Explain is the text of `rollscope explain NAME` about a metric or a signal. False means the name is
// unknown; the text then says what was perhaps meant.
func Explain(c *Catalog, name string) (string, bool) {
	if s, ok := c.Signal(name); ok {
		return s.Title + "\n" + s.Meaning + "\n", true
	}
	if m, ok := c.Metric(name); ok {
		return m.Name + "\n" + m.Meaning + "\n", true
	}
	return c.Resolve(name).Message + "\n", false
}

// WriteDocs writes docs/metrics.md.
func WriteDocs(w io.Writer, c *Catalog) error {
	_, err := fmt.Fprintln(w, "# Metrics and signals")
	return err
}
