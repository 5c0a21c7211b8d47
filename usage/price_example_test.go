package usage_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/usage"
)

// A budget in money needs prices that somebody has looked up, and an answer for
// models that nobody has. See package pricefile for lists in files.
func ExampleCatalog() {
	tokens := func(dollars usage.Micros) usage.Rate { return usage.PerMillion(dollars * 1_000_000) }
	catalog, err := usage.NewCatalog(usage.CatalogConfig{Lists: []usage.PriceList{{
		AsOf: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		Models: []usage.Model{{
			Name: "gemini-3-pro-preview",
			Prices: []usage.Price{{
				Rates: usage.Rates{Input: tokens(2), CachedInput: usage.PerMillion(200_000), Output: tokens(12)},
				Tiers: []usage.Tier{{
					Above: 200_000,
					Rates: usage.Rates{Input: tokens(4), CachedInput: usage.PerMillion(400_000), Output: tokens(18)},
				}},
			}},
		}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}

	now := time.Date(2026, 12, 7, 0, 0, 0, 0, time.UTC)
	price, err := catalog.Price("models/gemini-3-pro-preview", now, usage.Standard)
	if err != nil {
		fmt.Println(err)
		return
	}
	charge, err := price.Charge(usage.Usage{Input: 250_000, CachedInput: 240_000, Output: 1500, Thoughts: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, item := range charge.Items {
		if item.Tokens > 0 {
			fmt.Printf("%-12v %7d at %v  %v\n", item.Part, item.Tokens, item.Rate, item.Amount)
		}
	}
	fmt.Println("total", charge.Total, "by the prices above", charge.Above, "tokens")
	fmt.Println("prices are", catalog.Age(now).Hours()/24, "days old")

	_, err = catalog.Price("gemini-3-pr0-preview", now, usage.Standard)
	fmt.Println(err, errors.Is(err, usage.ErrUnknownModel))
	// Output:
	// input          10000 at $4.00  $0.04
	// cached_input  240000 at $0.40  $0.096
	// output           500 at $18.00  $0.009
	// thoughts        1000 at $18.00  $0.018
	// total $0.163 by the prices above 200000 tokens
	// prices are 7 days old
	// usage: no price for model "gemini-3-pr0-preview" true
}

// Credits count a call for plans and limits without showing anybody prices.
func ExampleCredits() {
	credits := usage.Credits{
		Version:     "2026-11",
		Input:       usage.Thousandths(1000), // a token is a credit
		CachedInput: usage.Thousandths(100),
		Output:      usage.Thousandths(5000), // thoughts weigh the same
	}
	n, err := credits.Cost(usage.Usage{Input: 1050, CachedInput: 800, Output: 500, Thoughts: 400})
	fmt.Println(n, err)
	// Output: 2830 <nil>
}
