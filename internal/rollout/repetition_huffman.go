package rollout

// codeOrder is the order in which the lengths of the code length code are sent (RFC 1951, 3.2.7).
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

func fixedLitLen(n int) int64 {
	switch {
	case n < 144:
		return 8
	case n < 256:
		return 9
	case n < 280:
		return 7
	}
	return 8
}

func fixedDistLen(int) int64 { return 5 }

// huffman builds a code as zlib does, ties and the repair of too long codes included: the lengths decide
// what it costs to send the code itself.
type huffman struct {
	freq   [2*zLitCodes + 1]uint32
	parent [2*zLitCodes + 1]uint16
	depth  [2*zLitCodes + 1]uint8
	length [2*zLitCodes + 1]uint8
	heap   [2*zLitCodes + 1]uint16
	size   int
}

// build makes a code for freq with codes of at most limit bits and returns what coding costs with it and
// with the fixed code (nil: none), extra bits of the symbols not included, and the largest symbol used.
func (h *huffman) build(freq []uint32, limit int, fixed func(int) int64) (bits, fixedBits int64, maxCode int) {
	elems := len(freq)
	h.size, maxCode = 0, -1
	for n, f := range freq {
		h.freq[n], h.length[n] = f, 0
		if f != 0 {
			h.size++
			h.heap[h.size], h.depth[n], maxCode = uint16(n), 0, n
		}
	}
	// A code has at least two symbols.
	for h.size < 2 {
		n := 0
		if maxCode < 2 {
			maxCode++
			n = maxCode
		}
		h.size++
		h.heap[h.size], h.freq[n], h.depth[n] = uint16(n), 1, 0
		bits--
		if fixed != nil {
			fixedBits -= fixed(n)
		}
	}
	for n := h.size / 2; n >= 1; n-- {
		h.down(n)
	}
	top, node := len(h.heap), elems
	for h.size >= 2 {
		n := h.heap[1]
		h.heap[1] = h.heap[h.size]
		h.size--
		h.down(1)
		m := h.heap[1]
		h.heap[top-1], h.heap[top-2] = n, m
		top -= 2
		h.freq[node] = h.freq[n] + h.freq[m]
		h.depth[node] = max(h.depth[n], h.depth[m]) + 1
		h.parent[n], h.parent[m] = uint16(node), uint16(node)
		h.heap[1] = uint16(node)
		node++
		h.down(1)
	}
	top--
	h.heap[top] = h.heap[1]

	var count [17]int
	overflow, i := 0, top+1
	h.length[h.heap[top]] = 0
	for ; i < len(h.heap); i++ {
		n := int(h.heap[i])
		l := int(h.length[h.parent[n]]) + 1
		if l > limit {
			l = limit
			overflow++
		}
		h.length[n] = uint8(l)
		if n > maxCode {
			continue
		}
		count[l]++
		bits += int64(h.freq[n]) * int64(l)
		if fixed != nil {
			fixedBits += int64(h.freq[n]) * fixed(n)
		}
	}
	if overflow == 0 {
		return bits, fixedBits, maxCode
	}
	for overflow > 0 {
		l := limit - 1
		for count[l] == 0 {
			l--
		}
		count[l]--
		count[l+1] += 2
		count[limit]--
		overflow -= 2
	}
	for l := limit; l > 0; l-- {
		for n := count[l]; n > 0; {
			i--
			m := int(h.heap[i])
			if m > maxCode {
				continue
			}
			bits += (int64(l) - int64(h.length[m])) * int64(h.freq[m])
			h.length[m] = uint8(l)
			n--
		}
	}
	return bits, fixedBits, maxCode
}

// less orders nodes by frequency, then by the depth of what hangs below.
func (h *huffman) less(a, b uint16) bool {
	return h.freq[a] < h.freq[b] || h.freq[a] == h.freq[b] && h.depth[a] <= h.depth[b]
}

func (h *huffman) down(k int) {
	v := h.heap[k]
	for j := 2 * k; j <= h.size; j *= 2 {
		if j < h.size && h.less(h.heap[j+1], h.heap[j]) {
			j++
		}
		if h.less(v, h.heap[j]) {
			break
		}
		h.heap[k] = h.heap[j]
		k = j
	}
	h.heap[k] = v
}

// scanLengths counts the symbols by which code lengths are sent: lengths, and runs of them.
func scanLengths(lengths []uint8, freq *[19]uint32) {
	prev, count := -1, 0
	limit, least := 7, 4
	if lengths[0] == 0 {
		limit, least = 138, 3
	}
	for n := range lengths {
		cur, next := int(lengths[n]), -1
		if n+1 < len(lengths) {
			next = int(lengths[n+1])
		}
		if count++; count < limit && cur == next {
			continue
		}
		switch {
		case count < least:
			freq[cur] += uint32(count)
		case cur != 0:
			if cur != prev {
				freq[cur]++
			}
			freq[16]++
		case count <= 10:
			freq[17]++
		default:
			freq[18]++
		}
		count, prev = 0, cur
		switch {
		case next == 0:
			limit, least = 138, 3
		case cur == next:
			limit, least = 6, 3
		default:
			limit, least = 7, 4
		}
	}
}
