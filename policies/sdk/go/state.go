package allot

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"reflect"
	"strconv"
)

// What a policy remembers between two calls, as bytes: little-endian fields in order, after a
// four-byte mark of the struct's fields, so that bytes of another version are refused and never
// misread. A field is bool, int32, uint32, uint64, float32, float64, a slice or a struct of them.

// The bytes. None has no bytes at all.
func save[State any](state *State) []byte {
	value := reflect.ValueOf(state).Elem()
	if value.NumField() == 0 {
		return nil
	}
	return put(binary.LittleEndian.AppendUint32(nil, mark(value.Type())), value)
}

// Fills in the state of these bytes.
func load[State any](state *State, bytes []byte) error {
	value := reflect.ValueOf(state).Elem()
	if value.NumField() == 0 {
		if len(bytes) > 0 {
			return BadState("expected no state, got " + strconv.Itoa(len(bytes)) + " bytes")
		}
		return nil
	}
	rest := reader{bytes: bytes}
	rest.bad = rest.uint32() != mark(value.Type())
	rest.take(value)
	if rest.bad || len(rest.bytes) > 0 {
		return BadState("it was written by another version of this policy")
	}
	return nil
}

// A mark of a struct's fields: FNV-1a over their names and types.
func mark(of reflect.Type) uint32 {
	hash := fnv.New32a()
	for _, field := range reflect.VisibleFields(of) {
		hash.Write([]byte(field.Name + ":" + field.Type.String() + ";"))
	}
	return hash.Sum32()
}

func put(bytes []byte, value reflect.Value) []byte {
	order := binary.LittleEndian
	switch value.Kind() {
	case reflect.Bool:
		if value.Bool() {
			return append(bytes, 1)
		}
		return append(bytes, 0)
	case reflect.Int32:
		return order.AppendUint32(bytes, uint32(value.Int()))
	case reflect.Uint32:
		return order.AppendUint32(bytes, uint32(value.Uint()))
	case reflect.Uint64:
		return order.AppendUint64(bytes, value.Uint())
	case reflect.Float32:
		return order.AppendUint32(bytes, math.Float32bits(float32(value.Float())))
	case reflect.Float64:
		return order.AppendUint64(bytes, math.Float64bits(value.Float()))
	case reflect.Slice:
		bytes = order.AppendUint32(bytes, uint32(value.Len()))
		for i := range value.Len() {
			bytes = put(bytes, value.Index(i))
		}
		return bytes
	case reflect.Struct:
		for i := range value.NumField() {
			bytes = put(bytes, value.Field(i))
		}
		return bytes
	}
	panic("a state can't have a field of type " + value.Type().String())
}

// What is left of the bytes, and whether they turned out to be no such state. Past their end there
// are zeros.
type reader struct {
	bytes []byte
	bad   bool
}

func (r *reader) next(n int) []byte {
	if r.bad || len(r.bytes) < n {
		r.bad = true
		return make([]byte, n)
	}
	head := r.bytes[:n]
	r.bytes = r.bytes[n:]
	return head
}

func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }

func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }

// Takes a value off the front.
func (r *reader) take(to reflect.Value) {
	switch to.Kind() {
	case reflect.Bool:
		mark := r.next(1)[0]
		r.bad = r.bad || mark > 1
		to.SetBool(mark == 1)
	case reflect.Int32:
		to.SetInt(int64(int32(r.uint32())))
	case reflect.Uint32:
		to.SetUint(uint64(r.uint32()))
	case reflect.Uint64:
		to.SetUint(r.uint64())
	case reflect.Float32:
		to.SetFloat(float64(math.Float32frombits(r.uint32())))
	case reflect.Float64:
		to.SetFloat(math.Float64frombits(r.uint64()))
	case reflect.Slice:
		// Grown a thing at a time: a length that lies takes no memory.
		for n := r.uint32(); n > 0 && !r.bad; n-- {
			to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
			r.take(to.Index(to.Len() - 1))
		}
	case reflect.Struct:
		for i := range to.NumField() {
			r.take(to.Field(i))
		}
	default:
		panic("a state can't have a field of type " + to.Type().String())
	}
}
