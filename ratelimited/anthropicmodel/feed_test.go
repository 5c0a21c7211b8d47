package anthropicmodel_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/headgate-go/headgate/bench/anthropic"
	"github.com/headgate-go/headgate/internal/memhttp"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/anthropicmodel"
)

// Another program has used most of the quota. The headers of the first answer
// tell, and no call after it is refused.
func TestTheHeadersOfAnAnswerKeepTheNextCallsWithinWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, limit := range []struct {
		name   string
		double anthropic.Config
		quota  ratelimited.AnthropicQuota
		others int
		width  int // calls of the gate at a time
	}{
		{"requests", anthropic.Config{RPM: 60}, ratelimited.AnthropicQuota{RequestsPerMinute: 60, Unpaced: true}, 49, 20},
		{"input tokens", anthropic.Config{InputTPM: 20_000}, ratelimited.AnthropicQuota{InputTokensPerMinute: 20_000}, 13, 20},
		{"output tokens", anthropic.Config{OutputTPM: 20_000}, ratelimited.AnthropicQuota{OutputTokensPerMinute: 20_000}, 70, 1},
	} {
		t.Run(limit.name, func(t *testing.T) {
			both(t, func(t *testing.T, stream bool) {
				refused := func(t *testing.T, strip bool) (n int64) {
					synctest.Test(t, func(t *testing.T) {
						double, err := anthropic.New(limit.double)
						if err != nil {
							t.Fatal(err)
						}
						srv := memhttp.New(double)
						defer srv.Close()
						others := newClient(srv, option.WithMaxRetries(0))
						client := others
						if strip {
							client = newClient(srv, withHTTP(func(r *http.Request) (*http.Response, error) {
								resp, err := srv.Client().Transport.RoundTrip(r)
								for name := range resp.Header {
									if strings.HasPrefix(name, "Anthropic-Ratelimit-") {
										resp.Header.Del(name)
									}
								}
								return resp, err
							}))
						}
						gate, err := ratelimited.NewGate(ratelimited.Config{Slots: 30, Profile: ratelimited.Anthropic(limit.quota)})
						if err != nil {
							t.Fatal(err)
						}
						m, err := ratelimited.New(newModel(t, client, anthropicmodel.WithTypicalOutput(256)), gate)
						if err != nil {
							t.Fatal(err)
						}
						req := says(strings.Repeat("word", 1000))
						call := func() {
							if got := collect(m.GenerateContent(t.Context(), req, stream)); got.errs != nil && !strip {
								t.Error(got.errs)
							}
						}
						call() // what such calls use is known now
						params := req.Params
						params.Model = modelName
						for range limit.others {
							if _, err := others.Messages.New(t.Context(), params); err != nil {
								t.Fatal(err)
							}
						}
						call() // what is left is known now
						var workers sync.WaitGroup
						for range limit.width {
							workers.Go(func() {
								for range 20 / limit.width {
									call()
								}
							})
						}
						workers.Wait()
						n = double.Stats().Refused
					})
					return n
				}
				if n := refused(t, false); n != 0 {
					t.Errorf("%d calls were refused although the headers told", n)
				}
				if n := refused(t, true); n == 0 {
					t.Error("none was refused without the headers: this test proves nothing")
				}
			})
		})
	}
}
