package ratelimited

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// genaiMeter is the built-in Meter for pointers to structs that carry genai's
// types in fields of genai's names: the requests and responses of ADK Go and of
// genai itself. Fields are found by name and type once, when it is made.
type genaiMeter[Req, Resp any] struct {
	estimator usage.Estimator
	contents  field // []*genai.Content
	config    field // *genai.GenerateContentConfig; optional
	usage     field // *genai.GenerateContentResponseUsageMetadata
	content   field // *genai.Content; of ADK-like responses
	partial   field // bool; of ADK-like responses
	errorCode field // string; of ADK-like responses
	candidate field // []*genai.Candidate; of genai-like responses
	feedback  field // *genai.GenerateContentResponsePromptFeedback; of genai-like responses
}

// field is where a field lies in a struct: the offset at which to begin, then
// one more for each embedded pointer on the way, which may be nil. A field that
// does not exist is nil.
type field []uintptr

var (
	typeContents   = reflect.TypeFor[[]*genai.Content]()
	typeContent    = reflect.TypeFor[*genai.Content]()
	typeConfig     = reflect.TypeFor[*genai.GenerateContentConfig]()
	typeUsage      = reflect.TypeFor[*genai.GenerateContentResponseUsageMetadata]()
	typeCandidates = reflect.TypeFor[[]*genai.Candidate]()
	typeFeedback   = reflect.TypeFor[*genai.GenerateContentResponsePromptFeedback]()
	typeBool       = reflect.TypeFor[bool]()
	typeString     = reflect.TypeFor[string]()
)

func newGenAIMeter[Req, Resp any](e usage.Estimator) (*genaiMeter[Req, Resp], error) {
	m := &genaiMeter[Req, Resp]{estimator: e}
	req, err := structOf[Req]("request")
	if err != nil {
		return nil, err
	}
	resp, err := structOf[Resp]("response")
	if err != nil {
		return nil, err
	}
	if m.contents, err = require(req, "Contents", typeContents); err != nil {
		return nil, err
	}
	if m.config, err = find(req, "Config", typeConfig); err != nil {
		return nil, err
	}
	if m.usage, err = require(resp, "UsageMetadata", typeUsage); err != nil {
		return nil, err
	}
	if m.candidate, err = find(resp, "Candidates", typeCandidates); err != nil {
		return nil, err
	}
	if m.candidate != nil {
		m.feedback, err = find(resp, "PromptFeedback", typeFeedback)
		return m, err
	}
	if m.partial, err = find(resp, "Partial", typeBool); err != nil {
		return nil, err
	}
	if m.partial == nil {
		return nil, fmt.Errorf("ratelimited: response type %v has neither a field Candidates of type %v nor a field Partial of type bool; give a Meter with NewMetered", resp, typeCandidates)
	}
	if m.errorCode, err = find(resp, "ErrorCode", typeString); err != nil {
		return nil, err
	}
	if m.content, err = find(resp, "Content", typeContent); err != nil {
		return nil, err
	}
	return m, nil
}

// structOf is the struct type that T points to.
func structOf[T any](what string) (reflect.Type, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("ratelimited: %s type is %v, want a pointer to a struct; give a Meter with NewMetered", what, t)
	}
	return t.Elem(), nil
}

// find returns where the field is, or nil if there is none of that name. A
// field of that name with another type is an error.
func find(t reflect.Type, name string, want reflect.Type) (field, error) {
	f, ok := t.FieldByName(name)
	if !ok {
		return nil, nil
	}
	if f.Type != want {
		return nil, fmt.Errorf("ratelimited: field %v.%s is of type %v, want %v; give a Meter with NewMetered", t, name, f.Type, want)
	}
	path := field{0}
	for _, i := range f.Index {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
			path = append(path, 0)
		}
		step := t.Field(i)
		path[len(path)-1] += step.Offset
		t = step.Type
	}
	return path, nil
}

func require(t reflect.Type, name string, want reflect.Type) (field, error) {
	f, err := find(t, name, want)
	if err == nil && f == nil {
		err = fmt.Errorf("ratelimited: type %v has no field %s of type %v; give a Meter with NewMetered", t, name, want)
	}
	return f, err
}

