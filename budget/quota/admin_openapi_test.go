package quota_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-go/headgate/budget/quota"
)

// schema is a schema of the description, as far as the description uses them. A word
// that is not here makes the test fail.
type schema struct {
	Ref         string             `json:"$ref"`
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Format      string             `json:"format"`
	Enum        []string           `json:"enum"`
	Pattern     string             `json:"pattern"`
	Minimum     *float64           `json:"minimum"`
	Maximum     *float64           `json:"maximum"`
	MinLength   int                `json:"minLength"`
	MaxLength   int                `json:"maxLength"`
	MaxProps    int                `json:"maxProperties"`
	Items       *schema            `json:"items"`
	Required    []string           `json:"required"`
	Properties  map[string]*schema `json:"properties"`
	Names       *schema            `json:"propertyNames"`
	Additional  json.RawMessage    `json:"additionalProperties"`
}

type parameter struct {
	Ref         string  `json:"$ref"`
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Description string  `json:"description"`
	Style       string  `json:"style"`
	Explode     bool    `json:"explode"`
	Required    bool    `json:"required"`
	AllowEmpty  bool    `json:"allowEmptyValue"`
	Schema      *schema `json:"schema"`
}

type content map[string]struct {
	Schema *schema `json:"schema"`
}

type response struct {
	Ref         string         `json:"$ref"`
	Description string         `json:"description"`
	Content     content        `json:"content"`
	Headers     map[string]any `json:"headers"`
}

type operation struct {
	ID          string      `json:"operationId"`
	Summary     string      `json:"summary"`
	Description string      `json:"description"`
	Parameters  []parameter `json:"parameters"`
	Body        *struct {
		Required bool    `json:"required"`
		Content  content `json:"content"`
	} `json:"requestBody"`
	Responses map[string]response `json:"responses"`
}

