package quota

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"
)

// ErrBadSignature is matched by the error of [Signer.Verify] for text that no key
// of the signer has signed, whatever the reason.
var ErrBadSignature = errors.New("quota: subject is not signed by a known key")

// ErrSubjectExpired is matched by the error of [Signer.Verify] for text that was
// signed, but is not valid at the time.
var ErrSubjectExpired = errors.New("quota: signed subject is not valid at this time")

// SubjectHeader is the name of the header or message attribute that carries a
// signed subject, where nothing else is agreed on.
const SubjectHeader = "Headgate-Subject"

const (
	// DefaultSignedTTL is how long a signed subject is valid.
	DefaultSignedTTL = time.Hour
	// DefaultSignedLeeway is by how much the clocks of the two sides may differ.
	DefaultSignedLeeway = 30 * time.Second
	// MaxSigned is the largest length of a signed subject, in bytes. All valid
	// subjects fit.
	MaxSigned = 6 << 10

	maxSignedTTL    = 366 * 24 * time.Hour
	maxSignedLeeway = time.Hour
	minSecret       = 32 // bytes, as long as the hash is (RFC 2104 §3)
	maxKeyID        = 32
	maxAudience     = 128
	signedVersion   = "v1"
)

// SigningKey is a secret that both sides know, and the name by which text says
// which one it was signed with.
type SigningKey struct {
	// ID is 1 to 32 letters, digits, "-" and "_" of ASCII, and no secret.
	ID string
	// Secret is at least 32 random bytes.
	Secret []byte
}

// String hides the secret.
func (k SigningKey) String() string { return fmt.Sprintf("SigningKey(%q)", k.ID) }

// GoString hides the secret.
func (k SigningKey) GoString() string { return k.String() }

// SignerConfig configures a [Signer].
type SignerConfig struct {
	// Keys are all keys that are accepted. The first one signs. To change the key,
	// add the new one at the end everywhere; then put it first; and when everything
	// that the old one has signed is expired, take that out. At least one.
	Keys []SigningKey
	// Audience says what the text is for, such as "billing queue". Text that was
	// signed for another audience is refused. Both sides have it in their
	// configuration; it does not travel. At most 128 bytes; defaults to "".
	Audience string
	// TTL is how long a signed subject is valid, in full seconds from when it was
	// signed: at least as long as work waits in the queue. At most 366 days. 0 is
	// [DefaultSignedTTL].
	TTL time.Duration
	// Leeway is how much later than it says text is accepted, and earlier, because
	// the clocks of two machines differ. At most an hour. Unset is
	// [DefaultSignedLeeway].
	Leeway *time.Duration
}

// Signer carries a subject to another process and back, over a queue, an
// agent-to-agent call or an HTTP request, so that what is done there counts for
// the same subject. The text is not encrypted: who sees it can read the ids and the
// plan, but not change them. Until it expires, who has it can use it, so it does
// not go to clients.
//
// The text is "v1.", the key's id, ".", the subject with the times of signing and
// expiry as JSON in base64url, "." and the HMAC-SHA256 (RFC 2104) of the audience
// and all the text before it, in base64url. It has only characters that a header
// may have.
//
// The zero Signer has no key: it signs nothing, and refuses everything. A Signer
// never changes, and is safe for concurrent use.
type Signer struct {
	keys     []signerKey
	audience string
	ttl      int64 // in seconds
	leeway   int64 // in seconds
}

// signerKey has the secret in a function only, where nothing prints it.
type signerKey struct {
	id   string
	hmac func() hash.Hash
}

// signedSubject is what travels.
type signedSubject struct {
	Issued  int64   `json:"iat"` // seconds since 1970, as in RFC 7519 §4.1
	Expires int64   `json:"exp"`
	Subject Subject `json:"sub"`
}

// NewSigner returns an error that names every field of the config that is wrong.
// It never contains a secret.
func NewSigner(cfg SignerConfig) (*Signer, error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("quota: SignerConfig."+format, args...))
	}
	s := &Signer{audience: cfg.Audience}
	if len(cfg.Keys) == 0 {
		fail("Keys has no key")
	}
	for i, k := range cfg.Keys {
		if !validKeyID(k.ID) {
			fail("Keys[%d].ID %.40q is not 1 to %d letters, digits, - and _", i, k.ID, maxKeyID)
		}
		if len(k.Secret) < minSecret {
			fail("Keys[%d].Secret has %d bytes, below %d", i, len(k.Secret), minSecret)
		}
		if s.key(k.ID) != nil {
			fail("Keys[%d].ID %.40q is that of another key, too", i, k.ID)
		}
		secret := bytes.Clone(k.Secret)
		s.keys = append(s.keys, signerKey{k.ID, func() hash.Hash { return hmac.New(sha256.New, secret) }})
	}
	if len(cfg.Audience) > maxAudience {
		fail("Audience has %d bytes, above %d", len(cfg.Audience), maxAudience)
	}
	ttl := cfg.TTL
	if ttl == 0 {
		ttl = DefaultSignedTTL
	}
	if ttl < time.Second || ttl > maxSignedTTL || ttl%time.Second != 0 {
		fail("TTL %v is not full seconds from 1s to %v", cfg.TTL, maxSignedTTL)
	}
	leeway := DefaultSignedLeeway
	if cfg.Leeway != nil {
		leeway = *cfg.Leeway
	}
	if leeway < 0 || leeway > maxSignedLeeway || leeway%time.Second != 0 {
		fail("Leeway %v is not full seconds from 0s to %v", leeway, maxSignedLeeway)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s.ttl, s.leeway = int64(ttl/time.Second), int64(leeway/time.Second)
	return s, nil
}

