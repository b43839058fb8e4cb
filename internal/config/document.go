package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	"go.yaml.in/yaml/v3"
)

// sectionKey is the one top-level key that is ours.
const sectionKey = "rollscope"

// document is a configuration file as a YAML tree beside its lines, so that parts can be blanked
// without moving the others.
type document struct {
	path  string
	lines [][]byte   // without newlines
	root  *yaml.Node // the top-level mapping; nil for an empty file
	// section is the range of lines of the rollscope section, from its key to before the next key.
	section span
	value   *yaml.Node // the section's value; nil when absent
}

// span is a half-open range of line numbers, 1-based.
type span struct{ from, to int }

// parse reads the tree and finds our section.
func parse(data []byte, path string) (*document, error) {
	d := &document{path: path, lines: bytes.Split(data, []byte("\n"))}
	var n yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&n); err != nil {
		if errors.Is(err, io.EOF) {
			return d, nil
		}
		return nil, d.yamlError(err)
	}
	if n.Kind != yaml.DocumentNode || len(n.Content) == 0 {
		return d, nil
	}
	root := n.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return d, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, d.errorf(root.Line, "the file must be a mapping of keys such as global: and scrape_configs:")
	}
	d.root = root
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, val := root.Content[i], root.Content[i+1]
		if key.Value != sectionKey {
			continue
		}
		if d.value != nil {
			return nil, d.errorf(key.Line, "%s: stands twice; the first is in line %d", sectionKey, d.section.from)
		}
		to := len(d.lines) + 1
		if i+2 < len(root.Content) {
			to = root.Content[i+2].Line
			// A comment block above the next key belongs to that key; it may be blanked all the same.
		}
		if root.Style&yaml.FlowStyle != 0 || to == key.Line || (i > 0 && root.Content[i-1].Line == key.Line && root.Content[i-2].Line == key.Line) {
			return nil, d.errorf(key.Line, "write the top level in block style, one key a line: %s: cannot be split off from {...}", sectionKey)
		}
		d.section, d.value = span{key.Line, to}, val
	}
	return d, nil
}

// without gives the text with the lines of the spans blanked, all other lines at their places.
func (d *document) without(spans ...span) []byte {
	out := make([][]byte, len(d.lines))
	copy(out, d.lines)
	for _, s := range spans {
		for l := s.from; l < s.to && l <= len(out); l++ {
			out[l-1] = nil
		}
	}
	return bytes.Join(out, []byte("\n"))
}

func (d *document) errorf(line int, format string, args ...any) *Error {
	return &Error{Path: d.path, Line: line, Msg: fmt.Sprintf(format, args...)}
}

// inLine finds the line number that the YAML libraries put into their texts.
func inLine(s string) (line int, rest string) {
	m := lineOf.FindStringSubmatch(s)
	if m == nil {
		return 0, s
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, s
	}
	return n, strings.TrimSpace(strings.Replace(s, m[0], "", 1))
}

var lineOf = regexp.MustCompile(`line (\d+): ?`)

// yamlError turns an error of a YAML library into ours, one *Error for each line it names.
func (d *document) yamlError(err error) error {
	msgs := []string{err.Error()}
	if list, ok := typeErrors(err); ok {
		msgs = list
	}
	var errs []error
	for _, m := range msgs {
		line, rest := inLine(m)
		rest = strings.TrimPrefix(rest, "yaml: ")
		errs = append(errs, &Error{Path: d.path, Line: line, Msg: d.plain(line, rest), Err: err})
	}
	return errors.Join(errs...)
}

// typeErrors takes the list out of a yaml.TypeError of either library version.
func typeErrors(err error) ([]string, bool) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		v := reflect.ValueOf(e)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Type().Elem().Name() != "TypeError" {
			continue
		}
		f := v.Elem().FieldByName("Errors")
		if !f.IsValid() {
			continue
		}
		if list, ok := f.Interface().([]string); ok {
			return list, true
		}
	}
	return nil, false
}

