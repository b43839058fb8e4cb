package eventstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// parts knows the files of the child's store, for the case that one of them is damaged: the library ends
// its process then and says which in its last words.
//
//	events/partitions/YYYYMMDD/datadb/PART/...      rows; datadb/parts.json lists the parts
//	events/partitions/YYYYMMDD/indexdb/PART/...     the streams' index; indexdb/parts.json likewise
type parts struct {
	dir    string // events
	aside  string // events-damaged
	logger *slog.Logger

	mu      sync.Mutex
	damaged []string // what was set aside, in words
	rows    int64    // in them, as far as known
	count   int64
	anew    map[string]bool // days whose index lost something and is to be made anew
	probe   probe
}

// probe is how far the search for a damaged index has come whose day the library did not name.
type probe int

const (
	noProbe probe = iota
	probing       // the next child reads the index of each day and says which before it does
	probed        // it found nothing
	gaveUp        // the index of all days was made anew, and that did not help
)

const (
	dataDir      = "datadb"
	indexDir     = "indexdb"
	partsFile    = "parts.json"
	metadataFile = "metadata.json"
)

// openParts also reads what was set aside before.
func openParts(dir, aside string, logger *slog.Logger) *parts {
	p := &parts{dir: dir, aside: aside, logger: logger, anew: map[string]bool{}}
	notes, _ := filepath.Glob(filepath.Join(aside, "*.txt"))
	slices.Sort(notes)
	for _, n := range notes {
		if b, err := os.ReadFile(n); err == nil {
			line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
			p.damaged = append(p.damaged, line)
		}
	}
	return p
}

// list is what was set aside, in words.
func (p *parts) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.damaged)
}

// reindex are the days whose index is to be made anew.
func (p *parts) reindex() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.anew))
}

// reindexed forgets days.
func (p *parts) reindexed(days []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range days {
		delete(p.anew, d)
	}
}

// numbers are the parts set aside since the start and the rows in them, as far as that is known.
func (p *parts) numbers() (count, rows int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.rows
}

var partPath = regexp.MustCompile(`/partitions/(\d{8})/(?:(datadb|indexdb)(?:/([0-9A-F]{16}|parts\.json))?)?`)

// setAside looks in a child's last words for the part that ended it, and in the files if they do not
// name one, and moves it away. It returns how many it moved.
func (p *parts) setAside(ended error) int {
	var exit *exitError
	if !errors.As(ended, &exit) {
		return 0
	}
	line := lastWords(exit.said)
	if n := p.check(); n > 0 {
		return n
	}
	if !strings.Contains(line, "FATAL") && !strings.Contains(line, "BUG") {
		return 0
	}
	var m []string
	if at := strings.Index(line, p.dir); at >= 0 {
		m = partPath.FindStringSubmatch(line[at:])
	}
	if m == nil || m[2] == "" {
		return p.unnamed(exit.said, line)
	}
	day, kind, name := m[1], m[2], m[3]
	switch {
	case name == partsFile:
		return p.rebuild(day, kind, line)
	case name != "":
		return p.remove(day, kind, name, line)
	}
	return 0
}

// unnamed deals with a child that ended over what stands in an index of streams, which has no checksums,
// without saying of which day: the next child is asked to find out before it does anything else.
func (p *parts) unnamed(said, line string) int {
	if !strings.Contains(said, "/lib/mergeset/") && !strings.Contains(said, "/logstorage/indexdb.go") && !strings.Contains(said, "/logstorage/stream_tags.go") {
		return 0
	}
	p.mu.Lock()
	was := p.probe
	p.mu.Unlock()
	next, n := probing, 0
	switch was {
	case probing:
		next = noProbe
		if at := strings.LastIndex(said, wire.Probing); at >= 0 {
			day, _, _ := strings.Cut(said[at+len(wire.Probing):], "\n")
			n = p.removeIndex(strings.TrimSpace(day), line)
		}
	case probed:
		next = gaveUp
		days, _ := os.ReadDir(filepath.Join(p.dir, "partitions"))
		for _, d := range days {
			n += p.removeIndex(d.Name(), line)
		}
	case gaveUp:
		next = gaveUp
	}
	p.mu.Lock()
	p.probe = next
	p.mu.Unlock()
	return n
}

// removeIndex moves all parts of a day's index away.
func (p *parts) removeIndex(day, why string) (n int) {
	names, err := readParts(filepath.Join(p.dir, "partitions", day, indexDir))
	if err != nil {
		return p.rebuild(day, indexDir, err.Error())
	}
	for _, name := range names {
		n += p.remove(day, indexDir, name, why)
	}
	return n
}

// probing reports whether the next child has to look for a damaged index.
func (p *parts) probing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.probe == probing
}

// foundNothing notes that a child read the index of each day.
func (p *parts) foundNothing() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probe == probing {
		p.probe = probed
	}
}

// check compares the parts with their lists and their headers, and sets aside what does not fit. No
// child may run meanwhile. The library compares the same numbers when it merges parts, and ends its
// process if they differ.
func (p *parts) check() int {
	days, _ := os.ReadDir(filepath.Join(p.dir, "partitions"))
	n := 0
	for _, d := range days {
		for _, kind := range []string{dataDir, indexDir} {
			dir := filepath.Join(p.dir, "partitions", d.Name(), kind)
			if _, err := os.Stat(dir); err != nil {
				continue
			}
			names, err := readParts(dir)
			if err != nil {
				n += p.rebuild(d.Name(), kind, err.Error())
				continue
			}
			for _, name := range names {
				if err := checkPart(filepath.Join(dir, name), kind); err != nil {
					n += p.remove(d.Name(), kind, name, err.Error())
				}
			}
		}
	}
	return n
}

