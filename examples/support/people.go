package main

import (
	"net/http"

	"github.com/headgate-go/headgate/budget/quota"
)

// people are who has an account, in the order in which they are shown. What company
// somebody is of, and what plan they have, only the server says: a header that claims
// it would be believed by nobody.
var people = []quota.Subject{
	{Tenant: "acme", User: "alice"},
	{Tenant: "globex", User: "bob"},
	{Tenant: "acme", User: "carol", Plan: "pro"},
}

// userHeader names the user. Any client can send any header: this is for a demo, and
// for servers behind a gateway that sets it. Others take the user from the session
// cookie or token that they have verified; see quota.Principal.
const userHeader = "X-User-Id"

// whoAsks finds the account of a request. It knows nobody who has none, so that made-up
// names are no way to have a new budget each day.
func whoAsks() quota.Resolver {
	header := quota.Header(userHeader)
	return quota.ResolverFunc(func(r *http.Request) (quota.Subject, bool, error) {
		claimed, ok, err := header.Resolve(r)
		if err != nil || !ok {
			return quota.Subject{}, false, err
		}
		for _, p := range people {
			if p.User == claimed.User {
				return p, true, nil
			}
		}
		return quota.Subject{}, false, nil
	})
}
