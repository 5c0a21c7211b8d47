package httpgate_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/ratelimited/httpgate"
)

// streamed is an answer of many events, of the size and with the fields that
// Gemini sends: running totals of usage in each.
func streamed(events int) []string {
	text := strings.Repeat("water and stone, ", 12) // 48 tokens, about
	list := make([]string, events)
	for i := range list {
		finish := ""
		if i == events-1 {
			finish = `,"finishReason":"STOP"`
		}
		list[i] = event("", fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%q}],"role":"model"}%s,"index":0}],`+
			`"usageMetadata":{"promptTokenCount":1200,"candidatesTokenCount":%d,"totalTokenCount":%d},"modelVersion":"gemini-2.5-flash"}`,
			text, finish, 48*(i+1), 1200+48*(i+1)))
	}
	return list
}

// eachRead is a body that gives one event with each Read, as they come.
type eachRead struct {
	events []string
	next   int
}

func (e *eachRead) Read(p []byte) (int, error) {
	if e.next == len(e.events) {
		return 0, io.EOF
	}
	n := copy(p, e.events[e.next])
	e.next++
	return n, nil
}

func (e *eachRead) Close() error { return nil }

// discard is a response writer that throws all away.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) Flush()                      {}

// BenchmarkStream shows what stands between a client and a provider's stream of
// 100 events: nothing, httputil.ReverseProxy, and this package. In memory, what is
// between is all that there is; over loopback, the proxy is the second server that
// it is in practice.
func BenchmarkStream(b *testing.B) {
	events := streamed(100)
	body := `{"contents":[{"role":"user","parts":[{"text":"` + strings.Repeat("tell me of water and stone ", 40) + `"}]}]}`
	const path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
	request := func(base string) *http.Request {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, base+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		return req
	}
	report := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)), "ns/event")
	}
	read := func(b *testing.B, rt http.RoundTripper, base string) {
		buf := make([]byte, 32<<10)
		b.ReportAllocs()
		for b.Loop() {
			resp, err := rt.RoundTrip(request(base))
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			resp.Body.Close()
		}
		report(b)
	}
	gated := func(base http.RoundTripper) http.RoundTripper {
		g := newGate(b, ratelimited.Config{Slots: 100, Profile: ratelimited.GeminiAPI(ratelimited.Quota{InputTokensPerMinute: 1 << 40})})
		return newTransport(b, base, g, httpgate.Config{})
	}
	silent := log.New(io.Discard, "", 0)

	memory := roundTripper(func(req *http.Request) (*http.Response, error) {
		req.Body.Close()
		return &http.Response{
			Status: "200 OK", StatusCode: 200, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
			Body: &eachRead{events: events}, Request: req,
		}, nil
	})
	b.Run("memory/bare", func(b *testing.B) { read(b, memory, "http://x.invalid") })
	b.Run("memory/ReverseProxy", func(b *testing.B) {
		to, _ := url.Parse("http://x.invalid")
		proxy := &httputil.ReverseProxy{Transport: memory, ErrorLog: silent, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
		b.ReportAllocs()
		for b.Loop() {
			proxy.ServeHTTP(discard{http.Header{}}, request("http://x.invalid"))
		}
		report(b)
	})
	b.Run("memory/httpgate", func(b *testing.B) { read(b, gated(memory), "http://x.invalid") })

	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	}))
	defer upstream.Close()
	to, _ := url.Parse(upstream.URL)
	rt := &http.Transport{}
	defer rt.CloseIdleConnections()
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: rt, ErrorLog: silent, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
	defer proxy.Close()
	b.Run("loopback/bare", func(b *testing.B) { read(b, rt, upstream.URL) })
	b.Run("loopback/ReverseProxy", func(b *testing.B) { read(b, rt, proxy.URL) })
	b.Run("loopback/httpgate", func(b *testing.B) { read(b, gated(rt), upstream.URL) })
}

// BenchmarkEstimate shows what reading a request's body costs.
func BenchmarkEstimate(b *testing.B) {
	text := strings.Repeat("The keeper let a little more water through. ", 2000)
	for name, content := range map[string]string{
		"text":  `{"type":"text","text":"` + text + `"}`,
		"image": `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0KGgoA", 80_000) + `"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			body := `{"model":"gpt-5","messages":[{"role":"user","content":[` + content + `]}]}`
			g := newGate(b, ratelimited.Config{Slots: 1})
			rt := newTransport(b, roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
			}), g, httpgate.Config{})
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPost, chatURL, strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
	}
}
