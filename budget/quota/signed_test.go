package quota_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

var (
	oldKey = quota.SigningKey{ID: "2025", Secret: bytes.Repeat([]byte("o"), 32)}
	newKey = quota.SigningKey{ID: "2026", Secret: bytes.Repeat([]byte("n"), 32)}

	signedAt = time.Date(2026, 7, 31, 12, 0, 0, 0, time.UTC)
	carried  = quota.Subject{
		User: "alice", Tenant: "acme", Team: `"ops" & <co>`, Session: "s/1", Plan: "pro",
		Other: map[quota.Scope]string{"project": "Ω"},
	}
)

func signer(t testing.TB, cfg quota.SignerConfig) *quota.Signer {
	t.Helper()
	s, err := quota.NewSigner(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t testing.TB, s *quota.Signer, subject quota.Subject) string {
	t.Helper()
	text, err := s.Sign(subject, signedAt)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSignedSubjectArrivesUnchanged(t *testing.T) {
	t.Parallel()
	s := signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey}})
	for _, subject := range []quota.Subject{carried, {}, {User: "alice"}, {Plan: "pro"}} {
		text := sign(t, s, subject)
		if got, err := s.Verify(text, signedAt); err != nil || !reflect.DeepEqual(got, subject) {
			t.Errorf("%v, %v; want %v", got, err, subject)
		}
		if i := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' || r == '"' }); i >= 0 {
			t.Errorf("%q has a character that a header may not have", text)
		}
	}
}

func TestTamperingOfEveryByteIsRefused(t *testing.T) {
	t.Parallel()
	s := signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey, oldKey}})
	text := sign(t, s, carried)
	refuse := func(what, changed string) {
		if got, err := s.Verify(changed, signedAt); !errors.Is(err, quota.ErrBadSignature) || !got.Nobody() {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	for i := range text {
		for _, c := range []byte("A0-_.=x\n\x00\xff" + string(text[i]^1) + string(text[i]^32)) {
			if c != text[i] {
				refuse(fmt.Sprintf("byte %d is %q", i, c), text[:i]+string([]byte{c})+text[i+1:])
			}
		}
		refuse(fmt.Sprintf("without byte %d", i), text[:i]+text[i+1:])
		refuse(fmt.Sprintf("cut at byte %d", i), text[:i])
		refuse(fmt.Sprintf("line break at byte %d", i), text[:i]+"\n"+text[i:])
	}
	refuse("twice", text+text)
	refuse("longer", text+"A")
	refuse("padded", text+"=")
	refuse("spaces", " "+text)
	refuse("huge", text+strings.Repeat("A", 1<<20))
	refuse("other key named", strings.Replace(text, "2026", "2025", 1))

	// The last character has bits that stand for nothing.
	last := strings.IndexByte(base64Alphabet, text[len(text)-1])
	refuse("unused bits", text[:len(text)-1]+string(base64Alphabet[last^1]))

	parts := strings.Split(text, ".")
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"iat":0,"exp":9999999999,"sub":{"user":"mallory"}}`))
	refuse("another payload", strings.Join([]string{parts[0], parts[1], forged, parts[3]}, "."))
	refuse("no signature", strings.Join([]string{parts[0], parts[1], forged, ""}, "."))
	refuse("no signature", strings.Join([]string{parts[0], parts[1], forged}, "."))
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

func TestSignedSubjectIsValidForItsTTL(t *testing.T) {
	t.Parallel()
	none := time.Duration(0)
	for _, c := range []struct {
		cfg   quota.SignerConfig
		after time.Duration
		ok    bool
	}{
		{quota.SignerConfig{}, 0, true},
		{quota.SignerConfig{}, time.Hour + 30*time.Second - 1, true},
		{quota.SignerConfig{}, time.Hour + 30*time.Second, false},
		{quota.SignerConfig{}, -30 * time.Second, true},
		{quota.SignerConfig{}, -30*time.Second - 1, false},
		{quota.SignerConfig{TTL: 24 * time.Hour}, 24 * time.Hour, true},
		{quota.SignerConfig{TTL: time.Second, Leeway: &none}, 0, true},
		{quota.SignerConfig{TTL: time.Second, Leeway: &none}, time.Second - 1, true},
		{quota.SignerConfig{TTL: time.Second, Leeway: &none}, time.Second, false},
		{quota.SignerConfig{TTL: time.Second, Leeway: &none}, -1, false},
		{quota.SignerConfig{}, 250 * 365 * 24 * time.Hour, false},
	} {
		c.cfg.Keys = []quota.SigningKey{newKey}
		s := signer(t, c.cfg)
		got, err := s.Verify(sign(t, s, carried), signedAt.Add(c.after))
		if (err == nil) != c.ok || !c.ok && (!errors.Is(err, quota.ErrSubjectExpired) || !got.Nobody()) {
			t.Errorf("TTL %v, after %v: %v, %v; want it valid: %v", c.cfg.TTL, c.after, got, err, c.ok)
		}
	}
}

// The keys are changed in three steps, and the two sides take each step at
// different times. No text is refused in between.
func TestKeysCanBeRotatedWithoutRefusals(t *testing.T) {
	t.Parallel()
	steps := []*quota.Signer{
		signer(t, quota.SignerConfig{Keys: []quota.SigningKey{oldKey}}),
		signer(t, quota.SignerConfig{Keys: []quota.SigningKey{oldKey, newKey}}),
		signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey, oldKey}}),
		signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey}}),
	}
	for i, from := range steps {
		for j, to := range steps {
			_, err := to.Verify(sign(t, from, carried), signedAt)
			if apart := max(i-j, j-i); apart <= 1 && err != nil {
				t.Errorf("from step %d to step %d: %v", i, j, err)
			}
		}
	}
	if _, err := steps[3].Verify(sign(t, steps[0], carried), signedAt); !errors.Is(err, quota.ErrBadSignature) {
		t.Errorf("signed with a key that was taken out: %v", err)
	}
}

func TestTextForAnotherAudienceIsRefused(t *testing.T) {
	t.Parallel()
	keys := []quota.SigningKey{newKey}
	for _, pair := range [][2]string{{"", "a"}, {"a", "b"}, {"queue", "queue2"}, {"1:", ""}} {
		from := signer(t, quota.SignerConfig{Keys: keys, Audience: pair[0]})
		to := signer(t, quota.SignerConfig{Keys: keys, Audience: pair[1]})
		if _, err := to.Verify(sign(t, from, carried), signedAt); !errors.Is(err, quota.ErrBadSignature) {
			t.Errorf("from audience %q to %q: %v", pair[0], pair[1], err)
		}
		if _, err := from.Verify(sign(t, from, carried), signedAt); err != nil {
			t.Errorf("audience %q: %v", pair[0], err)
		}
	}
}

func TestLargestSubjectFits(t *testing.T) {
	t.Parallel()
	id := strings.Repeat(`"`, quota.MaxID) // written as two bytes in JSON
	s := quota.Subject{User: id, Team: id, Tenant: id, Session: id, Plan: id, Other: map[quota.Scope]string{}}
	for i := range quota.MaxOther {
		s.Other[quota.Scope(strings.Repeat("x", 31)+string(rune('a'+i)))] = id
	}
	key := quota.SigningKey{ID: strings.Repeat("k", 32), Secret: newKey.Secret}
	sig := signer(t, quota.SignerConfig{Keys: []quota.SigningKey{key}})
	text := sign(t, sig, s)
	if got, err := sig.Verify(text, signedAt); len(text) > quota.MaxSigned || err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}

