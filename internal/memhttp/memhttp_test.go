package memhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate-go/headgate/internal/memhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestManySlowRequestsTakeVirtualTimeOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s", r.URL.Path, body)
		}))
		defer srv.Close()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				resp, err := srv.Client().Post(fmt.Sprintf("%s/%d", srv.URL, i), "text/plain", strings.NewReader("hello"))
				if err != nil {
					t.Errorf("request %d: %v", i, err)
					return
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if want := fmt.Sprintf("/%d hello", i); err != nil || string(got) != want {
					t.Errorf("request %d: got %q, %v; want %q", i, got, err, want)
				}
			})
		}
		wg.Wait()
		if got := time.Since(start); got != time.Hour {
			t.Errorf("50 parallel requests of one hour took %v of virtual time, want 1h", got)
		}
	})
}

func TestFlushedLinesArriveWhenTheyAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				time.Sleep(time.Second)
				fmt.Fprintln(w, "line")
				_ = http.NewResponseController(w).Flush()
			}
		}))
		defer srv.Close()
		start := time.Now()
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := 0
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			lines++
			if got, want := time.Since(start), time.Duration(lines)*time.Second; got != want {
				t.Errorf("line %d arrived after %v, want %v", lines, got, want)
			}
		}
		if lines != 3 {
			t.Errorf("got %d lines, want 3", lines)
		}
	})
}

func TestCancellingARequestCancelsItsHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			left <- r.Context().Err()
		}))
		defer srv.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := srv.Client().Do(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled request: got error %v, want deadline exceeded", err)
		}
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("handler's context: got %v, want cancelled", err)
		}
	})
}

func TestCloseEndsRunningHandlersAndRefusesMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entered, returned := make(chan struct{}), false
		srv := memhttp.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			time.Sleep(time.Minute)
			returned = true
		}))
		failed := make(chan error, 1)
		go func() {
			_, err := srv.Client().Get(srv.URL)
			failed <- err
		}()
		<-entered
		srv.Close()
		if !returned {
			t.Error("Close returned before the handler did")
		}
		if err := <-failed; err == nil {
			t.Error("the request of an ended handler succeeded")
		}
		srv.Close()
		if _, err := srv.Client().Get(srv.URL); !errors.Is(err, memhttp.ErrClosed) {
			t.Errorf("request after Close: got error %v, want ErrClosed", err)
		}
	})
}
