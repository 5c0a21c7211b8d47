package quota_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// The subject is set once, at the edge of the server, and is there wherever the
// context goes.
func ExampleWithSubject() {
	ctx := quota.WithSubject(context.Background(), quota.Subject{Tenant: "acme", User: "alice", Plan: "pro"})

	inner, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, ok := quota.SubjectFrom(inner)
	fmt.Println(s.User, s.Plan, ok)
	// Output: alice pro true
}

// User ids live within their tenant, and an id with odd characters is no other's.
func ExampleHierarchy_Key() {
	h := quota.DefaultHierarchy()
	for _, s := range []quota.Subject{
		{Tenant: "acme", User: "alice"},
		{Tenant: "globex", User: "alice"},
		{Tenant: "acme/user=alice"},
	} {
		for _, scope := range []quota.Scope{quota.Tenant, quota.User} {
			if key, ok := h.Key(s, scope); ok {
				fmt.Println(scope, key)
			}
		}
	}
	// Output:
	// tenant tenant=acme
	// user tenant=acme/user=alice
	// tenant tenant=globex
	// user tenant=globex/user=alice
	// tenant tenant=acme%2Fuser%3Dalice
}

// Who is logged in has their own budget. Other visitors have one for each address.
func ExampleChain() {
	address, err := quota.ClientIP(quota.ClientIPConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	login := quota.Principal(func(r *http.Request) (quota.Subject, bool) {
		user, password, ok := r.BasicAuth()
		return quota.Subject{User: user}, ok && password == "correct horse"
	})
	who := quota.Chain(quota.Explicit(), login, address)

	r := httptest.NewRequest(http.MethodPost, "/chat", nil)
	r.RemoteAddr = "[2001:db8::15]:49152"
	visitor, _, _ := who.Resolve(r)
	r.SetBasicAuth("alice", "correct horse")
	alice, _, _ := who.Resolve(r)
	fmt.Println(visitor.User)
	fmt.Println(alice.User)
	// Output:
	// ip:2001:db8::/64
	// alice
}

// What a worker does with a task from a queue counts for the subject that has put
// it there.
func ExampleSigner() {
	signer, err := quota.NewSigner(quota.SignerConfig{
		Keys:     []quota.SigningKey{{ID: "2026-08", Secret: []byte("32 random bytes from your vault.")}},
		Audience: "report queue",
		TTL:      12 * time.Hour,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := time.Date(2026, 8, 1, 9, 0, 0, 0, time.UTC)
	attribute, err := signer.Sign(quota.Subject{Tenant: "acme", User: "alice"}, sent)
	if err != nil {
		fmt.Println(err)
		return
	}

	s, err := signer.Verify(attribute, sent.Add(time.Hour))
	fmt.Println(s.Tenant, s.User, err)
	_, err = signer.Verify(attribute, sent.Add(24*time.Hour))
	fmt.Println(err)
	// Output:
	// acme alice <nil>
	// quota: signed subject is not valid at this time
}