type description struct {
	OpenAPI    string                           `json:"openapi"`
	Info       map[string]any                   `json:"info"`
	Servers    []map[string]string              `json:"servers"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components struct {
		Schemas    map[string]*schema   `json:"schemas"`
		Parameters map[string]parameter `json:"parameters"`
		Responses  map[string]response  `json:"responses"`
	} `json:"components"`
}

// describe reads the description and refuses what it does not know.
func describe(t testing.TB) *description {
	t.Helper()
	var d description
	dec := json.NewDecoder(strings.NewReader(string(quota.OpenAPI())))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return &d
}

func (d *description) schema(s *schema) *schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.Components.Schemas[name]
	}
	return s
}

func (d *description) parameter(p parameter) parameter {
	if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
		return d.Components.Parameters[name]
	}
	return p
}

func (d *description) response(r response) response {
	if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
		return d.Components.Responses[name]
	}
	return r
}

// check returns what about a value is not as a schema has it.
func (d *description) check(path string, s *schema, v any) error {
	if s = d.schema(s); s == nil {
		return fmt.Errorf("%s: the schema does not exist", path)
	}
	switch s.Type {
	case "string":
		text, ok := v.(string)
		if !ok || len(s.Enum) > 0 && !slices.Contains(s.Enum, text) || len(text) < s.MinLength || s.MaxLength > 0 && len(text) > s.MaxLength {
			return fmt.Errorf("%s: %v is not as described", path, v)
		}
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(text) {
			return fmt.Errorf("%s: %q is not as described", path, text)
		}
		if s.Format == "date-time" {
			_, err := time.Parse(time.RFC3339, text)
			return err
		}
	case "integer":
		n, ok := v.(json.Number)
		f, err := n.Float64()
		if !ok || err != nil || strings.ContainsAny(n.String(), ".eE") || s.Minimum != nil && f < *s.Minimum || s.Maximum != nil && f > *s.Maximum {
			return fmt.Errorf("%s: %v is not as described", path, v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return fmt.Errorf("%s: %v is no boolean", path, v)
		}
	case "array":
		all, ok := v.([]any)
		if !ok {
			return fmt.Errorf("%s: %v is no array", path, v)
		}
		for i, item := range all {
			if err := d.check(fmt.Sprintf("%s[%d]", path, i), s.Items, item); err != nil {
				return err
			}
		}
	case "object":
		all, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v is no object", path, v)
		}
		for _, name := range s.Required {
			if _, ok := all[name]; !ok {
				return fmt.Errorf("%s.%s is missing", path, name)
			}
		}
		for name, value := range all {
			if s.Names != nil {
				if err := d.check(path+" (name)", s.Names, name); err != nil {
					return err
				}
			}
			of := s.Properties[name]
			if of == nil {
				switch string(s.Additional) {
				case "": // any
					continue
				case "false":
					return fmt.Errorf("%s.%s is not described", path, name)
				}
				of = &schema{}
				if err := json.Unmarshal(s.Additional, of); err != nil {
					return err
				}
			}
			if err := d.check(path+"."+name, of, value); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s: type %q is none that is known here", path, s.Type)
	}
	return nil
}

func TestTheDescriptionHasExactlyTheRoutes(t *testing.T) {
	t.Parallel()
	d := describe(t)
	if d.OpenAPI != "3.1.0" || d.Info["title"] == "" || d.Info["version"] == "" {
		t.Errorf("openapi %q, info %v", d.OpenAPI, d.Info)
	}
	described := 0
	for _, ops := range d.Paths {
		described += len(ops)
	}
	routes := quota.AdminRoutes()
	if described != len(routes) {
		t.Errorf("%d operations are described, there are %d", described, len(routes))
	}
	for _, r := range routes {
		op := d.Paths[r.Path][strings.ToLower(r.Method)]
		if op == nil {
			t.Errorf("%s %s is not described", r.Method, r.Path)
			continue
		}
		if op.ID != string(r.Action) || op.Summary == "" {
			t.Errorf("%s is described as %q, %q", r.Path, op.ID, op.Summary)
		}
		var params []string
		for _, p := range op.Parameters {
			p = d.parameter(p)
			params = append(params, p.Name)
			if p.In != "query" || p.Description == "" || p.Schema == nil || p.Required != slices.Contains(r.Params, p.Name) {
				t.Errorf("%s: parameter %+v", r.Path, p)
			}
		}
		var want []string
		if r.Subject {
			want = append(slices.Clone(quota.AdminSubjectParams), "other")
		}
		if want = append(want, r.Params...); !slices.Equal(slices.Sorted(slices.Values(params)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s has the parameters %q, want %q", r.Path, params, want)
		}
		if (op.Body != nil) != (r.Body != nil) {
			t.Errorf("%s: whether there is a body is not as described", r.Path)
		} else if op.Body != nil {
			s := d.schema(op.Body.Content["application/json"].Schema)
			members := slices.Sorted(maps.Keys(s.Properties))
			if want := slices.Sorted(slices.Values(r.Body)); !op.Body.Required || string(s.Additional) != "false" ||
				!slices.Equal(members, want) || !slices.Equal(slices.Sorted(slices.Values(s.Required)), want) {
				t.Errorf("%s has a body with %q, want %q", r.Path, members, want)
			}
		}
	}
}

// jsonFields are the names of a type's members, and those that are always there.
func jsonFields(typ reflect.Type) (all, always []string) {
	for f := range fieldsOf(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, name)
		if options == "" {
			always = append(always, name)
		}
	}
	slices.Sort(all)
	slices.Sort(always)
	return all, always
}

func fieldsOf(typ reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

// kindOf is the type that the JSON of a Go type has.
func kindOf(typ reflect.Type) string {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Implements(reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()) {
		return "string"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	}
	return typ.String()
}

func TestTheDescriptionHasExactlyTheMembers(t *testing.T) {
	t.Parallel()
	d := describe(t)
	requests := []string{"TopUp", "ScopeOnly"} // read by hand; their members are checked with the routes
	simple := []string{"Unit", "Scope", "Mode", "Amounts"}
	for name := range d.Components.Schemas {
		if quota.AdminTypes[name] == nil && !slices.Contains(requests, name) && !slices.Contains(simple, name) {
			t.Errorf("the schema %q stands for nothing", name)
		}
	}
	for name, typ := range quota.AdminTypes {
		s := d.Components.Schemas[name]
		if s == nil {
			t.Errorf("there is no schema %q", name)
			continue
		}
		all, always := jsonFields(typ)
		if got := slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, all) || string(s.Additional) != "false" {
			t.Errorf("%s has the members %q, the type %q", name, got, all)
		}
		if got := slices.Sorted(slices.Values(s.Required)); !slices.Equal(got, always) {
			t.Errorf("%s requires %q, the type always has %q", name, got, always)
		}
		for f := range fieldsOf(typ) {
			member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[member]
			if p == nil {
				continue // told
			}
			if p.Ref == "" && p.Description == "" {
				t.Errorf("%s.%s has no description", name, member)
			}
			if got, want := d.schema(p).Type, kindOf(f.Type); got != want {
				t.Errorf("%s.%s is described as %q, and is %q", name, member, got, want)
			}
		}
	}
}

func TestTheDescriptionHasExactlyTheNames(t *testing.T) {
	t.Parallel()
	d := describe(t)
	var units, spent []string
	for u := range quota.Unit(quota.Units) {
		units = append(units, u.String())
		if u != quota.ConcurrentTurns {
			spent = append(spent, u.String())
		}
	}
	texts := func(all ...interface{ MarshalText() ([]byte, error) }) (names []string) {
		for _, v := range all {
			text, err := v.MarshalText()
			if err != nil {
				t.Error(err)
			}
			names = append(names, string(text))
		}
		return names
	}
	reasons := []string{}
	for _, r := range []quota.Reason{
		quota.ReasonExhausted, quota.ReasonRate, quota.ReasonConcurrency, quota.ReasonBusy, quota.ReasonNeverFits, quota.ReasonTurnCalls,
		quota.ReasonTurnCost, quota.ReasonNoSubject, quota.ReasonUnpriced, quota.ReasonUnavailable, quota.ReasonClosed,
	} {
		reasons = append(reasons, string(r))
	}
	for path, want := range map[string][]string{
		"Unit":           units,
		"TopUp.unit":     spent,
		"Mode":           texts(quota.Observe, quota.Enforce),
		"Limit.missing":  texts(quota.Deny, quota.Skip),
		"Limit.failure":  texts(quota.Auto, quota.Open, quota.Closed),
		"Limit.hold":     texts(quota.P95, quota.Mean, quota.Worst),
		"Problem.reason": reasons,
		"Problem.stage":  {quota.Admission.String(), quota.MidTurn.String()},
		"Problem.unit":   units,
		"Status.unit":    units,
	} {
		name, member, inner := strings.Cut(path, ".")
		s := d.Components.Schemas[name]
		if inner {
			s = d.schema(s.Properties[member])
		}
		if got := slices.Sorted(slices.Values(s.Enum)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("%s is one of %q, want %q", path, got, want)
		}
	}
	if top := d.Components.Schemas["TopUp"].Properties["amount"]; *top.Maximum != quota.MaxAmount {
		t.Errorf("the largest amount is described as %v", *top.Maximum)
	}
	for _, p := range append(slices.Clone(quota.AdminSubjectParams), "other") {
		s := d.Components.Parameters[p].Schema
		if p == "other" {
			if s.MaxProps != quota.MaxOther {
				t.Errorf("other has at most %d ids", s.MaxProps)
			}
		} else if s.MaxLength != quota.MaxID {
			t.Errorf("%s has at most %d bytes", p, s.MaxLength)
		}
	}
}

// Every answer of the real handler is as described, with the status and the type.
func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	d := describe(t)
	limits := plans
	limits.Limits = append(slices.Clone(limits.Limits), quota.Limit{
		Name: "soft", Scope: quota.Team, Window: quota.Week, Max: quota.Max{quota.Tokens: 1000, quota.Calls: 9},
		Soft: true, Ceiling: quota.Max{quota.Tokens: 2000}, Missing: quota.Skip, Mode: quota.Observe,
	})
	w := newWorld(t, limits)
	w.call(onPlan("alice", "pro"), tokens(5_000))
	k := w.desk()
	verify := func(method, target, body string, got *httptest.ResponseRecorder) {
		t.Helper()
		path, _, _ := strings.Cut(target, "?")
		res, ok := d.Paths[path][method].Responses[fmt.Sprint(got.Code)]
		if !ok {
			t.Errorf("%s: status %d is not described: %s", target, got.Code, got.Body)
			return
		}
		res = d.response(res)
		media := got.Header().Get("Content-Type")
		c, ok := res.Content[media]
		if !ok || res.Description == "" {
			t.Errorf("%s: status %d with Content-Type %q is not described", target, got.Code, media)
			return
		}
		for name := range res.Headers {
			if got.Header().Get(name) == "" {
				t.Errorf("%s: status %d has no %s", target, got.Code, name)
			}
		}
		var v any
		dec := json.NewDecoder(got.Body)
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Errorf("%s: %v", target, err)
		} else if err := d.check(path, c.Schema, v); err != nil {
			t.Errorf("%s: status %d: %v", target, got.Code, err)
		}
		if body != "" && got.Code == 200 {
			var sent any
			dec := json.NewDecoder(strings.NewReader(body))
			dec.UseNumber()
			if err := dec.Decode(&sent); err != nil {
				t.Error(err)
			} else if err := d.check(path+" body", d.Paths[path][method].Body.Content["application/json"].Schema, sent); err != nil {
				t.Errorf("%s: what is accepted is not as described: %v", target, err)
			}
		}
	}
	const who = alice + "&plan=pro"
	gets := []string{"/status" + who, "/limits" + who, "/preview" + who + "&as=", "/openapi.json", "/status", "/status?x=y"}
	posts := [][2]string{
		{"/topup" + who, `{"scope":"user","unit":"money","amount":1}`}, {"/topup" + who, `{"scope":"session","unit":"money","amount":1}`},
		{"/topup" + who, `{"scope":"user","unit":"turns","amount":1}`}, {"/topup" + who, `{`}, {"/topup" + who, strings.Repeat(" ", 17<<10)},
		{"/reset" + who, `{"scope":"team"}`}, {"/reset" + who, `{"scope":"global"}`}, {"/erase" + who, `{"scope":"user"}`},
	}
	for _, verdict := range []error{nil, quota.ErrUnauthenticated, fmt.Errorf("no")} {
		k.verdict = verdict
		for _, target := range gets {
			verify("get", target, "", k.ask(target, ""))
		}
		for _, p := range posts {
			verify("post", p[0], p[1], k.ask(p[0], p[1]))
		}
	}
	broken := newWorld(t, plans, func(c *quota.Config) { c.Ledger = mute{c.Ledger} }).desk()
	verify("get", "/status"+who, "", broken.ask("/status"+who, ""))
	verify("post", "/reset"+who, "", broken.ask("/reset"+who, `{"scope":"user"}`))

	// And so is what a client gets that is denied.
	for _, got := range []*httptest.ResponseRecorder{
		newWorld(t, quota.LimitsConfig{Limits: []quota.Limit{{Scope: quota.User, Window: quota.Day, Max: quota.Max{quota.Turns: 0}}}}).serve(served, quota.MiddlewareConfig{}).get("alice"),
		newWorld(t, turnRate).serve(served, quota.MiddlewareConfig{}).get(""),
		newWorld(t, turnRate, func(c *quota.Config) { c.Ledger = deaf{c.Ledger} }).serve(served, quota.MiddlewareConfig{}).get("alice"),
	} {
		var v any
		dec := json.NewDecoder(got.Body)
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		if err := d.check("problem", d.Components.Schemas["Problem"], v); err != nil || got.Code < 400 {
			t.Errorf("status %d: %v", got.Code, err)
		}
	}
}

func TestTheDescriptionCannotBeChangedByItsReaders(t *testing.T) {
	t.Parallel()
	clear(quota.OpenAPI())
	describe(t)
}
