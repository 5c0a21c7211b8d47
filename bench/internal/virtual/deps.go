package virtual

import (
	"io"
	"reflect"
	"time"
)

// deps is what package testing needs of the program that it runs in. The go
// command generates one for each test; this one has no profiles, no coverage
// and no fuzzing.
type deps struct{}

// entry is an entry of a fuzzing corpus, as package testing declares it.
type entry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

func (deps) MatchString(_, _ string) (bool, error)              { return true, nil }
func (deps) StartCPUProfile(io.Writer) error                    { return nil }
func (deps) StopCPUProfile()                                    {}
func (deps) WriteProfileTo(string, io.Writer, int) error        { return nil }
func (deps) ImportPath() string                                 { return "" }
func (deps) ModulePath() string                                 { return "" }
func (deps) StartTestLog(io.Writer)                             {}
func (deps) StopTestLog() error                                 { return nil }
func (deps) SetPanicOnExit0(bool)                               {}
func (deps) RunFuzzWorker(func(entry) error) error              { return nil }
func (deps) ReadCorpus(string, []reflect.Type) ([]entry, error) { return nil, nil }
func (deps) CheckCorpus([]any, []reflect.Type) error            { return nil }
func (deps) ResetCoverage()                                     {}
func (deps) SnapshotCoverage()                                  {}

func (deps) CoordinateFuzzing(time.Duration, int64, time.Duration, int64, int, []entry, []reflect.Type, string, string) error {
	return nil
}

func (deps) InitRuntimeCoverage() (string, func(string, string) (string, error), func() float64) {
	return "", nil, nil
}
