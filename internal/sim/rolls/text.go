package rolls

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// bytesPerToken is how much text a token is, roughly, in English mathematics.
const bytesPerToken = 4

// words are what texts are made of.
var words = strings.Fields(`the of we that is to and so then have let be for any with which since by this
therefore hence because suppose assume consider note recall define denote prove show find compute check
verify substitute simplify expand factor solve integrate differentiate apply use obtain get write follows
equation inequality identity lemma theorem claim proof case base step induction hypothesis contradiction
integer prime divisor multiple remainder modulo even odd positive negative rational real complex number
sequence series sum product limit bound maximum minimum value root polynomial coefficient degree matrix
vector determinant eigenvalue function continuous derivative integral convex monotone interval set subset
union intersection element bijection permutation combination probability expected variance random variable
triangle circle angle side radius area volume perimeter tangent parallel perpendicular midpoint centroid
graph vertex edge path cycle tree degree colour matching flow cut left right first second third next last
each every some no all both either neither only exactly least most more less than equal different same
wait actually hmm okay now again instead maybe perhaps clearly obviously carefully however but also thus
answer final result solution problem question statement condition given known unknown required possible
impossible symmetric unique general particular special trivial simple small large finite infinite
$x$ $y$ $n$ $k$ $a_n$ $x^2$ $\frac{1}{2}$ $\sqrt{n}$ $\sum_{i=1}^{n}$ $\le$ $\ge$ $p\mid n$ $f(x)$ $=0$
def return print for-loop while import range len list dict (mod n+1 2^k a+b)/c x-y 证明 所以 因此 答案 →`)

// text makes the texts of one sample.
type text struct {
	r   *rand.Rand
	buf []byte
}

// prose appends about n bytes.
func (t *text) prose(n int) {
	end := len(t.buf) + n
	var bits uint64
	have := 0
	for len(t.buf) < end {
		if have == 0 {
			bits, have = t.r.Uint64(), 4
		}
		x := int(bits & 0xffff)
		bits >>= 16
		have--
		t.buf = append(t.buf, words[x*len(words)>>16]...)
		switch {
		case x&0x1f == 0:
			t.buf = append(t.buf, '.', '\n')
		case x&0x1f == 1:
			t.buf = strconv.AppendInt(append(t.buf, " = "...), int64(x*7919%100000), 10)
			t.buf = append(t.buf, ' ')
		default:
			t.buf = append(t.buf, ' ')
		}
	}
}

const loop = "Wait, let me check this case again. The remainder is 3, so it does not work. "

// response writes the text of a sample. Texts that repeat themselves do so to their end.
func (t *text) response(s *sample, parts []part) string {
	t.buf = t.buf[:0]
	for _, p := range parts {
		switch {
		case p.tool:
			t.buf = append(t.buf, "\n<tool_response>\n"...)
			t.prose(p.tokens * bytesPerToken / 2)
			t.buf = append(t.buf, "\n</tool_response>\n"...)
		default:
			t.prose(p.tokens * bytesPerToken)
		}
	}
	if s.loops {
		for i := len(t.buf) / 4; i < len(t.buf); i += len(loop) {
			copy(t.buf[i:], loop)
		}
		// The first copy may have begun within a character.
		return strings.ToValidUTF8(string(t.buf), "")
	}
	if s.status == completed {
		t.buf = append(t.buf, "\nThe final answer is \\boxed{"...)
		t.buf = strconv.AppendInt(t.buf, int64(t.r.IntN(1000)), 10)
		t.buf = append(t.buf, "}."...)
	}
	return string(t.buf)
}

// token draws a token id: mostly of the first 2^16, as vocabularies are ordered by frequency.
func token(x uint32, vocab int) int64 {
	switch sel := x >> 24; {
	case sel < 38:
		return int64(x & 0xff)
	case sel < 243 && vocab > 1<<16:
		return int64(256 + x&0xffff*(1<<16-256)>>16)
	default:
		return int64(uint64(x&0xffffff) * uint64(vocab) >> 24)
	}
}
