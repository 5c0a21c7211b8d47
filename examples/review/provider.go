package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

// A host serves a handler and says how to reach it. The program has loopback.
type host func(http.Handler) (hosted, error)

// hosted is a handler that is served.
type hosted struct {
	transport http.RoundTripper
	url       string
	close     func()
}

// loopback serves on a free port of this machine.
func loopback(handler http.Handler) (hosted, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return hosted{}, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // returns when the server is closed
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	return hosted{transport, "http://" + listener.Addr().String(), func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	}}, nil
}

// provider is where calls are sent to.
type provider struct {
	double *gemini.Server // nil for the real API
	llm    *geminiLLM
	close  func()
}

// Shape of the calls at the double. Latencies spread by a fifth, and a call
// says its first word early, as the real ones do.
const (
	latencySigma = 0.2
	firstShare   = 0.05
	chunkTokens  = 40
)

// config is the configuration of a double with the quotas of the options.
func (o *options) config() gemini.Config {
	return gemini.Config{
		Latency: o.latency, LatencySigma: latencySigma, TTFTShare: firstShare,
		OutputTokens: outputTokens, ChunkTokens: chunkTokens,
		RPM: o.rpm, TPM: o.tpm, Window: o.window, Seed: o.seed, Speed: o.speed,
	}
}

// serve makes a double and the model that reaches it.
func serve(host host, model string, cfg gemini.Config) (*provider, error) {
	double, err := gemini.New(cfg)
	if err != nil {
		return nil, err
	}
	h, err := host(double)
	if err != nil {
		return nil, err
	}
	llm, err := newLLM(model, &genai.ClientConfig{
		APIKey: "any", Backend: genai.BackendGeminiAPI,
		HTTPClient:  &http.Client{Transport: &retry.Transport{Base: h.transport}},
		HTTPOptions: genai.HTTPOptions{BaseURL: h.url},
	})
	if err != nil {
		h.close()
		return nil, err
	}
	return &provider{double: double, llm: llm, close: h.close}, nil
}

// genuine is the Gemini API.
func (o *options) genuine() (*provider, error) {
	key := os.Getenv("GEMINI_API_KEY")
	if key == "" {
		return nil, errors.New("the environment variable GEMINI_API_KEY is not set")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1000
	llm, err := newLLM(o.model, &genai.ClientConfig{
		APIKey: key, Backend: genai.BackendGeminiAPI,
		HTTPClient: &http.Client{Transport: &retry.Transport{Base: transport}},
	})
	return &provider{llm: llm, close: transport.CloseIdleConnections}, err
}

func newLLM(model string, cfg *genai.ClientConfig) (*geminiLLM, error) {
	client, err := genai.NewClient(context.Background(), cfg)
	if err != nil {
		return nil, errors.New("the client of the Gemini API cannot be made") // its own error holds the key
	}
	m, err := genaimodel.New(client, model)
	return &geminiLLM{model: m}, err
}
