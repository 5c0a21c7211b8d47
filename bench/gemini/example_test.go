package gemini_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headgate-go/headgate/bench/gemini"
)

// A double with a quota of two requests a minute refuses the third one. The
// minute is a tenth as long, and so is the advised delay.
func Example() {
	double, err := gemini.New(gemini.Config{RPM: 2, TPM: 1000, OutputTokens: 800, Speed: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(double)
	defer server.Close()

	for range 3 {
		resp, err := http.Post(server.URL+"/v1beta/models/gemini-2.5-flash:generateContent", "application/json",
			strings.NewReader(`{"contents":[{"parts":[{"text":"Why do canals have gates?"}]}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	s := double.Stats()
	fmt.Printf("admitted %d, refused %d, output tokens %d\n", s.Admitted, s.Refused, s.OutputTokens)
	for _, u := range s.Windows {
		fmt.Printf("%s: largest use %d of %d\n", u.Name, u.Largest, u.Limit)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
	// admitted 2, refused 1, output tokens 1600
	// rpm: largest use 2 of 2
	// tpm: largest use 14 of 1000
	// rpd: largest use 2 of 0
}

// A brown-out: between the tenth and the twentieth second half of all calls are
// refused without saying why, and one stream in a hundred breaks off.
func ExampleConfig_faults() {
	_, err := gemini.New(gemini.Config{
		Faults: []string{"429-bare@10s-20s,p=0.5", "cut@p=0.01"},
	})
	fmt.Println(err)

	_, err = gemini.New(gemini.Config{Faults: []string{"429-bare@20s-10s"}})
	fmt.Println(err)
	// Output:
	// <nil>
	// fault "429-bare@20s-10s": "20s-10s": must end after it begins
}
