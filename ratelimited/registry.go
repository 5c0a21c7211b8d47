package ratelimited

import (
	"reflect"
	"runtime"
	"sync"
)

// registry counts the wrappers that put a model behind a gate, to warn of a
// model behind two gates. An entry lives as long as its wrappers do.
var registry struct {
	mu sync.Mutex
	// mu guards models.
	models map[any]map[*Gate]int
}

// register notes that wrapper puts model behind gate, and returns the name of
// another gate that the same model stands behind, or "".
func register[W any](wrapper *W, model any, gate *Gate) (other string) {
	t := reflect.TypeOf(model)
	if t.Kind() != reflect.Pointer || t.Elem().Size() == 0 {
		return "" // a plain value has no identity, nor have pointers to nothing
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	gates := registry.models[model]
	if gates == nil {
		if registry.models == nil {
			registry.models = make(map[any]map[*Gate]int)
		}
		gates = make(map[*Gate]int)
		registry.models[model] = gates
	}
	for g := range gates {
		if g != gate {
			other = g.Name()
		}
	}
	gates[gate]++
	runtime.AddCleanup(wrapper, func(model any) { unregister(model, gate) }, model)
	return other
}

func unregister(model any, gate *Gate) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	gates := registry.models[model]
	if gates[gate]--; gates[gate] <= 0 {
		delete(gates, gate)
	}
	if len(gates) == 0 {
		delete(registry.models, model)
	}
}
