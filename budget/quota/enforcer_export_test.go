package quota

// KindsOfWindows is how many kinds of windows an enforcer keeps.
func KindsOfWindows(e *Enforcer) (n int) {
	e.spans.Range(func(any, any) bool { n++; return true })
	return n
}

// MaxKindsOfWindows is how many it keeps at most.
const MaxKindsOfWindows = maxKinds
