package usage

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"
	"pgregory.net/rapid"
)

// texts draws texts that mix what the scan reads by steps with
// what it reads one character at a time.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		pieces := []string{" ", "  ", "        ", "word", "x", "42", "{\"k\":", "\n\t", "é", "слово", "中", "😀", "한"}
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 20).Draw(t, "pieces"), "")
	})
}

func TestATextCostsTheSumOfItsPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := texts().Draw(t, "a"), texts().Draw(t, "b")
		want := textCost(a) + textCost(b)
		if strings.HasSuffix(a, " ") && strings.HasPrefix(b, " ") {
			want -= spaceRun
		}
		if got := textCost(a + b); got != want {
			t.Fatalf("%q costs %d, %q and %q cost %d", a+b, got, a, b, want)
		}
		if got := textCost([]byte(a + b)); got != want {
			t.Fatalf("%q costs %d as bytes, %d as a string", a+b, got, want)
		}
	})
}

func TestEveryCharacterCostsSomethingAndAtMostItsBytes(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= 0x10FFFF; r++ {
		s := string(r)
		if cost := textCost(s); cost <= 0 || cost > int64(4*token) {
			t.Fatalf("U+%04X costs %d", r, cost)
		}
	}
}

func TestSaturatingArithmetic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want int64 }{
		{0, math.MaxInt64, 0},
		{math.MaxInt64, 0, 0},
		{3, 4, 12},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64, 2, math.MaxInt64},
		{1 << 32, 1 << 31, math.MaxInt64},
		{1 << 31, 1 << 31, 1 << 62},
	} {
		if got := satMul(c.a, c.b); got != c.want {
			t.Errorf("%d × %d = %d, want %d", c.a, c.b, got, c.want)
		}
	}
	for _, c := range []struct{ cost, want int64 }{
		{0, 0}, {1, 1}, {token, 1}, {token + 1, 2}, {math.MaxInt64, math.MaxInt64/token + 1},
	} {
		if got := tokensOf(c.cost); got != c.want {
			t.Errorf("a cost of %d is %d tokens, want %d", c.cost, got, c.want)
		}
	}
}

// costOf is the cost of a value in whole tokens, and the work left after it.
func costOf(v any) (tokens int64, work int) {
	m := meter{work: maxWork}
	m.value(v, 0)
	return tokensOf(m.cost), m.work
}

func TestTheWalkOverAValueIsBounded(t *testing.T) {
	t.Parallel()
	type list struct {
		Next, Other *list
		Text        string
	}
	type embedded struct {
		*embedded
		A int
	}
	type pointer *pointer
	type recursive map[string]recursive
	long := strings.Repeat("long ", 100_000)

	cyclicMap := map[string]any{"text": long}
	cyclicMap["a"], cyclicMap["b"] = cyclicMap, cyclicMap
	cyclicSlice := make([]any, 3)
	for i := range cyclicSlice {
		cyclicSlice[i] = cyclicSlice
	}
	cyclicList := &list{Text: long}
	cyclicList.Next, cyclicList.Other = cyclicList, cyclicList
	cyclicEmbedded := &embedded{A: 1}
	cyclicEmbedded.embedded = cyclicEmbedded
	var cyclicPointer pointer
	cyclicPointer = &cyclicPointer
	cyclicRecursive := recursive{}
	cyclicRecursive["a"], cyclicRecursive["b"] = cyclicRecursive, cyclicRecursive
	cyclicSchema := &genai.Schema{Description: long, Enum: make([]string, 10_000)}
	cyclicSchema.Items = cyclicSchema
	cyclicSchema.AnyOf = []*genai.Schema{cyclicSchema, cyclicSchema}
	cyclicSchema.Properties = map[string]*genai.Schema{"p": cyclicSchema}
	cyclicSchema.Default, cyclicSchema.Example = cyclicMap, cyclicSchema
	var deep any = "bottom"
	for range 100_000 {
		deep = []any{deep}
	}

	for name, v := range map[string]any{
		"map":                        cyclicMap,
		"slice":                      cyclicSlice,
		"struct":                     cyclicList,
		"embedded struct":            cyclicEmbedded,
		"pointer":                    cyclicPointer,
		"recursive map type":         cyclicRecursive,
		"schema":                     cyclicSchema,
		"depth":                      deep,
		"slice of nothing":           make([]struct{}, math.MaxInt),
		"array of nothing, embedded": struct{ A [1 << 30]struct{} }{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			tokens, work := costOf(v)
			// The walk may overshoot by what it was in the middle of.
			if most := 1 << 20; work < -most {
				t.Errorf("the work of %d was exceeded by %d", maxWork, -work)
			}
			if tokens <= 0 {
				t.Errorf("%d tokens", tokens)
			}
			t.Log(tokens, "tokens,", time.Since(start))
		})
	}
}

