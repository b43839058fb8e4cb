package metricstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

// checkEvery bounds the series that checkBlock looks at, in blocks with more than a hundred thousand.
const checkEvery = 100_000

// checkBlock reads a block's index and sees that every chunk it names lies within a chunk file. The
// chunks themselves are checked when they are read: each has a checksum.
func checkBlock(b *tsdb.Block) error {
	sizes, err := chunkFiles(filepath.Join(b.Dir(), "chunks"))
	if err != nil {
		return err
	}
	ir, err := b.Index()
	if err != nil {
		return err
	}
	defer ir.Close()
	k, v := index.AllPostingsKey()
	p, err := ir.Postings(context.Background(), k, v)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	stride := 1 + int(b.Meta().Stats.NumSeries/checkEvery)
	var builder labels.ScratchBuilder
	var metas []chunks.Meta
	for n := 0; p.Next(); n++ {
		if n%stride != 0 {
			continue
		}
		if err := ir.Series(p.At(), &builder, &metas); err != nil {
			return fmt.Errorf("index: %w", err)
		}
		for _, m := range metas {
			file, offset := chunks.BlockChunkRef(m.Ref).Unpack()
			if file >= len(sizes) {
				return fmt.Errorf("chunk file %06d is missing", file+1)
			}
			if int64(offset) >= sizes[file] {
				return fmt.Errorf("chunk file %06d ends at byte %d, before a chunk at %d", file+1, sizes[file], offset)
			}
		}
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return nil
}

// chunkFiles returns the sizes of a block's chunk files, which are numbered from 1 without a gap.
func chunkFiles(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var sizes []int64
	for _, e := range entries { // sorted by name, and the names have six digits
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if n != len(sizes)+1 {
			return nil, fmt.Errorf("chunk file %06d is missing", len(sizes)+1)
		}
		st, err := e.Info()
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, st.Size())
	}
	return sizes, nil
}

// tolerant reads a block so that a damaged chunk is a hole in one series, not the failure of a query.
func (a *Archive) tolerant(b *sharedBlock) tsdb.BlockReader { return tolerantBlock{b.Block, a} }

type tolerantBlock struct {
	*tsdb.Block
	a *Archive
}

func (b tolerantBlock) Chunks() (tsdb.ChunkReader, error) {
	r, err := b.Block.Chunks()
	if err != nil {
		return nil, err
	}
	return tolerantChunks{r, b}, nil
}

type tolerantChunks struct {
	tsdb.ChunkReader
	b tolerantBlock
}

func (c tolerantChunks) ChunkOrIterable(m chunks.Meta) (chunkenc.Chunk, chunkenc.Iterable, error) {
	chk, it, err := c.ChunkReader.ChunkOrIterable(m)
	if err == nil {
		return chk, it, nil
	}
	c.b.a.damage("chunk", c.b.Dir(), err.Error())
	return chunkenc.NewXORChunk(), nil, nil
}