// readParts reads the list of parts; a missing list beside no parts is an empty one.
func readParts(dir string) ([]string, error) {
	path := filepath.Join(dir, partsFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && len(partDirs(dir)) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return names, nil
}

var partName = regexp.MustCompile(`^[0-9A-F]{16}$`)

func partDirs(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if partName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}

// metadata is what a part says of itself.
type metadata struct {
	CompressedSizeBytes *int64
	RowsCount           int64
	MaxTimestamp        int64
}

func readMetadata(dir string) (metadata, error) {
	var m metadata
	path := filepath.Join(dir, metadataFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// checkPart compares a part's files with its header. The header of a part of rows says how many bytes
// all its files have.
func checkPart(dir, kind string) error {
	m, err := readMetadata(dir)
	if err != nil {
		return err
	}
	if kind != dataDir || m.CompressedSizeBytes == nil {
		return nil
	}
	size, err := partSize(dir)
	if err != nil {
		return err
	}
	if size != *m.CompressedSizeBytes {
		return fmt.Errorf("%s: its files have %d bytes, %s says %d", dir, size, metadataFile, *m.CompressedSizeBytes)
	}
	return nil
}

func partSize(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	var size int64
	for _, e := range entries {
		if e.Name() == metadataFile {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, nil
}

// remove takes a part out of its list and moves its files away.
func (p *parts) remove(day, kind, name, why string) int {
	dir := filepath.Join(p.dir, "partitions", day, kind)
	m, _ := readMetadata(filepath.Join(dir, name))
	names, err := readParts(dir)
	if err != nil {
		return p.rebuild(day, kind, err.Error())
	}
	left := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	if len(left) == len(names) {
		return 0 // the message names a part that is gone
	}
	// The files first: a part that is not in the list is deleted when the store is opened.
	title := day + "-" + kind + "-" + name
	if err := p.move(filepath.Join(dir, name), title); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.logger.Error("a damaged part cannot be set aside", "part", title, "reason", err)
		return 0
	}
	if err := writeParts(dir, left); err != nil {
		p.logger.Error("a damaged part cannot be taken out of its list", "part", title, "reason", err)
		return 0
	}
	p.note(title, m.RowsCount, kind, why)
	return 1
}

// rebuild makes a new list of the parts that fit their headers.
func (p *parts) rebuild(day, kind, why string) int {
	dir := filepath.Join(p.dir, "partitions", day, kind)
	title := day + "-" + kind + "-" + partsFile
	if err := p.move(filepath.Join(dir, partsFile), title); err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.logger.Error("a damaged list of parts cannot be set aside", "list", title, "reason", err)
		return 0
	}
	n := 1
	var left []string
	for _, name := range partDirs(dir) {
		if err := checkPart(filepath.Join(dir, name), kind); err != nil {
			part := day + "-" + kind + "-" + name
			if err := p.move(filepath.Join(dir, name), part); err != nil {
				p.logger.Error("a damaged part cannot be set aside", "part", part, "reason", err)
				continue
			}
			p.note(part, 0, kind, err.Error())
			n++
			continue
		}
		left = append(left, name)
	}
	if err := writeParts(dir, left); err != nil {
		p.logger.Error("a list of parts cannot be written", "list", title, "reason", err)
		return 0
	}
	p.note(title, 0, kind, why+"; the list was made anew from the parts that are there")
	return n
}

func writeParts(dir string, names []string) error {
	if names == nil {
		names = []string{}
	}
	b, err := json.Marshal(names)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, partsFile+".new")
	if err := os.WriteFile(tmp, b, 0o666); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, partsFile)); err != nil {
		return err
	}
	return syncDir(dir)
}

// move takes a file or directory into the directory of what was set aside.
func (p *parts) move(path, title string) error {
	if err := os.MkdirAll(p.aside, 0o777); err != nil {
		return err
	}
	to := filepath.Join(p.aside, title)
	for i := 2; ; i++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = filepath.Join(p.aside, fmt.Sprintf("%s.%d", title, i))
	}
	return os.Rename(path, to)
}

func (p *parts) note(title string, rows int64, kind, why string) {
	text := title
	switch {
	case kind == indexDir:
		text += ": a part of the index of streams, which is made anew"
	case rows > 0:
		text += fmt.Sprintf(": %d rows", rows)
	}
	text += ": " + why
	if len(text) > 600 {
		text = text[:600] + "..."
	}
	if err := os.WriteFile(filepath.Join(p.aside, title+".txt"), []byte(text+"\n"), 0o666); err != nil {
		p.logger.Error("the note of a damaged part cannot be written", "part", title, "reason", err)
	}
	p.logger.Error("a damaged part of the event store was set aside", "part", title, "rows", rows, "reason", why, "to", p.aside)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.damaged = append(p.damaged, text)
	p.count++
	p.rows += rows
	if kind == indexDir {
		p.anew[title[:len("20060102")]] = true
	}
}
