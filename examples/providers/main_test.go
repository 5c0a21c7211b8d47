package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	geminidouble "github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/internal/memhttp"
)

// A package that genai pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // as main does
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// memory serves without a network, so that a run takes virtual time only.
func memory(handler http.Handler) (hosted, error) {
	srv := memhttp.New(handler)
	return hosted{srv.Client().Transport, srv.URL, srv.Close}, nil
}

// nowhere is a host for what must not come as far as that.
func nowhere(http.Handler) (hosted, error) { panic("a server was started") }

// statistician is a double, of which all three have the same counters.
type statistician interface{ Stats() geminidouble.Stats }

// remembered is a host that remembers the doubles that it serves.
func remembered(host host, doubles *[]statistician) host {
	return func(handler http.Handler) (hosted, error) {
		*doubles = append(*doubles, handler.(statistician))
		return host(handler)
	}
}

// invoked is what the program did.
type invoked struct {
	code           int
	stdout, stderr string
}

// invoke runs the program.
func invoke(ctx context.Context, host host, args ...string) invoked {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, &stdout, &stderr, host)
	return invoked{code, stdout.String(), stderr.String()}
}

// decode reads what -json printed.
func decode(t *testing.T, stdout string) jsonReport {
	t.Helper()
	var out jsonReport
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	return out
}
