package rolloutstore

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

const cacheName = "index.cache"

// entry is a step in memory: its summary, and its metrics by the numbers of the run's keys.
type entry struct {
	Summary
	file   string // of the record
	size   int64
	mtime  int64 // ns
	crc    string
	states []MetricState
	values []float64
}

func (e *entry) metric(i int) (float64, MetricState) {
	if i >= len(e.states) {
		return 0, Missing
	}
	return e.values[i], e.states[i]
}

// keyTable numbers the metrics of a run.
type keyTable struct {
	names, units []string
	index        map[string]int
}

func (k *keyTable) add(name, unit string) int {
	if i, ok := k.index[name]; ok {
		return i
	}
	if k.index == nil {
		k.index = map[string]int{}
	}
	i := len(k.names)
	k.index[name] = i
	k.names, k.units = append(k.names, name), append(k.units, unit)
	return i
}

// fill sets the entry's metrics, numbering new ones.
func (k *keyTable) fill(e *entry, ms []Metric) {
	e.states, e.values = e.states[:0], e.values[:0]
	for _, m := range ms {
		i := k.add(m.Key, m.Unit)
		for len(e.states) <= i {
			e.states, e.values = append(e.states, Missing), append(e.values, 0)
		}
		m = m.checked()
		e.states[i], e.values[i] = m.State, m.Value
	}
}

// cacheLine is a line of index.cache.
type cacheLine struct {
	Format  string      `json:"format,omitempty"`
	Version int         `json:"version,omitempty"`
	Keys    [][2]string `json:"keys,omitempty"`
	File    string      `json:"file,omitempty"`
	Size    int64       `json:"size,omitempty"`
	MTime   int64       `json:"mtime,omitempty"`
	CRC     string      `json:"crc,omitempty"`
	Step    *Summary    `json:"step,omitempty"`

	metrics []byte // base64, after the JSON: a JSON decoder would look at it twice
}

func (e *entry) line() cacheLine {
	n := len(e.states)
	b := make([]byte, n, 9*n)
	for i, s := range e.states {
		b[i] = byte(s)
	}
	for _, v := range e.values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return cacheLine{File: e.file, Size: e.size, MTime: e.mtime, CRC: e.crc, Step: &e.Summary, metrics: base64.StdEncoding.AppendEncode(nil, b)}
}

func (l *cacheLine) entry(keys int) (*entry, bool) {
	b, err := base64.StdEncoding.AppendDecode(nil, l.metrics)
	if err != nil || len(b)%9 != 0 || len(b)/9 > keys || l.Step == nil {
		return nil, false
	}
	n := len(b) / 9
	e := &entry{Summary: *l.Step, file: l.File, size: l.Size, mtime: l.MTime, crc: l.CRC, states: make([]MetricState, n), values: make([]float64, n)}
	for i := range n {
		e.states[i] = MetricState(b[i])
		v := math.Float64frombits(binary.LittleEndian.Uint64(b[n+8*i:]))
		if e.states[i] > Unknown && e.states[i] != Missing || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, false
		}
		e.values[i] = v
	}
	return e, true
}

func appendLine(dst []byte, l cacheLine) ([]byte, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return dst, err
	}
	if len(l.metrics) > 0 {
		b = append(append(b, '\t'), l.metrics...)
	}
	dst = append(dst, sum(b)...)
	dst = append(dst, ' ')
	dst = append(dst, b...)
	return append(dst, '\n'), nil
}

// readCache reads index.cache: the entries by file, the keys, how many lines there are, and whether
// the file can be appended to.
func readCache(path string) (entries map[string]*entry, keys keyTable, lines int, sound bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, keys, 0, false
	}
	return parseCache(b)
}

func parseCache(b []byte) (entries map[string]*entry, keys keyTable, lines int, sound bool) {
	entries = map[string]*entry{}
	for first := true; len(b) > 0; first = false {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return entries, keys, lines, false
		}
		text := b[:i]
		b = b[i+1:]
		var l cacheLine
		ok := len(text) > 9 && text[8] == ' '
		if ok {
			n, err := strconv.ParseUint(string(text[:8]), 16, 32)
			ok = err == nil && uint32(n) == crc32.Checksum(text[9:], castagnoli)
		}
		if ok {
			var j []byte
			j, l.metrics, _ = bytes.Cut(text[9:], []byte{'\t'})
			ok = json.Unmarshal(j, &l) == nil
		}
		if first && (!ok || l.Format != "rollscope-index" || l.Version != recordVersion) {
			return entries, keys, 0, false
		}
		if !ok {
			// Keys may have been on it, so what comes after may be misnumbered.
			return entries, keys, lines, false
		}
		lines++
		switch {
		case len(l.Keys) > 0:
			for _, k := range l.Keys {
				keys.add(k[0], k[1])
			}
		case l.File != "":
			if e, ok := l.entry(len(keys.names)); ok {
				entries[l.File] = e
			}
		}
		sound = true
	}
	return entries, keys, lines, sound
}

// cache writes index.cache. It is only a cache: when it cannot be written, the next start is slower.
type cache struct {
	path  string
	f     *os.File
	keys  int // of the table that the file has
	lines int
	err   error // the first; nothing is written after it
}

// fresh writes the file anew.
func (c *cache) fresh(keys *keyTable, entries []*entry) {
	c.close()
	c.err = nil
	err := writeFile(c.path, func(w io.Writer) error {
		b, err := appendLine(nil, cacheLine{Format: "rollscope-index", Version: recordVersion})
		if err != nil {
			return err
		}
		if b, err = appendKeys(b, keys, 0); err != nil {
			return err
		}
		for _, e := range entries {
			if b, err = appendLine(b, e.line()); err != nil {
				return err
			}
			if len(b) > 1<<20 {
				if _, err := w.Write(b); err != nil {
					return err
				}
				b = b[:0]
			}
		}
		_, err = w.Write(b)
		return err
	})
	c.keys, c.lines = len(keys.names), 2+len(entries)
	if err != nil {
		c.fail(err)
	}
}

func (c *cache) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.close()
	// A cache that lacks a line is right still; one with half a line is too.
}

func appendKeys(b []byte, keys *keyTable, from int) ([]byte, error) {
	if from == len(keys.names) {
		return b, nil
	}
	var l cacheLine
	for i := from; i < len(keys.names); i++ {
		l.Keys = append(l.Keys, [2]string{keys.names[i], keys.units[i]})
	}
	return appendLine(b, l)
}

// add appends an entry.
func (c *cache) add(keys *keyTable, e *entry) {
	if c.err != nil {
		return
	}
	b, err := appendKeys(nil, keys, c.keys)
	if err == nil {
		b, err = appendLine(b, e.line())
	}
	if err == nil && c.f == nil {
		c.f, err = os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND, 0)
		if errors.Is(err, fs.ErrNotExist) {
			c.f, err = os.OpenFile(c.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
			if err == nil {
				var head []byte
				head, err = appendLine(nil, cacheLine{Format: "rollscope-index", Version: recordVersion})
				if c.keys > 0 { // the file was deleted under us: the table must be in it again
					if b, err = appendKeys(nil, keys, 0); err == nil {
						b, err = appendLine(b, e.line())
					}
				}
				b = append(head, b...)
			}
		}
	}
	if err == nil {
		_, err = c.f.Write(b)
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.keys = len(keys.names)
	c.lines++
}

func (c *cache) close() {
	if c.f != nil {
		if err := c.f.Close(); err != nil && c.err == nil {
			c.err = err
		}
		c.f = nil
	}
}

func cachePath(dir string) string { return filepath.Join(dir, cacheName) }
