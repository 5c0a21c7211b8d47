package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // of the limits
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate-go/headgate/budget/quota"
	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
	"github.com/headgate-go/headgate/ratelimited"
	"github.com/headgate-go/headgate/usage"
)

//go:embed limits.yaml
var limitsFile []byte

const (
	// slots are how many calls the gate lets be under way at a time.
	slots = 4
	// maxWait is how long a call may stand in line, and patience how long an answer
	// may take in all.
	maxWait  = 10 * time.Second
	patience = 40 * time.Second
	// answerCost is what an answer costs at least. Whoever has less left is refused
	// before anything is done, rather than in the middle.
	answerCost = usage.Micros(10_000)
)

// appConfig is what an app is made of.
type appConfig struct {
	adminToken string
	host       host // of the double
	latency    time.Duration
	limits     []byte // a file of package quotaconfig
	logger     *slog.Logger

	store, dsn string        // see stores; "" is in memory
	journal    string        // see keepJournal; "" is none
	lease      time.Duration // 0 is the default of package quota
	failOpen   bool
}

// app is the server without its socket.
type app struct {
	handler http.Handler
	board   *board

	agent    agent
	bus      *quota.Bus
	enforcer *quota.Enforcer
	gate     *ratelimited.Gate
	logger   *slog.Logger
	ends     []func(context.Context) error // in reverse order
}

// newApp puts the server together.
func newApp(cfg appConfig) (_ *app, err error) {
	a := &app{logger: cfg.logger}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), grace)
			defer cancel()
			err = errors.Join(err, a.close(ctx))
		}
	}()
	registry := prometheus.NewRegistry()
	if err := a.meter(cfg, registry); err != nil {
		return nil, err
	}
	if err := a.model(cfg, registry); err != nil {
		return nil, err
	}
	a.board = newBoard(a.enforcer, a.gate)
	a.bus.Subscribe(a.board.note)
	a.handler, err = a.routes(cfg, registry)
	return a, err
}

// meter makes what limits people.
func (a *app) meter(cfg appConfig, registry *prometheus.Registry) error {
	limits := cfg.limits
	if cfg.failOpen {
		limits = bytes.ReplaceAll(limits, []byte("\n    scope:"), []byte("\n    failure: open\n    scope:"))
	}
	file, err := quotaconfig.Load(bytes.NewReader(limits))
	if err != nil {
		return err
	}
	retells := newReteller()
	o := storeOptions{at: cfg.dsn, metrics: registry, failOpen: cfg.failOpen, logger: cfg.logger}
	if cfg.journal != "" {
		o.replaced = retells.replaced
	}
	ledger, err := openStore(cmp.Or(cfg.store, "memory"), o)
	if err != nil {
		return err
	}
	a.ends = append(a.ends, ledger.end)
	a.bus = quota.NewBus(quota.BusConfig{Logger: cfg.logger})
	a.ends = append(a.ends, a.bus.Close)
	if cfg.journal != "" {
		j, err := ledger.keepJournal(cfg.journal, retells, cfg.logger)
		if err != nil {
			return err
		}
		a.ends = append(a.ends, retells.end)
		if err := registry.Register(j); err != nil {
			return err
		}
		a.bus.Subscribe(retells.listen)
	}
	if cfg.store == "redis" {
		if err := ledger.leaseBlocks(cfg.logger, registry); err != nil {
			return err
		}
	}
	metrics, err := quota.NewMetrics(quota.MetricsConfig{
		Bus: a.bus, Catalog: file.Catalog, Memory: ledger.memory, Models: []string{modelName},
	})
	if err != nil {
		return err
	}
	if err := registry.Register(metrics); err != nil {
		return err
	}
	a.enforcer, err = quota.New(quota.Config{
		Bus: a.bus, Catalog: file.Catalog, Hooks: metrics.Hooks(), Ledger: kept(ledger), Limits: file.Limits, Logger: cfg.logger, TTL: cfg.lease,
		Turn: quota.TurnLimits{Calls: 5, Room: quota.Max{quota.Money: int64(answerCost)}},
	})
	if err != nil {
		return err
	}
	a.ends = append(a.ends, a.enforcer.Close)
	return nil
}

// model makes the model, with the gate and the enforcer before it.
func (a *app) model(cfg appConfig, registry *prometheus.Registry) error {
	inner, closeModel, err := newModel(cfg.host, cfg.latency)
	if err != nil {
		return err
	}
	a.ends = append(a.ends, func(context.Context) error { closeModel(); return nil })
	a.gate, err = ratelimited.NewGate(ratelimited.Config{
		Slots: slots, MaxWait: new(maxWait), Logger: cfg.logger, Registerer: registry,
		Profile: ratelimited.GeminiAPI(ratelimited.Quota{
			RequestsPerMinute: requestsPerMinute, InputTokensPerMinute: tokensPerMinute,
		}),
	})
	if err != nil {
		return err
	}
	a.ends = append(a.ends, a.gate.Close)
	a.agent.model, err = ratelimited.New(inner, a.gate,
		ratelimited.WithBudgets(a.enforcer.Budget()), ratelimited.WithTypicalOutput(answerTokens))
	return err
}

// routes are what the server serves.
func (a *app) routes(cfg appConfig, registry *prometheus.Registry) (http.Handler, error) {
	limited, err := quota.Middleware(a.enforcer, whoAsks(), quota.MiddlewareConfig{
		Logger: cfg.logger, RequireIdentity: true, Challenge: `Demo header="` + userHeader + `"`,
	})
	if err != nil {
		return nil, err
	}
	admin, err := quota.Admin(quota.AdminConfig{
		Enforcer: a.enforcer, Logger: cfg.logger, Authorize: bearer(cfg.adminToken),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	page(mux)
	mux.Handle("POST /chat", message(limited(http.HandlerFunc(a.chat))))
	mux.HandleFunc("GET /events", a.board.serve)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", a.probe("limits cannot be checked", a.enforcer.Healthy))
	mux.HandleFunc("GET /readyz", a.probe("nobody can be served", a.enforcer.Ready))
	mux.Handle("/admin/", http.StripPrefix("/admin", admin))
	// Pages of other sites must not write to a server on this machine.
	return http.NewCrossOriginProtection().Handler(mux), nil
}

// probe answers whether something is in order.
func (a *app) probe(otherwise string, ask func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := ask(r.Context()); err != nil {
			a.logger.WarnContext(r.Context(), "support: "+otherwise, slog.Any("error", err))
			http.Error(w, otherwise, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// bearer lets in who has a token.
func bearer(token string) func(*http.Request, quota.AdminAccess) error {
	want := sha256.Sum256([]byte("Bearer " + token)) // of the same length for all
	return func(r *http.Request, _ quota.AdminAccess) error {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return quota.ErrUnauthenticated
		}
		return nil
	}
}

// close ends all that newApp has begun, the last first.
func (a *app) close(ctx context.Context) error {
	var errs []error
	for i := len(a.ends) - 1; i >= 0; i-- {
		errs = append(errs, a.ends[i](ctx))
	}
	a.ends = nil
	return errors.Join(errs...)
}