// plain rewords what names Go types.
func (d *document) plain(line int, msg string) string {
	if m := notFound.FindStringSubmatch(msg); m != nil {
		path := pathAt(d.root, line, m[1])
		return fmt.Sprintf("unknown key %q%s%s", m[1], inside(path), nearestOf(m[1], keysOf(path)))
	}
	return msg
}

var notFound = regexp.MustCompile(`field (\S+) not found in type (\S+)`)

func inside(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return " in " + strings.Join(path, ".")
}

// pathAt gives the keys above the key that stands in a line; list elements are no part of it.
func pathAt(n *yaml.Node, line int, key string) []string {
	var find func(n *yaml.Node, path []string) ([]string, bool)
	find = func(n *yaml.Node, path []string) ([]string, bool) {
		if n == nil {
			return nil, false
		}
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				k := n.Content[i]
				if k.Line == line && k.Value == key {
					return path, true
				}
				if p, ok := find(n.Content[i+1], append(slices.Clone(path), k.Value)); ok {
					return p, true
				}
			}
		case yaml.SequenceNode:
			for _, c := range n.Content {
				if p, ok := find(c, path); ok {
					return p, true
				}
			}
		}
		return nil, false
	}
	p, _ := find(n, nil)
	return p
}

// keysOf gives the keys that may stand under a path of a Prometheus configuration; nil where it
// is not worth a suggestion.
func keysOf(path []string) []string {
	switch strings.Join(path, ".") {
	case "":
		return append(tags(reflect.TypeFor[promconfig.Config]()), sectionKey)
	case "global":
		return tags(reflect.TypeFor[promconfig.GlobalConfig]())
	case "scrape_configs":
		keys := tags(reflect.TypeFor[promconfig.ScrapeConfig]())
		for _, n := range discovery.RegisteredConfigNames() {
			keys = append(keys, sdKey(n))
		}
		return keys
	case "alerting":
		return tags(reflect.TypeFor[promconfig.AlertingConfig]())
	case "remote_write":
		return tags(reflect.TypeFor[promconfig.RemoteWriteConfig]())
	}
	return nil
}

func sdKey(name string) string {
	if name == "static" {
		return "static_configs"
	}
	return name + "_sd_configs"
}

// tags lists the YAML keys of a struct type, inlined structs included.
func tags(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if strings.Contains(opts, "inline") && f.Type.Kind() == reflect.Struct {
			out = append(out, tags(f.Type)...)
			continue
		}
		if name != "" && name != "-" {
			out = append(out, name)
		}
	}
	return out
}

// locate gives an error of Prometheus's loader the line it belongs to. Errors of the YAML library
// name it; for what Prometheus itself finds wrong the smallest part of the file is sought that
// still gives the same error when everything else is blanked.
func (d *document) locate(err error) error {
	if line, _ := inLine(err.Error()); line > 0 {
		return d.yamlError(err)
	}
	if e := d.duplicateJob(err); e != nil {
		return e
	}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	fails := func(keep ...span) bool {
		_, e := promconfig.Load(string(d.keep(keep...)), slog.New(slog.DiscardHandler))
		return e != nil && e.Error() == err.Error()
	}
	var global span
	for _, p := range d.parts() {
		if p.key == "global" {
			global = p.span
		}
	}
	for _, p := range d.parts() {
		if p.key == sectionKey {
			continue
		}
		if !fails(global, p.span) {
			continue
		}
		for _, it := range d.items(p) {
			head := span{p.span.from, p.span.from + 1}
			if fails(global, head, it) {
				return &Error{Path: d.path, Line: it.from, Msg: text, Err: err}
			}
		}
		return &Error{Path: d.path, Line: p.span.from, Msg: text, Err: err}
	}
	return &Error{Path: d.path, Msg: text, Err: err}
}

// part is one top-level key with its lines.
type part struct {
	key  string
	span span
	val  *yaml.Node
}

