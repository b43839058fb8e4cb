package tfevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// FileVersion is what the first record of an event file says.
const FileVersion = "brain.Event:2"

// SessionStatus is the status of a session_log event (tensorflow.SessionLog.SessionStatus).
type SessionStatus uint8

// The statuses of a session. SessionStart at step n tells a reader to forget what earlier events said
// of steps n and later; SessionCheckpoint changes nothing for a reader.
const (
	SessionNone SessionStatus = iota
	SessionStart
	SessionStop
	SessionCheckpoint
)

// Event is one record of an event file.
type Event struct {
	// WallTime is in seconds since 1970 UTC; Seconds makes one of a time.
	WallTime float64
	// Step is the position on the axis that the tags of this event share.
	Step int64
	// FileVersion is set in the first event of a file and empty in others.
	FileVersion string
	// Session is the status of a session_log event, and Message what it says.
	Session SessionStatus
	Message string
	// Values are the scalars of the event, in order.
	Values []Value
	// Skipped counts values of the event that are not scalars, or not readable as such.
	Skipped int
}

// Value is one scalar.
type Value struct {
	Tag string
	// Number is the value; simple_value holds 32 bits, so a written value comes back rounded to float32.
	Number float64
	// FromTensor says that it stood in a tensor, as TensorFlow 2 and torch's new_style write it.
	FromTensor bool
}

var errMalformed = errors.New("malformed protobuf")

// AppendEvent appends the payload of e to dst. All values are written as simple_value.
func AppendEvent(dst []byte, e *Event) []byte {
	dst = protowire.AppendTag(dst, 1, protowire.Fixed64Type)
	dst = protowire.AppendFixed64(dst, math.Float64bits(e.WallTime))
	if e.Step != 0 {
		dst = protowire.AppendTag(dst, 2, protowire.VarintType)
		dst = protowire.AppendVarint(dst, uint64(e.Step))
	}
	if e.FileVersion != "" {
		dst = protowire.AppendTag(dst, 3, protowire.BytesType)
		dst = protowire.AppendString(dst, e.FileVersion)
	}
	if len(e.Values) > 0 {
		n := 0
		for i := range e.Values {
			v := valueSize(&e.Values[i])
			n += protowire.SizeTag(1) + protowire.SizeBytes(v)
		}
		dst = protowire.AppendTag(dst, 5, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(n))
		for i := range e.Values {
			v := &e.Values[i]
			dst = protowire.AppendTag(dst, 1, protowire.BytesType)
			dst = protowire.AppendVarint(dst, uint64(valueSize(v)))
			dst = protowire.AppendTag(dst, 1, protowire.BytesType)
			dst = protowire.AppendString(dst, v.Tag)
			dst = protowire.AppendTag(dst, 2, protowire.Fixed32Type)
			dst = protowire.AppendFixed32(dst, math.Float32bits(float32(v.Number)))
		}
	}
	if e.Session != SessionNone || e.Message != "" {
		var log []byte
		log = protowire.AppendTag(log, 1, protowire.VarintType)
		log = protowire.AppendVarint(log, uint64(e.Session))
		if e.Message != "" {
			log = protowire.AppendTag(log, 3, protowire.BytesType)
			log = protowire.AppendString(log, e.Message)
		}
		dst = protowire.AppendTag(dst, 7, protowire.BytesType)
		dst = protowire.AppendBytes(dst, log)
	}
	return dst
}

func valueSize(v *Value) int {
	return protowire.SizeTag(1) + protowire.SizeBytes(len(v.Tag)) + protowire.SizeTag(2) + protowire.SizeFixed32()
}

// fields calls fn with each field of a message. fn gets the raw bytes of length-delimited fields, the
// bits of numbers in u.
func fields(b []byte, fn func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		var data []byte
		var u uint64
		switch typ {
		case protowire.VarintType:
			u, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			u, n = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var u32 uint32
			u32, n = protowire.ConsumeFixed32(b)
			u = uint64(u32)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := fn(num, typ, data, u); err != nil {
			return err
		}
	}
	return nil
}

