package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/genai"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/ratelimited/genaimodel"
	"github.com/headgate-go/headgate/retry"
)

// modelName is the model, as limits.yaml has its price.
const modelName = "demo-model"

// Quota of the double, and so of the gate.
const (
	requestsPerMinute = 60
	tokensPerMinute   = 60_000
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
	transport := &http.Transport{MaxIdleConnsPerHost: slots}
	return hosted{transport, "http://" + listener.Addr().String(), func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	}}, nil
}

// newModel is a model of the real SDK that asks a double, which is served by host.
func newModel(host host, latency time.Duration) (model *genaimodel.Model, closeModel func(), err error) {
	double, err := gemini.New(gemini.Config{
		RPM: requestsPerMinute, TPM: tokensPerMinute,
		Latency: latency, LatencySigma: 0.2, TTFTShare: 0.3, ChunkTokens: 20,
		Answer: reply,
	})
	if err != nil {
		return nil, nil, err
	}
	at, err := host(double)
	if err != nil {
		return nil, nil, err
	}
	client, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		APIKey: "none", Backend: genai.BackendGeminiAPI,
		HTTPClient:  &http.Client{Transport: &retry.Transport{Base: at.transport}},
		HTTPOptions: genai.HTTPOptions{BaseURL: at.url},
	})
	if err == nil {
		model, err = genaimodel.New(client, modelName)
	}
	if err != nil {
		at.close()
		return nil, nil, err
	}
	return model, at.close, nil
}

// reply has the double say something that fits. What it does not say of answerTokens
// it has thought, so that all answers cost the same.
func reply(req gemini.Request, a *gemini.Answer) {
	a.Text = replyTo(lastText(req.Body))
	a.Output = (utf8.RuneCountInString(a.Text) + gemini.RunesPerToken - 1) / gemini.RunesPerToken
	a.Thoughts = answerTokens - a.Output
}

// lastText is the last text of a request to the API.
func lastText(body []byte) string {
	var req struct {
		Contents []struct {
			Parts []struct{ Text string }
		}
	}
	if json.Unmarshal(body, &req) != nil || len(req.Contents) == 0 {
		return ""
	}
	parts := req.Contents[len(req.Contents)-1].Parts
	if len(parts) == 0 {
		return ""
	}
	return parts[len(parts)-1].Text
}

// replies are what the double knows about support. The first that has a word of the
// question is the answer.
var replies = []struct {
	words []string
	text  string
}{
	{[]string{"parcel", "order", "deliver", "ship"},
		"Your parcel left our warehouse this morning and should be with you in two days. You will get a mail with a link to follow it."},
	{[]string{"refund", "money", "pay", "invoice", "charge"},
		"Refunds go back to the card that you paid with and take three to five working days. The invoice is in your account under Orders."},
	{[]string{"password", "login", "log in", "account", "sign"},
		"Please choose \"Forgot password\" on the sign-in page. The link that we mail to you is good for an hour."},
	{[]string{"return", "broken", "exchange", "wrong", "size"},
		"I am sorry to hear that. You can send it back within 30 days; print the label in your account under Returns, and it costs you nothing."},
}

const otherReply = "Thank you for writing to us. I have noted your question, and a colleague will look into it today. Is there anything else that I can do?"

// replyTo is the answer to a question.
func replyTo(question string) string {
	question = strings.ToLower(question)
	for _, r := range replies {
		for _, word := range r.words {
			if strings.Contains(question, word) {
				return r.text
			}
		}
	}
	return otherReply
}

// errNoAnswer says that the model has ended without saying anything.
var errNoAnswer = errors.New("the model gave no answer")
