package postgres

import (
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// The types that statements of this program meet.
const (
	oidBool     = 16
	oidBytea    = 17
	oidInt8     = 20
	oidInt2     = 21
	oidInt4     = 23
	oidText     = 25
	oidFloat8   = 701
	oidVarchar  = 1043
	oidNumeric  = 1700
	oidByteas   = 1001
	oidTexts    = 1009
	oidIntegers = 1016
)

const (
	asText   int16 = 0
	asBinary int16 = 1
)

// array is the binary form of an array, made by one of the functions below.
type array []byte

// form returns the form in which values of a type are exchanged.
func form(oid uint32) int16 {
	switch oid {
	case oidBool, oidBytea, oidInt8, oidInt2, oidInt4, oidText, oidFloat8, oidVarchar, oidByteas, oidTexts, oidIntegers:
		return asBinary
	}
	return asText
}

// encode returns arg as a value of the type that the server wants, nil for null. Texts and bytes stand for each other, and so
// do truth values and numbers: SQLite makes no difference between them where a column says nothing else.
func encode(oid uint32, arg any) ([]byte, error) {
	switch v := arg.(type) {
	case nil:
		return nil, nil
	case array:
		return v, nil
	case string:
		return encodeBytes(oid, []byte(v))
	case []byte:
		if v == nil {
			return nil, nil
		}
		return encodeBytes(oid, v)
	case bool:
		if v {
			return encodeInt(oid, 1)
		}
		return encodeInt(oid, 0)
	case int64:
		return encodeInt(oid, v)
	case int:
		return encodeInt(oid, int64(v))
	case float64:
		if oid == oidFloat8 {
			return binary.BigEndian.AppendUint64(nil, math.Float64bits(v)), nil
		}
		return []byte(strconv.FormatFloat(v, 'g', -1, 64)), wrong(oid, arg, oid == oidNumeric)
	}
	return nil, fmt.Errorf("an argument must not be a %T", arg)
}

func wrong(oid uint32, arg any, right bool) error {
	if right {
		return nil
	}
	return fmt.Errorf("an argument is a %T, the statement wants type %d", arg, oid)
}

func encodeBytes(oid uint32, b []byte) ([]byte, error) {
	switch oid {
	case oidBytea, oidText, oidVarchar:
		return b, nil
	}
	return b, wrong(oid, b, form(oid) == asText && oid != oidNumeric)
}

func encodeInt(oid uint32, n int64) ([]byte, error) {
	switch oid {
	case oidInt8:
		return binary.BigEndian.AppendUint64(nil, uint64(n)), nil
	case oidInt4:
		return binary.BigEndian.AppendUint32(nil, uint32(n)), wrong(oid, n, n == int64(int32(n)))
	case oidInt2:
		return binary.BigEndian.AppendUint16(nil, uint16(n)), wrong(oid, n, n == int64(int16(n)))
	case oidBool:
		return []byte{byte(n)}, wrong(oid, n, n == 0 || n == 1)
	case oidFloat8:
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(float64(n))), nil
	}
	return strconv.AppendInt(nil, n, 10), wrong(oid, n, oid == oidNumeric)
}

// decode returns what database/sql scans from: numbers, texts and bytes as SQLite gives them, so truth values are numbers.
// Bytes are valid until the next row only.
func decode(oid uint32, b []byte) (driver.Value, error) {
	if b == nil {
		return nil, nil
	}
	switch oid {
	case oidBool:
		if len(b) == 1 {
			return int64(b[0]), nil
		}
	case oidInt8:
		if len(b) == 8 {
			return int64(binary.BigEndian.Uint64(b)), nil
		}
	case oidInt4:
		if len(b) == 4 {
			return int64(int32(binary.BigEndian.Uint32(b))), nil
		}
	case oidInt2:
		if len(b) == 2 {
			return int64(int16(binary.BigEndian.Uint16(b))), nil
		}
	case oidFloat8:
		if len(b) == 8 {
			return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
		}
	case oidBytea:
		return b, nil
	case oidNumeric: // what sums of numbers are
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
			return n, nil
		}
		return strconv.ParseFloat(string(b), 64)
	default:
		return string(b), nil
	}
	return nil, fmt.Errorf("a value of type %d has %d bytes", oid, len(b))
}

// arrayOf returns n elements; put appends the bytes of one, or reports that it is null.
func arrayOf(element uint32, n int, put func(b []byte, i int) ([]byte, bool)) array {
	if n == 0 {
		b := binary.BigEndian.AppendUint32(nil, 0)
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, element)
	}
	b := make([]byte, 0, 20+12*n)
	for _, head := range [...]uint32{1, 1, element, uint32(n), 1} { // one dimension, nulls allowed, from index 1
		b = binary.BigEndian.AppendUint32(b, head)
	}
	for i := range n {
		at := len(b)
		b = append(b, 0, 0, 0, 0)
		var ok bool
		if b, ok = put(b, i); ok {
			binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
		} else {
			binary.BigEndian.PutUint32(b[at:], math.MaxUint32)
		}
	}
	return b
}

func integers(n int, at func(i int) int64) array {
	return arrayOf(oidInt8, n, func(b []byte, i int) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(b, uint64(at(i))), true
	})
}

// byteas takes nil for null.
func byteas(n int, at func(i int) []byte) array {
	return arrayOf(oidBytea, n, func(b []byte, i int) ([]byte, bool) {
		v := at(i)
		return append(b, v...), v != nil
	})
}

// stringsOf takes "" for null.
func stringsOf(n int, at func(i int) string) array {
	return arrayOf(oidText, n, func(b []byte, i int) ([]byte, bool) {
		v := at(i)
		return append(b, v...), v != ""
	})
}