// names keeps the tags of a file, which repeat in every event, so that each is allocated once.
type names map[string]string

const maxNames = 1 << 14

func (s names) of(b []byte) string {
	if v, ok := s[string(b)]; ok {
		return v
	}
	v := string(b)
	if len(s) < maxNames {
		s[v] = v
	}
	return v
}

// DecodeEvent decodes the payload of a record.
func DecodeEvent(payload []byte) (Event, error) {
	var e Event
	err := decodeEvent(payload, &e, nil)
	return e, err
}

func decodeEvent(b []byte, e *Event, tags names) error {
	*e = Event{Values: e.Values[:0]}
	err := fields(b, func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error {
		switch {
		case num == 1 && typ == protowire.Fixed64Type:
			e.WallTime = math.Float64frombits(u)
		case num == 2 && typ == protowire.VarintType:
			e.Step = int64(u)
		case num == 3 && typ == protowire.BytesType:
			e.FileVersion = string(data)
		case num == 5 && typ == protowire.BytesType:
			return fields(data, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
				if num != 1 || typ != protowire.BytesType {
					return nil
				}
				return decodeValue(data, e, tags)
			})
		case num == 7 && typ == protowire.BytesType:
			return fields(data, func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error {
				switch {
				case num == 1 && typ == protowire.VarintType && u <= uint64(SessionCheckpoint):
					e.Session = SessionStatus(u)
				case num == 3 && typ == protowire.BytesType:
					e.Message = string(data)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tfevents: event of %d bytes: %w", len(b), err)
	}
	return nil
}

// decodeValue adds a Summary.Value to e when it is a scalar.
func decodeValue(b []byte, e *Event, tags names) error {
	var tag, tensor, meta []byte
	var number float64
	simple, other := false, false
	err := fields(b, func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error {
		switch {
		case num == 1 && typ == protowire.BytesType:
			tag = data
		case num == 2 && typ == protowire.Fixed32Type:
			number, simple = float64(math.Float32frombits(uint32(u))), true
		case num == 8 && typ == protowire.BytesType:
			tensor = data
		case num == 9 && typ == protowire.BytesType:
			meta = data
		case num >= 3 && num <= 6:
			other = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case simple:
		e.Values = append(e.Values, Value{Tag: tags.orString(tag), Number: number})
		return nil
	case tensor != nil && !other:
		plugin, err := pluginName(meta)
		if err != nil {
			return err
		}
		v, ok, err := scalarTensor(tensor, plugin == "scalars")
		if err != nil {
			return err
		}
		// Later events of a tag carry no metadata: then the shape must be that of a scalar.
		if ok && (plugin == "scalars" || plugin == "") {
			e.Values = append(e.Values, Value{Tag: tags.orString(tag), Number: v, FromTensor: true})
			return nil
		}
	}
	e.Skipped++
	return nil
}

func (s names) orString(b []byte) string {
	if s == nil {
		return string(b)
	}
	return s.of(b)
}

func pluginName(meta []byte) (string, error) {
	name := ""
	err := fields(meta, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		return fields(data, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
			if num == 1 && typ == protowire.BytesType {
				name = string(data)
			}
			return nil
		})
	})
	return name, err
}

// Numbers of tensorflow.DataType that a scalar may have.
const (
	dtFloat    = 1
	dtDouble   = 2
	dtInt32    = 3
	dtUint8    = 4
	dtInt16    = 5
	dtInt8     = 6
	dtInt64    = 9
	dtBool     = 10
	dtBfloat16 = 14
	dtHalf     = 19
)

// scalarTensor returns the one number that a tensor holds; ok is false when it holds none, several, or
// no numbers. A shape of ones is taken for a scalar only where the plugin says so.
func scalarTensor(b []byte, declared bool) (v float64, ok bool, err error) {
	var dtype uint64
	var content []byte
	dims, elems := 0, uint64(1)
	found := 0
	err = fields(b, func(num protowire.Number, typ protowire.Type, data []byte, u uint64) error {
		switch num {
		case 1:
			dtype = u
		case 2:
			return fields(data, func(num protowire.Number, typ protowire.Type, data []byte, _ uint64) error {
				if num != 2 || typ != protowire.BytesType {
					return nil
				}
				dims++
				size := uint64(0)
				err := fields(data, func(num protowire.Number, typ protowire.Type, _ []byte, u uint64) error {
					if num == 1 && typ == protowire.VarintType {
						size = u
					}
					return nil
				})
				if size != 1 {
					elems = 2 // not one element, however many
				}
				return err
			})
		case 4:
			content = data
		case 5, 6, 7, 10, 11, 13:
			x, n, bad := packedNumber(num, typ, data, u, dtype)
			if bad {
				return errMalformed
			}
			found += n
			v = x
		}
		return nil
	})
	if err != nil {
		return 0, false, err
	}
	if elems != 1 || (dims > 0 && !declared) {
		return 0, false, nil
	}
	if len(content) > 0 {
		v, ok = contentNumber(content, dtype)
		return v, ok, nil
	}
	if found == 0 {
		// A tensor without values is filled with zeros, as TensorFlow does for a compressed proto.
		return 0, numeric(dtype), nil
	}
	return v, found == 1 && numeric(dtype), nil
}

func numeric(dtype uint64) bool {
	switch dtype {
	case dtFloat, dtDouble, dtInt32, dtUint8, dtInt16, dtInt8, dtInt64, dtBool, dtBfloat16, dtHalf:
		return true
	}
	return false
}

// packedNumber reads the last number of a repeated field, which may be packed; n is how many there were.
func packedNumber(num protowire.Number, typ protowire.Type, data []byte, u uint64, dtype uint64) (v float64, n int, bad bool) {
	conv := func(u uint64) float64 {
		switch num {
		case 5:
			return float64(math.Float32frombits(uint32(u)))
		case 6:
			return math.Float64frombits(u)
		case 13:
			if dtype == dtBfloat16 {
				return bfloat16(uint16(u))
			}
			return float16(uint16(u))
		}
		return float64(int64(u))
	}
	if typ != protowire.BytesType {
		return conv(u), 1, false
	}
	for len(data) > 0 {
		var x uint64
		var used int
		switch num {
		case 5:
			var y uint32
			y, used = protowire.ConsumeFixed32(data)
			x = uint64(y)
		case 6:
			x, used = protowire.ConsumeFixed64(data)
		default:
			x, used = protowire.ConsumeVarint(data)
		}
		if used < 0 {
			return 0, n, true
		}
		data = data[used:]
		v = conv(x)
		n++
	}
	return v, n, false
}

// contentNumber reads tensor_content, the little-endian memory of the tensor.
func contentNumber(b []byte, dtype uint64) (float64, bool) {
	switch {
	case dtype == dtFloat && len(b) == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case dtype == dtDouble && len(b) == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	case dtype == dtInt64 && len(b) == 8:
		return float64(int64(binary.LittleEndian.Uint64(b))), true
	case dtype == dtInt32 && len(b) == 4:
		return float64(int32(binary.LittleEndian.Uint32(b))), true
	case dtype == dtInt16 && len(b) == 2:
		return float64(int16(binary.LittleEndian.Uint16(b))), true
	case dtype == dtInt8 && len(b) == 1:
		return float64(int8(b[0])), true
	case (dtype == dtUint8 || dtype == dtBool) && len(b) == 1:
		return float64(b[0]), true
	case dtype == dtHalf && len(b) == 2:
		return float16(binary.LittleEndian.Uint16(b)), true
	case dtype == dtBfloat16 && len(b) == 2:
		return bfloat16(binary.LittleEndian.Uint16(b)), true
	}
	return 0, false
}

func bfloat16(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }

// float16 widens an IEEE 754 binary16.
func float16(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exp, frac := int(h>>10&0x1f), float64(h&0x3ff)
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1+frac/1024, exp-15)
}