func (d *document) parts() []part {
	if d.root == nil {
		return nil
	}
	var ps []part
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		k := d.root.Content[i]
		ps = append(ps, part{key: k.Value, span: span{k.Line, len(d.lines) + 1}, val: d.root.Content[i+1]})
		if n := len(ps); n > 1 {
			ps[n-2].span.to = k.Line
		}
	}
	return ps
}

// items gives the lines of each element of a part that is a list.
func (d *document) items(p part) []span {
	if p.val.Kind != yaml.SequenceNode || p.val.Style&yaml.FlowStyle != 0 {
		return nil
	}
	var out []span
	for _, n := range p.val.Content {
		from := n.Line
		for from > p.span.from+1 && !bytes.HasPrefix(bytes.TrimSpace(d.lines[from-1]), []byte("-")) {
			from--
		}
		if k := len(out); k > 0 {
			out[k-1].to = from
		}
		out = append(out, span{from, p.span.to})
	}
	return out
}

// keep gives the text with everything blanked but the spans.
func (d *document) keep(spans ...span) []byte {
	out := make([][]byte, len(d.lines))
	for _, s := range spans {
		for l := max(s.from, 1); l < s.to && l <= len(out); l++ {
			out[l-1] = d.lines[l-1]
		}
	}
	return bytes.Join(out, []byte("\n"))
}

// duplicateJob finds the second of two scrape configs of one name.
func (d *document) duplicateJob(err error) error {
	if !strings.Contains(err.Error(), "multiple scrape configs with job name") {
		return nil
	}
	first := map[string]int{}
	for _, p := range d.parts() {
		if p.key != "scrape_configs" {
			continue
		}
		for _, it := range p.val.Content {
			n := child(it, "job_name")
			if n == nil {
				continue
			}
			if l, ok := first[n.Value]; ok {
				return &Error{Path: d.path, Line: n.Line, Err: err,
					Msg: fmt.Sprintf("job_name %q is taken by line %d; give each scrape config its own", n.Value, l)}
			}
			first[n.Value] = n.Line
		}
	}
	return nil
}

// child gives the value of a key of a mapping, nil without one.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// discoveryErrors names kinds of service discovery that this binary was built without: Prometheus
// itself would only say that a field was not found.
func (d *document) discoveryErrors() []error {
	var have []string
	for _, n := range discovery.RegisteredConfigNames() {
		have = append(have, sdKey(n))
	}
	sort.Strings(have)
	var errs []error
	check := func(n *yaml.Node) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if !strings.HasSuffix(k.Value, "_sd_configs") || slices.Contains(have, k.Value) {
				continue
			}
			errs = append(errs, &Error{Path: d.path, Line: k.Line, Msg: missingDiscovery(k.Value, have)})
		}
	}
	for _, p := range d.parts() {
		switch p.key {
		case "scrape_configs":
			for _, it := range p.val.Content {
				check(it)
			}
		case "alerting":
			if ams := child(p.val, "alertmanagers"); ams != nil {
				for _, it := range ams.Content {
					check(it)
				}
			}
		}
	}
	return errs
}

// FullRelease is the name of the release file that has Kubernetes and DNS discovery.
const FullRelease = "rollscope-full"

func missingDiscovery(key string, have []string) string {
	switch key {
	case "kubernetes_sd_configs", "dns_sd_configs":
		return fmt.Sprintf("%s: this binary was built without Kubernetes and DNS discovery, which add 27 MB; use the release file %s (or build with -tags discovery_full), or list the targets with file_sd_configs or http_sd_configs", key, FullRelease)
	}
	names := []string{"file", "http", "kubernetes", "dns"}
	if s := nearest(strings.TrimSuffix(key, "_sd_configs"), names); s != "" {
		return fmt.Sprintf("unknown service discovery %s; did you mean %s?", key, sdKey(s))
	}
	return fmt.Sprintf("%s is not supported; this binary has %s. Other sources can write a file for file_sd_configs or answer http_sd_configs", key, strings.Join(have, ", "))
}
