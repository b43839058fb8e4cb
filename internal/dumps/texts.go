package dumps

import (
	"cmp"
	"math"
	"slices"

	"github.com/rollscope/rollscope/internal/timeline"
)

// maxEmbedded bounds one text in a page in bytes.
const maxEmbedded = 64 << 10

// lateTexts keeps the texts of the samples that ended last so far. Of n samples in any order about
// most*ln(n/most) have their texts copied: a few hundred of ten thousand.
type lateTexts struct {
	most int
	kept []lateText // by end, earliest first
}

type lateText struct {
	end              int64
	ordinal          int
	prompt, response string
}

func (l *lateTexts) add(row *timeline.Row) {
	end := int64(math.MinInt64) // without a trace: only while there is room
	if len(row.Items) > 0 {
		end = row.End
	}
	if l.most == 0 || len(l.kept) == l.most && end <= l.kept[0].end {
		return
	}
	raw := row.Sample.Raw
	t := lateText{
		end: end, ordinal: row.Sample.Ordinal,
		prompt: timeline.Text(raw.Field("prompt"), maxEmbedded), response: timeline.Text(raw.Field("response"), maxEmbedded),
	}
	if len(l.kept) == l.most {
		l.kept = l.kept[1:]
	}
	at, _ := slices.BinarySearchFunc(l.kept, t, func(a, b lateText) int { return cmp.Compare(a.end, b.end) })
	l.kept = slices.Insert(l.kept, at, t)
}

// into embeds them, in the order of the dump.
func (l *lateTexts) into(c *timeline.Columns) {
	slices.SortFunc(l.kept, func(a, b lateText) int { return cmp.Compare(a.ordinal, b.ordinal) })
	for _, t := range l.kept {
		c.AddText(t.ordinal, t.prompt, t.response)
	}
}