func validKeyID(id string) bool {
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxKeyID
}

// key is the key with an id, or nil.
func (s *Signer) key(id string) *signerKey {
	for i := range s.keys {
		if s.keys[i].id == id {
			return &s.keys[i]
		}
	}
	return nil
}

// Sign returns the subject as text that is valid for the signer's TTL, counted
// from the full second before now. The error is that of a subject that is not
// valid; see [Subject.Validate]. The subject may be nobody.
func (s *Signer) Sign(subject Subject, now time.Time) (string, error) {
	if len(s.keys) == 0 {
		return "", errors.New("quota: a Signer that NewSigner has not made has no key")
	}
	if err := subject.Validate(); err != nil {
		return "", err
	}
	var payload strings.Builder
	encoder := json.NewEncoder(&payload)
	encoder.SetEscapeHTML(false) // it would make text up to six times as long
	issued := now.Unix()
	if err := encoder.Encode(signedSubject{issued, issued + s.ttl, subject}); err != nil {
		return "", fmt.Errorf("quota: signing a subject: %w", err)
	}
	key := &s.keys[0]
	text := signedVersion + "." + key.id + "." + base64.RawURLEncoding.EncodeToString([]byte(payload.String()))
	return text + "." + s.mac(key, text), nil
}

// Verify returns the subject that was signed. The error matches
// [ErrBadSignature] or [ErrSubjectExpired], or says what is wrong with the
// subject; it never contains the text. Text is valid until the instant at which
// it expires, and not at that instant, give or take the leeway.
func (s *Signer) Verify(text string, now time.Time) (Subject, error) {
	if len(text) > MaxSigned {
		return Subject{}, ErrBadSignature
	}
	version, rest, _ := strings.Cut(text, ".")
	keyID, rest, _ := strings.Cut(rest, ".")
	payload, mac, _ := strings.Cut(rest, ".")
	key := s.key(keyID)
	if version != signedVersion || key == nil {
		return Subject{}, ErrBadSignature
	}
	// The encoded forms are compared: base64 has several texts for some bytes.
	want := s.mac(key, text[:len(text)-len(rest)+len(payload)])
	if !hmac.Equal([]byte(mac), []byte(want)) {
		return Subject{}, ErrBadSignature
	}
	// From here on it is what a holder of the key has written.
	var signed signedSubject
	data, err := base64.RawURLEncoding.DecodeString(payload)
	if err == nil {
		err = json.Unmarshal(data, &signed)
	}
	if err != nil {
		return Subject{}, fmt.Errorf("quota: signed subject cannot be read: %w", err)
	}
	issued, expires := time.Unix(signed.Issued-s.leeway, 0), time.Unix(signed.Expires+s.leeway, 0)
	if now.Before(issued) || !now.Before(expires) {
		return Subject{}, ErrSubjectExpired
	}
	if err := signed.Subject.Validate(); err != nil {
		return Subject{}, err
	}
	return signed.Subject, nil
}

// mac is the HMAC of text for the signer's audience. What is before the text says
// what the secret is used for, so that it may also be used for something else.
func (s *Signer) mac(key *signerKey, text string) string {
	h := key.hmac()
	fmt.Fprintf(h, "headgate subject %d:%s.", len(s.audience), s.audience)
	io.WriteString(h, text)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Signed takes the whole subject, with its plan, from a request header in which
// another process has put what [Signer.Sign] returned; "" is [SubjectHeader]. A
// request without the header gets no ids. One whose header is not valid now, or
// came twice, gets an error.
func Signed(s *Signer, name string) Resolver {
	if name == "" {
		name = SubjectHeader
	}
	return ResolverFunc(func(r *http.Request) (Subject, bool, error) {
		values := r.Header.Values(name)
		switch {
		case len(values) == 0:
			return Subject{}, false, nil
		case len(values) > 1:
			return Subject{}, false, fmt.Errorf("%w: header %.40q came %d times", ErrBadSignature, name, len(values))
		case s == nil:
			return Subject{}, false, errors.New("quota: Signed has no signer")
		}
		subject, err := s.Verify(values[0], time.Now())
		return subject, err == nil && subject.known(), err
	})
}
