// Package runtime gives the host memory of Go's heap, to put arguments in and to read results from.
package runtime

import (
	"runtime"
	"unsafe"
)

// What holds the arguments of a call in place until the generated code has taken them over.
var arguments runtime.Pinner

// Allocate gives memory that stays alive and where it is until the pinner lets go of it. It has the
// largest alignment that the contract asks for.
func Allocate(pinner *runtime.Pinner, size, _ uintptr) unsafe.Pointer {
	if size == 0 {
		return nil
	}
	memory := unsafe.Pointer(unsafe.SliceData(make([]uint64, (size+7)/8)))
	pinner.Pin(memory)
	return memory
}

// Unpin lets go of the arguments: from here on Go's own pointers keep them alive.
func Unpin() { arguments.Unpin() }