func TestDepthEndsTheWalk(t *testing.T) {
	t.Parallel()
	nest := func(depth int) (tokens int64) {
		var v any = "bottom"
		for range depth {
			v = []any{v}
		}
		tokens, _ = costOf(v)
		return tokens
	}
	if a, b := nest(maxDepth/2), nest(maxDepth); b <= a {
		t.Errorf("%d levels have %d tokens, %d have %d", maxDepth/2, a, maxDepth, b)
	}
	if a, b := nest(2*maxDepth), nest(1000*maxDepth); a != b {
		t.Errorf("%d levels have %d tokens, %d have %d", 2*maxDepth, a, 1000*maxDepth, b)
	}
}

func TestStructsCostWhatTheirJSONShows(t *testing.T) {
	t.Parallel()
	type base struct {
		Name string `json:"name"`
		Note string `json:"note,omitempty"`
	}
	type flat struct {
		Name  string `json:"name"`
		Level int    `json:"level"`
	}
	type embedding struct {
		base
		Level int `json:"level"`
	}
	type pointing struct {
		*base
		Level  int    `json:"level"`
		Zero   *int   `json:"zero,omitempty"`
		Secret string `json:"-"`
		hidden string
	}
	want, _ := costOf(flat{"north", 7})
	for name, v := range map[string]any{
		"pointer":          &flat{"north", 7},
		"map":              map[string]any{"name": "north", "level": 7},
		"embedded":         embedding{base{Name: "north"}, 7},
		"embedded pointer": pointing{&base{Name: "north"}, 7, nil, "secret", "hidden"},
	} {
		if got, _ := costOf(v); got != want {
			t.Errorf("%s: %d tokens, as a flat struct %d", name, got, want)
		}
	}
	level, _ := costOf(map[string]any{"level": 7})
	if got, _ := costOf(pointing{Level: 7}); got != level {
		t.Errorf("a nil embedded pointer: %d tokens, without it %d", got, level)
	}
}

func TestWhatIsBeyondTheBoundsIsCounted(t *testing.T) {
	t.Parallel()
	short, long := make([]struct{}, 1_000_000), make([]struct{}, 2_000_000)
	a, work := costOf(short)
	if work > 0 {
		t.Fatalf("a million elements leave work of %d", work)
	}
	if b, _ := costOf(long); b < a*3/2 {
		t.Errorf("%d tokens for a million elements, %d for two", a, b)
	}
	text := strings.Repeat("text ", maxWork/5+1)
	a, _ = costOf([]any{text})
	if b, _ := costOf([]any{text, text}); b < a*3/2 {
		t.Errorf("%d tokens for one long text, %d for two", a, b)
	}
}

func TestValuesOfEveryTypeAreTaken(t *testing.T) {
	t.Parallel()
	var (
		nilMap     map[string]any
		nilSlice   []any
		nilPointer *int
		nilSchema  *genai.Schema
		nilFunc    func()
	)
	type unexported struct{ hidden, also string }
	for _, v := range []any{
		nil, nilMap, nilSlice, nilPointer, nilSchema, nilFunc, func() {}, make(chan int), complex(1, 2),
		true, int8(-1), uint64(math.MaxUint64), uintptr(1), float32(0.5), math.NaN(), math.Inf(-1),
		"", []byte("bytes"), [3]byte{1, 2, 3}, unexported{"a", "b"}, &unexported{}, reflect.ValueOf(1),
		map[int]string{1: "a"}, map[[2]int]bool{{1, 2}: true}, map[any]any{nil: nil, 1.5: "x"},
		time.Time{}, time.Second, struct{}{}, []struct{ A any }{{A: nil}},
	} {
		m := meter{work: maxWork}
		m.value(v, 0)
		if m.cost < 0 || m.cost > 100*token {
			t.Errorf("%T costs %d", v, m.cost)
		}
	}
}

// The scan by steps is a shortcut for adding up characters.
func TestATextCostsTheSumOfItsCharacters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := texts().Draw(t, "text")
		want, before := int64(0), rune(0)
		for _, r := range s {
			if r < 0x80 {
				want += int64(asciiCost[r])
			} else {
				want += runeCost(r)
			}
			if r == ' ' && before == ' ' {
				want -= spaceRun
			}
			before = r
		}
		if got := textCost(s); got != want {
			t.Fatalf("%q costs %d, its characters cost %d", s, got, want)
		}
	})
}
