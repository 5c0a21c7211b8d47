// Package unset tells what nobody has set: a nil interface, and one that holds a nil pointer, as
// of a constructor whose error was passed over.
package unset

import "reflect"

// Is reports whether there is nothing in x that could be used.
func Is(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
