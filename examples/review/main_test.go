package main

import (
	"bytes"
	"context"
	"io"
	"iter"
	"log"
	"net/http"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genai"

	"github.com/headgate-go/headgate/internal/memhttp"
)

// A package that the SDK pulls in starts a goroutine when the program starts.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // as main does
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// memory serves without a network, so that a run takes virtual time only.
func memory(handler http.Handler) (hosted, error) {
	srv := memhttp.New(handler)
	return hosted{srv.Client().Transport, srv.URL, srv.Close}, nil
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

// scripted is a model that answers with a function's results.
type scripted struct {
	answer func(ctx context.Context, req *LLMRequest) (string, error)
}

func (s scripted) Name() string { return "scripted" }

func (s scripted) GenerateContent(ctx context.Context, req *LLMRequest, _ bool) iter.Seq2[*LLMResponse, error] {
	return func(yield func(*LLMResponse, error) bool) {
		text, err := s.answer(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		yield(&LLMResponse{Content: genai.NewContentFromText(text, genai.RoleModel)}, nil)
	}
}
