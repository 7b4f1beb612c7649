// Package types has what the generated code makes of the contract's options, results and tuples.
package types

// The tags of an Option.
const (
	OptionNone uint8 = 0
	OptionSome uint8 = 1
)

// Option is a value or none.
type Option[T any] struct {
	tag   uint8
	value T
}

// Some is an option with a value.
func Some[T any](value T) Option[T] { return Option[T]{OptionSome, value} }

// None is an option without one.
func None[T any]() Option[T] { return Option[T]{} }

// Tag says which of the two it is.
func (o Option[T]) Tag() uint8 { return o.tag }

// IsSome says whether there is a value.
func (o Option[T]) IsSome() bool { return o.tag == OptionSome }

// Get gives the value, and whether there is one.
func (o Option[T]) Get() (T, bool) { return o.value, o.tag == OptionSome }

// Some gives the value. It must be there.
func (o Option[T]) Some() T {
	if o.tag != OptionSome {
		panic("an option without a value was asked for it")
	}
	return o.value
}

// The tags of a Result.
const (
	ResultOk  uint8 = 0
	ResultErr uint8 = 1
)

// Result is a value or an error.
type Result[T, E any] struct {
	tag uint8
	ok  T
	err E
}

// Ok is a result that has come.
func Ok[T, E any](value T) Result[T, E] { return Result[T, E]{tag: ResultOk, ok: value} }

// Err is one that has not.
func Err[T, E any](err E) Result[T, E] { return Result[T, E]{tag: ResultErr, err: err} }

// Tag says which of the two it is.
func (r Result[T, E]) Tag() uint8 { return r.tag }

// Ok gives the value.
func (r Result[T, E]) Ok() T { return r.ok }

// Err gives the error.
func (r Result[T, E]) Err() E { return r.err }

// Tuple2 is a pair.
type Tuple2[A, B any] struct {
	F0 A
	F1 B
}

// Unit is the value of a result that has none.
type Unit = struct{}
