package quota_test

import (
	"fmt"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// A customer in Havana is billed on the last day of each month.
func ExampleWindow() {
	havana, err := time.LoadLocation("America/Havana")
	if err != nil {
		fmt.Println(err)
		return
	}
	month := quota.Month.Anchored(31).In(havana)
	span := month.Span(time.Date(2024, 2, 15, 12, 0, 0, 0, havana))
	fmt.Println(month)
	fmt.Println("since", span.Start.In(havana))
	fmt.Println("until", span.End.In(havana))
	// Output:
	// month:31@America/Havana
	// since 2024-01-31 00:00:00 -0500 CST
	// until 2024-02-29 00:00:00 -0500 CST
}

// In Havana the clock went from 1:00 back to midnight on 3 November 2024. That
// day had one beginning, and 25 hours.
func ExampleWindow_Span() {
	w, err := quota.ParseWindow("day@America/Havana")
	if err != nil {
		fmt.Println(err)
		return
	}
	span := w.Span(time.Date(2024, 11, 3, 12, 0, 0, 0, time.UTC))
	fmt.Println(span.Start.Format(time.RFC3339), span.End.Sub(span.Start))
	// Output: 2024-11-03T04:00:00Z 25h0m0s
}

// Each tenant's day follows the clock of the tenant.
func ExampleWindow_Resolve() {
	day := quota.Day.InTenantZone()
	for _, zone := range []string{"Asia/Tokyo", "America/Los_Angeles"} {
		l, err := time.LoadLocation(zone)
		if err != nil {
			fmt.Println(err)
			return
		}
		w := day.Resolve(l)
		fmt.Println(w, "resets at", w.Span(time.Date(2026, 7, 31, 12, 0, 0, 0, time.UTC)).End.Format(time.RFC3339))
	}
	// Output:
	// day@Asia/Tokyo resets at 2026-07-31T15:00:00Z
	// day@America/Los_Angeles resets at 2026-08-01T07:00:00Z
}
