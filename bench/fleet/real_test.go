package main

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate-go/headgate/bench/gemini"
	"github.com/headgate-go/headgate/bench/internal/fleet"
	"github.com/headgate-go/headgate/internal/servers"
)

// realVariable is for how long the next test runs, in whole minutes such as "4m".
const realVariable = "HEADGATE_FLEET"

// Four processes of the example, a real Redis and the double over real connections do as
// well as the same fleet simulated: with everybody waiting the provider lets in within 5 %
// as many tokens, and refuses nothing.
func TestARealFleetDoesAsWellAsASimulatedOne(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv(realVariable))
	if err != nil {
		t.Skipf("takes minutes: set %s=4m to run it", realVariable)
	}
	const (
		replicas = 4
		tokens   = 200 // of a call in the mean
		perCall  = 10  // calls per second that the quota has room for
		load     = 1.5
	)
	cfg := fleet.Config{
		Replicas: replicas, Mode: fleet.Leased, Shape: fleet.Steady, Rate: perCall * load / replicas, Load: load,
		Tokens: tokens, TokensSigma: 0.5, Length: lasts, Seed: 1,
	}
	log, err := fleet.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	simulated := int64(0)
	for i := range log.Calls {
		if log.Calls[i].Counted >= 0 {
			simulated += log.Calls[i].Tokens
		}
	}

	rpm, tpm := log.Config.RequestsPerMinute(), log.Config.TokensPerMinute()
	double, err := gemini.New(gemini.Config{RPM: rpm, TPM: tpm, Latency: 3600 * time.Millisecond, TTFTShare: 1.0 / 6, LatencySigma: 0.5, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(double)
	defer srv.Close()
	binary := filepath.Join(t.TempDir(), "fleet")
	if out, err := exec.Command("go", "build", "-o", binary, "../../examples/fleet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	redis := servers.StartRedis(t, servers.RedisOptions{})
	time.Sleep(7 * time.Second) // a server that was just started may have lost a quota: see redisbudget
	var running sync.WaitGroup
	began := time.Now()
	for i := range replicas {
		running.Go(func() {
			var stderr bytes.Buffer
			c := exec.Command(binary, "-redis", redis.Addr(), "-double", srv.URL, "-name", fmt.Sprint("replica-", i),
				"-rpm", fmt.Sprint(rpm), "-tpm", fmt.Sprint(tpm), "-tokens", fmt.Sprint(2*tokens), "-headroom", "1",
				"-slots", fmt.Sprint(log.Config.Slots), "-users", "60", "-for", lasts.String())
			if c.Stderr = &stderr; c.Run() != nil {
				t.Errorf("replica %d failed: %s", i, &stderr)
			}
		})
	}
	time.Sleep(time.Until(began.Add(lasts)))
	s := double.Stats()
	running.Wait()

	ratio := float64(s.InputTokens) / float64(simulated)
	t.Logf("%d tokens were let in, of %d in the simulation: %.3f; %.3f of the quota", s.InputTokens, simulated, ratio, float64(s.InputTokens)/(lasts.Minutes()*float64(tpm)))
	if ratio < 0.95 || ratio > 1.05 {
		t.Errorf("%d tokens were let in, %d in the simulation", s.InputTokens, simulated)
	}
	if all := double.Stats(); all.Refused != 0 {
		t.Errorf("%d of %d requests were refused: %v", all.Refused, all.Requests, all.RefusedBy)
	} else {
		for _, w := range all.Windows {
			if t.Logf("%s: at most %d of %d in one window", w.Name, w.Largest, w.Limit); w.Share > 1 {
				t.Errorf("%d of %d %s were used in one window", w.Largest, w.Limit, w.Name)
			}
		}
	}
}