func TestBadSubjectIsNotSigned(t *testing.T) {
	t.Parallel()
	s := signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey}})
	text, err := s.Sign(quota.Subject{User: "a\nb"}, signedAt)
	if text != "" || err == nil || !strings.Contains(err.Error(), "user") {
		t.Errorf("%q, %v", text, err)
	}
	text, err = new(quota.Signer).Sign(carried, signedAt)
	if text != "" || err == nil {
		t.Errorf("a signer without keys signs %q, %v", text, err)
	}
	if _, err := new(quota.Signer).Verify(sign(t, s, carried), signedAt); !errors.Is(err, quota.ErrBadSignature) {
		t.Errorf("a signer without keys: %v", err)
	}
}

func TestNewSignerNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	negative, long, odd := -time.Second, 2*time.Hour, time.Second/2
	secret := string(bytes.Repeat([]byte("n"), 8))
	for want, cfg := range map[string]quota.SignerConfig{
		"Keys has no key":                 {},
		`Keys[0].ID "" is not`:            {Keys: []quota.SigningKey{{Secret: newKey.Secret}}},
		`Keys[0].ID "a.b" is not`:         {Keys: []quota.SigningKey{{ID: "a.b", Secret: newKey.Secret}}},
		`Keys[0].ID "kkkk`:                {Keys: []quota.SigningKey{{ID: strings.Repeat("k", 33), Secret: newKey.Secret}}},
		"Keys[1].Secret has 31 bytes":     {Keys: []quota.SigningKey{newKey, {ID: "x", Secret: newKey.Secret[:31]}}},
		`Keys[1].ID "2026" is that of`:    {Keys: []quota.SigningKey{newKey, newKey}},
		"Audience has 129 bytes":          {Keys: []quota.SigningKey{newKey}, Audience: strings.Repeat("x", 129)},
		"TTL -1s is not":                  {Keys: []quota.SigningKey{newKey}, TTL: negative},
		"TTL 500ms is not":                {Keys: []quota.SigningKey{newKey}, TTL: odd},
		"TTL 8784h0m1s is not":            {Keys: []quota.SigningKey{newKey}, TTL: 366*24*time.Hour + time.Second},
		"Leeway -1s is not":               {Keys: []quota.SigningKey{newKey}, Leeway: &negative},
		"Leeway 2h0m0s is not":            {Keys: []quota.SigningKey{newKey}, Leeway: &long},
		"Leeway 500ms is not":             {Keys: []quota.SigningKey{{ID: "x"}}, Leeway: &odd},
		"Keys[0].Secret has 0 bytes, bel": {Keys: []quota.SigningKey{{ID: "x"}}, Leeway: &odd},
	} {
		s, err := quota.NewSigner(cfg)
		if s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %s", s, err, want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error %v has a secret in it", err)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	cfg := quota.SignerConfig{Keys: []quota.SigningKey{newKey}}
	s := signer(t, cfg)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, x := range []any{newKey, cfg, s, *s, struct{ S *quota.Signer }{s}} {
			out := fmt.Sprintf(verb, x)
			for _, secret := range []string{"nnnn", "110 110", "6e6e", "0x6e, 0x6e"} {
				if strings.Contains(out, secret) {
					t.Errorf("%s of a %T shows the secret: %s", verb, x, out)
				}
			}
		}
	}
}

