package pricefile_test

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/headgate-go/headgate/usage"
	"github.com/headgate-go/headgate/usage/pricefile"
)

// A file of our own, to be kept beside the program's configuration.
func ExampleParse() {
	file, err := os.Open("testdata/prices.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	list, report, err := pricefile.Parse(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report)
	catalog, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{list}})
	if err != nil {
		fmt.Println(err)
		return
	}
	price, err := catalog.Price("gpt-5.4-2026-10-01", time.Date(2026, 12, 7, 0, 0, 0, 0, time.UTC), usage.Flex)
	fmt.Println(price.Model, price.Variant, price.Input, price.Output, err)
	// Output:
	// 6 models, 9 prices; 0 models skipped, 0 notes on others
	// gpt-5.4 flex $1.25 $7.50 <nil>
}

// All mistakes of a file are named at once.
func ExampleParse_mistakes() {
	_, _, err := pricefile.Parse(strings.NewReader(`
version: 1
as_of: 2026-11-30
models:
  - name: m-1
    prices:
      - input: 2.5e-06
        tiers:
          - above: 0
            inptu: 5
`))
	fmt.Println(err)
	// Output:
	// pricefile: line 7: models[0].prices[0].input: usage: price "2.5e-06" has more than six decimals; is it in dollars per million, or should it be per million?
	// pricefile: line 10: models[0].prices[0].tiers[0]: unknown key "inptu"; known are above, input, cached_input, cache_write, output, thoughts
}

// A list of others, with the date of its download and a look at what it left out.
func ExampleLiteLLM() {
	file, err := os.Open("testdata/litellm.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer file.Close()
	list, report, err := pricefile.LiteLLM(file, pricefile.Options{
		AsOf:      time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		Providers: []string{"gem", "bin"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(list.Models), "models")
	for _, note := range report.Skipped {
		fmt.Println("skipped", note)
	}
	// Output:
	// 2 models
	// skipped binary: input_cost_per_token: more than six decimals in dollars per million
	// skipped no-object: not an object
}