// read returns a field of the struct that p points to, whose type was checked
// when the field was found; the zero value if it does not exist or lies behind
// a nil embedded pointer. Unlike package reflect it costs a few nanoseconds, and
// it runs for every item of every answer.
func read[T any](f field, p unsafe.Pointer) (t T) {
	if f == nil || p == nil {
		return t
	}
	p = unsafe.Add(p, f[0])
	for _, offset := range f[1:] {
		if p = *(*unsafe.Pointer)(p); p == nil {
			return t
		}
		p = unsafe.Add(p, offset)
	}
	return *(*T)(p)
}

// pointer is the value of v, whose type was checked to be a pointer.
func pointer[T any](v T) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&v)) }

// Estimate implements [Meter].
func (m *genaiMeter[Req, Resp]) Estimate(req Req) usage.Usage {
	p := pointer(req)
	return m.estimator.GenAI(read[[]*genai.Content](m.contents, p), read[*genai.GenerateContentConfig](m.config, p))
}

// OutputLimit is the limit of the output of all candidates together.
func (m *genaiMeter[Req, Resp]) OutputLimit(req Req) int64 {
	config := read[*genai.GenerateContentConfig](m.config, pointer(req))
	if config == nil || config.MaxOutputTokens <= 0 {
		return 0
	}
	return int64(config.MaxOutputTokens) * int64(max(config.CandidateCount, 1))
}

// Observe implements [Meter].
func (m *genaiMeter[Req, Resp]) Observe(resp Resp) (usage.Usage, Progress) {
	v := pointer(resp)
	if v == nil {
		return usage.Usage{}, More
	}
	progress := More
	var candidates []*genai.Candidate
	if m.candidate != nil {
		candidates = read[[]*genai.Candidate](m.candidate, v)
		progress = finished(candidates)
		if f := read[*genai.GenerateContentResponsePromptFeedback](m.feedback, v); f != nil && f.BlockReason != "" {
			progress = Done // a blocked prompt has no answer
		}
	} else if !read[bool](m.partial, v) {
		progress = Done
		if read[string](m.errorCode, v) != "" {
			progress = Failed
		}
	}
	if u := usage.FromGenAI(read[*genai.GenerateContentResponseUsageMetadata](m.usage, v)); !u.IsZero() {
		return u, progress
	}
	out := int64(0)
	for _, c := range candidates {
		if c != nil {
			out += outputOf(c.Content)
		}
	}
	if m.candidate == nil {
		out = outputOf(read[*genai.Content](m.content, v))
	}
	if out == 0 {
		return usage.Usage{}, progress
	}
	return usage.Usage{Output: out, Flags: usage.Estimated}, progress
}

// finished reports whether every candidate of a response has a reason to have
// finished. One that carries only usage is not an end.
func finished(candidates []*genai.Candidate) Progress {
	done := More
	for _, c := range candidates {
		if c == nil {
			continue
		}
		if c.FinishReason == "" || c.FinishReason == genai.FinishReasonUnspecified {
			return More
		}
		done = Done
	}
	return done
}

// outputOf estimates the tokens of generated content.
func outputOf(c *genai.Content) int64 {
	if c == nil {
		return 0
	}
	contents := [1]*genai.Content{c}
	return usage.Estimator{}.GenAI(contents[:], nil).Input
}

// Clamp implements [Meter].
func (m *genaiMeter[Req, Resp]) Clamp(req Req, maxOutput int64) (Req, bool) {
	p := pointer(req)
	if p == nil || len(m.config) != 1 {
		return req, false // a config behind an embedded pointer is shared with the original
	}
	maxOutput = min(max(maxOutput, 1), math.MaxInt32)
	config := &genai.GenerateContentConfig{}
	if old := read[*genai.GenerateContentConfig](m.config, p); old != nil {
		if old.MaxOutputTokens > 0 && int64(old.MaxOutputTokens) <= maxOutput {
			return req, false
		}
		*config = *old
	}
	config.MaxOutputTokens = int32(maxOutput)
	copied := reflect.New(reflect.TypeFor[Req]().Elem())
	copied.Elem().Set(reflect.ValueOf(req).Elem())
	*(**genai.GenerateContentConfig)(unsafe.Add(copied.UnsafePointer(), m.config[0])) = config
	return copied.Interface().(Req), true
}