func TestSignerKeepsItsOwnCopyOfTheSecret(t *testing.T) {
	t.Parallel()
	key := quota.SigningKey{ID: "2026", Secret: bytes.Clone(newKey.Secret)}
	s := signer(t, quota.SignerConfig{Keys: []quota.SigningKey{key}})
	clear(key.Secret)
	if _, err := s.Verify(sign(t, signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey}}), carried), signedAt); err != nil {
		t.Error(err)
	}
}

func TestSignedHeaderCarriesTheWholeSubject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := signer(t, quota.SignerConfig{Keys: []quota.SigningKey{newKey}, TTL: time.Minute})
		text, err := s.Sign(carried, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		chain := quota.Chain(quota.Signed(s, ""), quota.Header("X-User-Id"))
		resolve := func(headers ...string) (quota.Subject, bool, error) {
			return chain.Resolve(request(headers...))
		}
		if got, ok, err := resolve(quota.SubjectHeader, text, "X-User-Id", "mallory"); err != nil || !ok || !reflect.DeepEqual(got, carried) {
			t.Errorf("%v, %v, %v; want %v", got, ok, err, carried)
		}
		if got, ok, err := resolve("X-User-Id", "bob"); err != nil || !ok || got.User != "bob" {
			t.Errorf("without the header: %v, %v, %v; want what the chain has otherwise", got, ok, err)
		}
		// What claims to be signed and is not is an error, and not nobody.
		for _, headers := range [][]string{
			{quota.SubjectHeader, ""},
			{quota.SubjectHeader, text + "x"},
			{quota.SubjectHeader, text, quota.SubjectHeader, text},
		} {
			if got, ok, err := resolve(append(headers, "X-User-Id", "bob")...); !errors.Is(err, quota.ErrBadSignature) || ok || !got.Nobody() {
				t.Errorf("%.40q: %v, %v, %v", headers, got, ok, err)
			}
		}
		time.Sleep(2 * time.Minute)
		if _, ok, err := resolve(quota.SubjectHeader, text); !errors.Is(err, quota.ErrSubjectExpired) || ok {
			t.Errorf("later: %v, %v", ok, err)
		}
		var r quota.Resolver = quota.Signed(nil, "X-Subject")
		if _, ok, err := r.Resolve(request(http.CanonicalHeaderKey("x-subject"), text)); err == nil || ok {
			t.Errorf("without a signer: %v, %v", ok, err)
		}
	})
}

func FuzzVerify(f *testing.F) {
	s := signer(f, quota.SignerConfig{Keys: []quota.SigningKey{newKey}})
	text := sign(f, s, carried)
	f.Add(text)
	f.Add(sign(f, s, quota.Subject{}))
	f.Add("v1.2026..")
	f.Add("v1.2026.e30.")
	f.Add("....")
	f.Fuzz(func(t *testing.T, changed string) {
		got, err := s.Verify(changed, signedAt)
		if err == nil && changed != text && !got.Nobody() {
			t.Fatalf("%q is taken for %v", changed, got)
		}
		if err != nil && (!got.Nobody() || got.Plan != "") {
			t.Fatalf("%v comes with the error %v", got, err)
		}
	})
}
