package usage_test

import (
	"fmt"

	"github.com/headgate-go/headgate/usage"
	"google.golang.org/genai"
)

// A thinking model reports its thoughts beside the candidates; a call with
// tools and a cache has more parts still.
func ExampleFromGenAI() {
	u := usage.FromGenAI(&genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount:        1000,
		CachedContentTokenCount: 800,
		ToolUsePromptTokenCount: 50,
		CandidatesTokenCount:    100,
		ThoughtsTokenCount:      400,
		TotalTokenCount:         1550,
	})
	fmt.Println(u)
	// Output: input=1050 cached=800 output=500 thoughts=400 total=1550
}

// Parts that do not add up to the total are charged by the larger reading.
func ExampleFromGenAI_mismatch() {
	u := usage.FromGenAI(&genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount:     100,
		CandidatesTokenCount: 30,
		TotalTokenCount:      150,
	})
	fmt.Println(u)
	fmt.Println("count it:", u.Has(usage.Mismatch))
	// Output:
	// input=100 output=50 total=150 mismatch
	// count it: true
}

// The chunks of a stream carry running totals, some carry none, and the last
// one may have no content at all.
func ExampleUsage_Max() {
	chunks := []*genai.GenerateContentResponseUsageMetadata{
		{PromptTokenCount: 25, CandidatesTokenCount: 1, TotalTokenCount: 26},
		{PromptTokenCount: 25, CandidatesTokenCount: 8, TotalTokenCount: 33},
		nil,
		{PromptTokenCount: 25, CandidatesTokenCount: 15, TotalTokenCount: 40},
	}
	var u usage.Usage
	for _, chunk := range chunks {
		u = u.Max(usage.FromGenAI(chunk))
	}
	fmt.Println(u)
	// Output: input=25 output=15 total=40
}

// Some servers report a total and nothing else.
func ExampleUsage_Split() {
	estimate := usage.Usage{Input: 300, Output: 1024, Flags: usage.Estimated}
	u := usage.FromGenAI(&genai.GenerateContentResponseUsageMetadata{TotalTokenCount: 500})
	fmt.Println(u)
	fmt.Println(u.Split(estimate))
	// Output:
	// input=0 output=500 total=500 total_only
	// input=300 output=200 total=500 estimated
}

func ExampleEstimator_GenAI() {
	contents := genai.Text("Say in one sentence what a headgate is.")
	config := &genai.GenerateContentConfig{MaxOutputTokens: 200}

	fmt.Println(usage.Estimator{}.GenAI(contents, config))
	// Output: input=10 output=200 total=210 estimated
}

func ExampleEstimateText() {
	for _, text := range []string{
		"The river was high that morning.",
		"Река в то утро стояла высоко.",
		"那天早晨河水很高。",
		`{"level":412,"open":true}`,
	} {
		fmt.Println(usage.EstimateText(text), text)
	}
	// Output:
	// 9 The river was high that morning.
	// 11 Река в то утро стояла высоко.
	// 8 那天早晨河水很高。
	// 12 {"level":412,"open":true}
}
