package rolloutstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	recordVersion = 1
	tempPrefix    = ".tmp-"
	damagedSuffix = ".damaged"
	maxName       = 150
	// maxRecord bounds what is read of a record: a few hundred metrics and problems are far below it.
	maxRecord = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) string { return sumOf(crc32.Checksum(b, castagnoli)) }

func sumOf(c uint32) string { return fmt.Sprintf("%08x", c) }

func newSum() hash.Hash32 { return crc32.New(castagnoli) }

// errLater is a record of a later version of this program.
var errLater = errors.New("written by a later version of rollscope, which is needed to read it")

// dirName turns a run's name into the name of its directory.
func dirName(run string) string {
	var b strings.Builder
	for i := range len(run) {
		c := run[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	s := b.String()
	if len(s) > maxName {
		h := sha256.Sum256([]byte(run))
		s = s[:maxName] + "%~" + hex.EncodeToString(h[:8])
	}
	return s
}

// runName is the inverse of dirName, but for names that were cut.
func runName(dir string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(dir); i++ {
		if dir[i] != '%' {
			b.WriteByte(dir[i])
			continue
		}
		if i+2 >= len(dir) {
			return "", false
		}
		n, err := strconv.ParseUint(dir[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	s := b.String()
	return s, s != "" && dirName(s) == dir
}

// envelope is what is around a record.
type envelope struct {
	Format  string          `json:"format"`
	Version int             `json:"version"`
	CRC     string          `json:"crc32c"`
	Step    json.RawMessage `json:"step,omitempty"`
	Run     json.RawMessage `json:"run,omitempty"`
}

// seal encodes v in an envelope of that field ("step" or "run") and returns it with its checksum.
func seal(field string, v any) ([]byte, string, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, "", err
	}
	crc := sum(body)
	out := fmt.Appendf(nil, `%s%s","%s":`, head(field), crc, field)
	return append(append(out, body...), "}\n"...), crc, nil
}

// head is how a file that seal wrote begins, before its checksum.
func head(field string) string {
	return fmt.Sprintf(`{"format":"rollscope-%s","version":%d,"crc32c":"`, field, recordVersion)
}

// unseal decodes an envelope into v and returns its checksum.
func unseal(field string, b []byte, v any) (string, error) {
	// As seal wrote it, the body is found without reading it twice.
	h, middle, end := head(field), `","`+field+`":`, "}\n"
	if n := len(h) + 8; len(b) > n+len(middle)+len(end) && string(b[:len(h)]) == h && string(b[n:n+len(middle)]) == middle && string(b[len(b)-2:]) == end {
		body := b[n+len(middle) : len(b)-len(end)]
		if crc := string(b[len(h):n]); sum(body) == crc {
			return crc, json.Unmarshal(body, v)
		}
	}
	var e envelope
	if err := json.Unmarshal(b, &e); err != nil {
		return "", err
	}
	body := e.Step
	if field == "run" {
		body = e.Run
	}
	switch {
	case e.Format != "rollscope-"+field:
		return "", fmt.Errorf("it is no rollscope-%s file", field)
	case e.Version > recordVersion:
		return "", errLater
	case e.Version < 1:
		return "", fmt.Errorf("version %d does not exist", e.Version)
	case body == nil:
		return "", errors.New("it is empty")
	case sum(body) != e.CRC:
		return "", fmt.Errorf("its checksum is %s instead of %s", sum(body), e.CRC)
	}
	return e.CRC, json.Unmarshal(body, v)
}

// readSum reads the checksum of a record of this version without the rest.
func readSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := head("step")
	b := make([]byte, len(h)+8)
	if _, err := io.ReadFull(f, b); err != nil {
		return "", err
	}
	if string(b[:len(h)]) != h {
		return "", errors.New("it does not begin as a record")
	}
	return string(b[len(h):]), nil
}

// readFile reads a small file whole.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	if fi, err := f.Stat(); err == nil {
		b.Grow(int(min(fi.Size(), maxRecord)) + bytes.MinRead)
	}
	if _, err := b.ReadFrom(io.LimitReader(f, maxRecord+1)); err != nil {
		return nil, err
	}
	if b.Len() > maxRecord {
		return nil, fmt.Errorf("it is larger than %d MiB", maxRecord>>20)
	}
	return b.Bytes(), nil
}

// writeFile writes a file so that it is there whole or not at all, also after a power cut.
func writeFile(path string, write func(io.Writer) error) error {
	return writeNamed(filepath.Dir(path), func() string { return path }, write)
}

// writeNamed is writeFile for a file whose name is known when it is written.
func writeNamed(dir string, name func() string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name())
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}

func writeBytes(path string, b []byte) error {
	return writeFile(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
