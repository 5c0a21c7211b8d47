package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxAdminBody is the largest body of a request to the admin handler, in bytes.
const maxAdminBody = 16 << 10

// adminRequest is what a request asks for.
type adminRequest struct {
	subject Subject
	as      string
	scope   Scope
	unit    Unit
	amount  int64
}

// read reads a request. It always returns one, so that there is something to
// authorize; bad is what is wrong with it.
func (a *admin) read(w http.ResponseWriter, r *http.Request, route *adminRoute) (req *adminRequest, bad *Problem) {
	req = &adminRequest{}
	if err := req.query(r.URL.RawQuery, route); err != nil {
		return req, blankProblem(http.StatusBadRequest, err.Error())
	}
	if route.body == nil {
		return req, a.check(req, route)
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return req, blankProblem(http.StatusUnsupportedMediaType, "The body must be of the type application/json.")
	}
	err := req.decode(http.MaxBytesReader(w, r.Body, maxAdminBody), route.body)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return req, blankProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("The body has more than %d bytes.", maxAdminBody))
	}
	if err != nil {
		return req, blankProblem(http.StatusBadRequest, err.Error())
	}
	return req, a.check(req, route)
}

// check says what about a request cannot be right, whoever sends it.
func (a *admin) check(req *adminRequest, route *adminRoute) *Problem {
	if err := req.subject.Validate(); err != nil {
		return blankProblem(http.StatusBadRequest, err.Error())
	}
	if !route.subject {
		return nil
	}
	h := a.cfg.Enforcer.Hierarchy()
	for scope := range req.subject.Other {
		if !h.Has(scope) {
			return blankProblem(http.StatusBadRequest, fmt.Sprintf("other[%s] is no scope of the hierarchy", clipText(string(scope))))
		}
	}
	if route.body == nil {
		return nil
	}
	switch {
	case !h.Has(req.scope):
		return blankProblem(http.StatusBadRequest, fmt.Sprintf("scope %q is no scope of the hierarchy", clipText(string(req.scope))))
	case !a.in(req.scope):
		return blankProblem(http.StatusForbidden, fmt.Sprintf("The scope %q is not dealt with here.", req.scope))
	}
	if route.action == AdminErase && req.scope == Global {
		return blankProblem(http.StatusBadRequest, fmt.Sprintf("scope %q is everybody, who is not one subject; reset it to give spend back", Global))
	}
	if _, ok := h.Key(req.subject, req.scope); !ok {
		return blankProblem(http.StatusBadRequest, fmt.Sprintf("the subject has no id of the scope %q", req.scope))
	}
	if route.action == AdminTopUp {
		switch {
		case req.unit == ConcurrentTurns:
			return blankProblem(http.StatusBadRequest, fmt.Sprintf("unit %v is never spent, so there is nothing to give back", req.unit))
		case req.amount < 1 || req.amount > MaxAmount:
			return blankProblem(http.StatusBadRequest, fmt.Sprintf("amount is %d, must be from 1 to %d", req.amount, int64(MaxAmount)))
		}
	}
	return nil
}

// query reads the parameters of the address.
func (req *adminRequest) query(raw string, route *adminRoute) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("the parameters cannot be read")
	}
	for name, all := range values {
		if len(all) != 1 {
			return fmt.Errorf("parameter %q comes %d times", clipText(name), len(all))
		}
		if all[0] == "" && name != "as" { // and not somebody else, because a script had nothing to put in
			return fmt.Errorf("parameter %q is empty", clipText(name))
		}
		to := req.param(name, route)
		if to == nil {
			scope, ok := strings.CutPrefix(name, "other[")
			scope, closed := strings.CutSuffix(scope, "]")
			if !route.subject || !ok || !closed || scope == "" {
				return fmt.Errorf("parameter %q is not known", clipText(name))
			}
			if req.subject.Other == nil {
				req.subject.Other = map[Scope]string{}
			}
			req.subject.Other[Scope(scope)] = all[0]
			continue
		}
		*to = all[0]
	}
	for _, name := range route.params {
		if !values.Has(name) {
			return fmt.Errorf("parameter %q is missing", name)
		}
	}
	if err := validateID(req.as); err != nil {
		return fmt.Errorf("parameter \"as\" %w", err)
	}
	return nil
}

// adminSubjectParams are the parameters of a subject, besides other[scope].
var adminSubjectParams = []string{"user", "team", "tenant", "session", "plan"}

// param is where a parameter goes; nil if the route has none of that name.
func (req *adminRequest) param(name string, route *adminRoute) *string {
	if route.subject && slices.Contains(adminSubjectParams, name) {
		s := &req.subject
		return map[string]*string{"user": &s.User, "team": &s.Team, "tenant": &s.Tenant, "session": &s.Session, "plan": &s.Plan}[name]
	}
	if name == "as" && slices.Contains(route.params, name) {
		return &req.as
	}
	return nil
}

// decode reads a body: an object with exactly the given members, spelled exactly so,
// each once, none of them null, and nothing after it.
func (req *adminRequest) decode(body io.Reader, members []string) error {
	d := json.NewDecoder(body)
	if t, err := d.Token(); err != nil {
		return unreadable(err)
	} else if t != json.Delim('{') {
		return errors.New("the body is no JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return unreadable(err)
		}
		name, _ := t.(string)
		switch {
		case !slices.Contains(members, name):
			return fmt.Errorf("member %q is not known", clipText(name))
		case seen[name]:
			return fmt.Errorf("member %q comes twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return unreadable(err)
		}
		if err := req.member(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return unreadable(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = errors.New("more follows")
		}
		return unreadable(err)
	}
	for _, name := range members {
		if !seen[name] {
			return fmt.Errorf("member %q is missing", name)
		}
	}
	return nil
}

// unreadable is the error for a body that is no JSON.
func unreadable(err error) error {
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return err
	}
	return errors.New("the body is not one JSON object")
}

// member takes a member of a body.
func (req *adminRequest) member(name string, value json.RawMessage) error {
	wrong := func(want string) error {
		return fmt.Errorf("member %q is %s, must be %s", name, clipText(string(value)), want)
	}
	if name == "amount" {
		if string(value) == "null" || json.Unmarshal(value, &req.amount) != nil {
			return wrong("a whole number")
		}
		return nil
	}
	var text string
	if string(value) == "null" || json.Unmarshal(value, &text) != nil {
		return wrong("a string")
	}
	switch name {
	case "scope":
		req.scope = Scope(text)
	case "unit":
		i := slices.Index(unitNames[:], text)
		if i < 0 {
			return wrong("one of " + strings.Join(unitNames[:], ", "))
		}
		req.unit = Unit(i)
	}
	return nil
}
