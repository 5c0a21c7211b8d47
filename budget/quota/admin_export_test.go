package quota

import "reflect"

// AdminRoute is a route of the admin handler, for tests of its description.
type AdminRoute struct {
	Method, Path string
	Action       AdminAction
	Subject      bool
	Params, Body []string
}

// AdminRoutes are all routes.
func AdminRoutes() (all []AdminRoute) {
	for _, r := range adminRoutes {
		all = append(all, AdminRoute{r.method, r.path, r.action, r.subject, r.params, r.body})
	}
	return all
}

// AdminTypes are the types of what is answered, by the names of their schemas.
var AdminTypes = map[string]reflect.Type{
	"Subject":   reflect.TypeFor[Subject](),
	"Status":    reflect.TypeFor[adminStatus](),
	"Limit":     reflect.TypeFor[adminLimit](),
	"Statuses":  reflect.TypeFor[adminStatuses](),
	"Effective": reflect.TypeFor[adminEffective](),
	"Preview":   reflect.TypeFor[adminPreview](),
	"Erased":    reflect.TypeFor[adminErased](),
	"Problem":   reflect.TypeFor[Problem](),
}

// AdminSubjectParams are the parameters of a subject.
var AdminSubjectParams = adminSubjectParams
