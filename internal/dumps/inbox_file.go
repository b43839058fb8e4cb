package dumps

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/trace"
)

// INBOX.md describes what is written here.
const (
	inboxVersion = 1
	blockSize    = 4096 // before the body of a batch
	sealSize     = 9    // checksum in hex and a line feed
	damagedName  = ".damaged"
	partPrefix   = "part-"
	partSuffix   = ".batch"
	uploadPrefix = "u-"
	maxRecord    = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFormat is of a file that another version of this program wrote.
var errFormat = fmt.Errorf("this program knows format %d: use the one that wrote it, or another directory", inboxVersion)

// partRecord is the JSON before the body of a batch.
type partRecord struct {
	Format int `json:"format"`
	trace.Header
	Samples  int       `json:"samples"`
	Text     int64     `json:"text"`    // bytes of the samples, a line feed each
	Payload  int64     `json:"payload"` // bytes of the body
	Sum      uint32    `json:"crc32c"`  // of the body
	Digest   string    `json:"digest"`  // first half of the SHA-256 of the samples
	Received time.Time `json:"received"`
}

func (r *partRecord) key() rolloutKey { return rolloutKey{r.Run, r.Kind, r.RolloutID} }

// block is the record as it is written: padded with blanks to all but the last bytes of a block, which
// are the checksum of the rest.
func (r *partRecord) block() ([]byte, error) {
	r.Format = inboxVersion
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // names of 256 bytes become 1,536 at most
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	const room = blockSize - sealSize
	if buf.Len() > room {
		return nil, fmt.Errorf("the header of a batch takes %d bytes of %d", buf.Len(), room)
	}
	b := append(buf.Bytes(), bytes.Repeat([]byte{' '}, room-buf.Len())...)
	return fmt.Appendf(b, "%08x\n", crc32.Checksum(b, castagnoli)), nil
}

// readBlock reads the record at the beginning of a file.
func readBlock(f io.ReaderAt) (*partRecord, error) {
	b := make([]byte, blockSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("its first block: %w", err)
	}
	head, seal := b[:blockSize-sealSize], b[blockSize-sealSize:]
	if want := fmt.Sprintf("%08x\n", crc32.Checksum(head, castagnoli)); want != string(seal) {
		return nil, errors.New("its first block does not have the checksum that it should")
	}
	rec := &partRecord{}
	if err := json.Unmarshal(head, rec); err != nil {
		return nil, err
	}
	if rec.Format != inboxVersion {
		return nil, fmt.Errorf("it has format %d: %w", rec.Format, errFormat)
	}
	return rec, nil
}

// attemptRecord is what is written of a rollout that is closed.
type attemptRecord struct {
	Format     int            `json:"format"`
	State      string         `json:"state"` // see closing, dumped, finished
	Run        string         `json:"run"`
	Kind       string         `json:"kind"`
	RolloutID  int64          `json:"rollout_id"`
	Attempt    int            `json:"attempt"`
	Dump       string         `json:"dump"` // file name; "" when no batch was usable
	Samples    int            `json:"samples"`
	Lost       int64          `json:"lost"`
	Missing    int            `json:"missing"`
	Incomplete bool           `json:"incomplete"`
	Kept       bool           `json:"kept"` // the batches stay after the dump, for more may come
	Closed     time.Time      `json:"closed"`
	Finished   time.Time      `json:"finished"`
	Uploads    []uploadRecord `json:"uploads"`
}

type uploadRecord struct {
	Upload string       `json:"upload"`
	Last   int          `json:"last"` // the highest part that is known of
	Final  bool         `json:"final"`
	Lost   int64        `json:"lost"`
	First  time.Time    `json:"first"`
	Latest time.Time    `json:"latest"`
	Parts  []doneRecord `json:"parts"`
}

type doneRecord struct {
	Part    int    `json:"part"`
	BatchID string `json:"batch_id"`
	Digest  string `json:"digest"`
	Samples int    `json:"samples"`
	Text    int64  `json:"text"`
	Payload int64  `json:"payload"`
}

func (a *attemptRecord) key() rolloutKey { return rolloutKey{a.Run, a.Kind, a.RolloutID} }

// encodeName turns any text into the name of a file that is its own or, when that would be long, begins
// like it and ends with a hash.
func encodeName(s string) string {
	const limit = 150
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	if len(name) > limit {
		h := sha256.Sum256([]byte(s))
		name = name[:limit] + "%~" + hex.EncodeToString(h[:12])
	}
	return name
}

func (b *Inbox) temp() string             { return filepath.Join(b.dir, ".tmp") }
func (b *Inbox) runDir(run string) string { return filepath.Join(b.dir, encodeName(run)) }
func (b *Inbox) rolloutDir(k rolloutKey) string {
	return filepath.Join(b.runDir(k.run), k.kind+"-"+strconv.FormatInt(k.id, 10))
}
func (b *Inbox) uploadDir(k rolloutKey, upload string) string {
	return filepath.Join(b.rolloutDir(k), uploadPrefix+encodeName(upload))
}
func (b *Inbox) partPath(k rolloutKey, upload string, part int) string {
	return filepath.Join(b.uploadDir(k, upload), fmt.Sprintf("%s%06d%s", partPrefix, part, partSuffix))
}
func (b *Inbox) attemptPath(k rolloutKey, n int) string {
	return filepath.Join(b.rolloutDir(k), fmt.Sprintf("attempt-%03d.json", n))
}

// dumpName is what slime calls a dump; later attempts have a word before the last dot.
func dumpName(k rolloutKey, attempt int) string {
	name := "rollout_"
	if k.kind == trace.Eval {
		name += "eval_"
	}
	name += strconv.FormatInt(k.id, 10)
	if attempt > 0 {
		name += ".attempt" + strconv.Itoa(attempt)
	}
	return name + ".pt"
}

// makeDir makes a directory below b.dir so that it is there after a power cut.
func (b *Inbox) makeDir(dir string) error {
	b.dirs.Lock()
	defer b.dirs.Unlock()
	return b.makeDirs(dir)
}

func (b *Inbox) makeDirs(dir string) error {
	err := os.Mkdir(dir, 0o755)
	switch {
	case err == nil:
		return syncDir(filepath.Dir(dir))
	case errors.Is(err, os.ErrExist):
		return nil
	case errors.Is(err, os.ErrNotExist) && dir != b.dir:
		if err := b.makeDirs(filepath.Dir(dir)); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		return syncDir(filepath.Dir(dir))
	}
	return err
}

// writeWhole writes a file so that it is there whole or not at all, also after a power cut.
func (b *Inbox) writeWhole(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(b.temp(), "file-*")
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
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeAttempt writes what is known of a closed rollout.
func (b *Inbox) writeAttempt(a *attemptRecord) error {
	a.Format = inboxVersion
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	if err := b.makeDir(b.rolloutDir(a.key())); err != nil {
		return err
	}
	return b.writeWhole(b.attemptPath(a.key(), a.Attempt), func(w io.Writer) error {
		_, err := w.Write(fmt.Appendf(body, "%08x\n", crc32.Checksum(body, castagnoli)))
		return err
	})
}

func readAttempt(path string) (*attemptRecord, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxRecord {
		return nil, fmt.Errorf("it has %d bytes", info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := len(text) - sealSize
	if n < 0 || fmt.Sprintf("%08x\n", crc32.Checksum(text[:n], castagnoli)) != string(text[n:]) {
		return nil, errors.New("it does not have the checksum that it should")
	}
	a := &attemptRecord{}
	if err := json.Unmarshal(text[:n], a); err != nil {
		return nil, err
	}
	if a.Format != inboxVersion {
		return nil, fmt.Errorf("it has format %d: %w", a.Format, errFormat)
	}
	return a, nil
}

// setAside renames a file that cannot be used. What another version wrote is an error instead.
func (b *Inbox) setAside(path string, why error) error {
	if errors.Is(why, errFormat) {
		return fmt.Errorf("%s: %w", path, why)
	}
	b.drop(droppedDamaged, 1)
	b.o.Logger.Error("a file of the inbox is damaged and set aside", "path", path, "err", why)
	return os.Rename(path, path+damagedName)
}
