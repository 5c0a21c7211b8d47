package quotaconfig_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-go/headgate/budget/quota/quotaconfig"
)

// checker checks values against the part of JSON Schema (draft 2020-12) that our
// schema uses. A keyword that it does not know is an error, so that nothing in the
// schema goes unchecked.
type checker struct{ defs map[string]any }

// annotations are the keywords that say nothing about a value.
var annotations = []string{"$schema", "$defs", "title", "description", "then", "else"}

// check returns what is wrong with a value in a place, or "".
func (c checker) check(schema, value any, at string) string {
	if allowed, ok := schema.(bool); ok {
		if allowed {
			return ""
		}
		return at + ": must not be there"
	}
	rules, ok := schema.(map[string]any)
	if !ok {
		return fmt.Sprintf("%s: a schema is %T", at, schema)
	}
	for _, keyword := range sortedKeys(rules) {
		if slices.Contains(annotations, keyword) {
			continue
		}
		if problem := c.rule(rules, keyword, value, at); problem != "" {
			return problem
		}
	}
	return ""
}

// rule checks one keyword.
func (c checker) rule(rules map[string]any, keyword string, value any, at string) string {
	arg := rules[keyword]
	fail := func(format string, args ...any) string {
		return at + ": " + keyword + ": " + fmt.Sprintf(format, args...)
	}
	object, isObject := value.(map[string]any)
	array, isArray := value.([]any)
	text, isText := value.(string)
	number, isNumber := value.(float64)
	bound := func() int { n, _ := arg.(float64); return int(n) }
	switch keyword {
	case "$ref":
		name, _ := arg.(string)
		def, ok := c.defs[strings.TrimPrefix(name, "#/$defs/")]
		if !ok {
			return fail("%s is not defined", name)
		}
		return c.check(def, value, at)
	case "type":
		ok := map[string]bool{
			"object": isObject, "array": isArray, "string": isText, "number": isNumber,
			"integer": isNumber && number == math.Trunc(number), "boolean": value == true || value == false,
		}
		if !ok[arg.(string)] {
			return fail("%v is not %v", value, arg)
		}
	case "const":
		if value != arg {
			return fail("%v is not %v", value, arg)
		}
	case "enum":
		if !slices.Contains(arg.([]any), value) {
			return fail("%v is none of %v", value, arg)
		}
	case "pattern":
		if isText && !regexp.MustCompile(arg.(string)).MatchString(text) {
			return fail("%q does not match %s", text, arg)
		}
	case "minLength":
		if isText && len([]rune(text)) < bound() {
			return fail("%q", text)
		}
	case "maxLength":
		if isText && len([]rune(text)) > bound() {
			return fail("%q", text)
		}
	case "minimum":
		if isNumber && number < arg.(float64) {
			return fail("%v < %v", number, arg)
		}
	case "maximum":
		if isNumber && number > arg.(float64) {
			return fail("%v > %v", number, arg)
		}
	case "required":
		for _, key := range arg.([]any) {
			if _, has := object[key.(string)]; isObject && !has {
				return fail("%s", key)
			}
		}
	case "minProperties":
		if isObject && len(object) < bound() {
			return fail("%v", object)
		}
	case "maxProperties":
		if isObject && len(object) > bound() {
			return fail("%v", object)
		}
	case "properties":
		for key, schema := range arg.(map[string]any) {
			if member, has := object[key]; has {
				if problem := c.check(schema, member, at+"."+key); problem != "" {
					return problem
				}
			}
		}
	case "additionalProperties":
		known, _ := rules["properties"].(map[string]any)
		for key, member := range object {
			if _, has := known[key]; !has {
				if problem := c.check(arg, member, at+"."+key); problem != "" {
					return problem
				}
			}
		}
	case "propertyNames":
		for key := range object {
			if problem := c.check(arg, key, at+"."+key); problem != "" {
				return problem
			}
		}
	case "items":
		for i, element := range array {
			if problem := c.check(arg, element, fmt.Sprintf("%s[%d]", at, i)); problem != "" {
				return problem
			}
		}
	case "minItems":
		if isArray && len(array) < bound() {
			return fail("%v", array)
		}
	case "maxItems":
		if isArray && len(array) > bound() {
			return fail("%v", array)
		}
	case "uniqueItems":
		for i, element := range array {
			if slices.Contains(array[:i], element) {
				return fail("%v", element)
			}
		}
	case "not":
		if c.check(arg, value, at) == "" {
			return fail("%v", value)
		}
	case "allOf", "anyOf", "oneOf":
		return c.combined(keyword, arg.([]any), value, at)
	case "if":
		branch := "then"
		if c.check(arg, value, at) != "" {
			branch = "else"
		}
		if schema, has := rules[branch]; has {
			return c.check(schema, value, at)
		}
	default:
		return fail("the test does not know this keyword")
	}
	return ""
}

// combined checks schemas of which all, any or one must hold.
func (c checker) combined(keyword string, schemas []any, value any, at string) string {
	var problems []string
	for _, schema := range schemas {
		if problem := c.check(schema, value, at); problem != "" {
			problems = append(problems, problem)
		}
	}
	passed := len(schemas) - len(problems)
	if keyword == "allOf" && len(problems) > 0 || keyword == "anyOf" && passed == 0 || keyword == "oneOf" && passed != 1 {
		return fmt.Sprintf("%s: %d of %d of %s: %s", at, passed, len(schemas), keyword, strings.Join(problems, "; "))
	}
	return ""
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// schemaOf reads the schema.
func schemaOf(t testing.TB) (checker, map[string]any) {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(quotaconfig.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	return checker{schema["$defs"].(map[string]any)}, schema
}

// plainValue is a YAML document as what JSON has: that is what a schema sees.
func plainValue(t testing.TB, doc string) any {
	t.Helper()
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(doc), &n); err != nil {
		t.Fatal(err)
	}
	return jsonOf(&n)
}

func jsonOf(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return jsonOf(n.Content[0])
	case yaml.MappingNode:
		out := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			out[n.Content[i].Value] = jsonOf(n.Content[i+1])
		}
		return out
	case yaml.SequenceNode:
		out := []any{}
		for _, c := range n.Content {
			out = append(out, jsonOf(c))
		}
		return out
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		f, err := strconv.ParseFloat(strings.ReplaceAll(n.Value, "_", ""), 64)
		if err != nil { // .nan and .inf, which JSON does not have
			return n.Value
		}
		return f
	case "!!bool":
		return n.Value == "true"
	case "!!null":
		return nil
	}
	return n.Value
}

func TestSchemaAcceptsWhatLoadAcceptsAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	c, schema := schemaOf(t)
	for _, row := range formatCases {
		if row.kind == lexical {
			continue
		}
		problem := c.check(schema, plainValue(t, "version: 1\n"+row.doc), "")
		switch {
		case strings.Contains(problem, "the test does not know") || strings.Contains(problem, "is not defined"):
			t.Errorf("%s: %s", row.name, problem)
		case row.kind == valid && problem != "":
			t.Errorf("%s is valid, but the schema says %s", row.name, problem)
		case row.kind == invalid && problem == "":
			t.Errorf("%s is not valid, but the schema has nothing to say", row.name)
		case row.kind == deeper && problem != "":
			t.Errorf("%s is refused by the schema, too (%s): say so in the table", row.name, problem)
		}
	}
	for doc, ok := range map[string]bool{"version: 1": true, "version: 2": false, "mode: off": false, "[]": false} {
		if problem := c.check(schema, plainValue(t, doc), ""); (problem == "") != ok {
			t.Errorf("%q: the schema says %q", doc, problem)
		}
	}
}

func TestExampleFilesMatchTheSchema(t *testing.T) {
	t.Parallel()
	c, schema := schemaOf(t)
	files, err := filepath.Glob("example/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("files are %q, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		against := any(schema)
		if filepath.Base(file) == "prices.yaml" {
			against = c.defs["prices"]
		}
		if problem := c.check(against, plainValue(t, string(data)), ""); problem != "" {
			t.Errorf("%s: %s", file, problem)
		}
	}
}

// Every definition is used, and every keyword of the schema is one that the
// checker knows, also where no row of the table comes by.
func TestSchemaHasNothingThatIsNotChecked(t *testing.T) {
	t.Parallel()
	c, schema := schemaOf(t)
	used := map[string]bool{}
	var walk func(schema any, at string)
	walk = func(schema any, at string) {
		rules, ok := schema.(map[string]any)
		if !ok {
			return
		}
		for keyword, arg := range rules {
			where := at + "/" + keyword
			switch keyword {
			case "properties", "$defs":
				for key, sub := range arg.(map[string]any) {
					walk(sub, where+"/"+key)
				}
			case "allOf", "anyOf", "oneOf":
				for _, sub := range arg.([]any) {
					walk(sub, where)
				}
			case "items", "not", "if", "then", "else", "additionalProperties", "propertyNames":
				walk(arg, where)
			case "$ref":
				used[strings.TrimPrefix(arg.(string), "#/$defs/")] = true
			default:
				if problem := c.rule(rules, keyword, nil, where); strings.Contains(problem, "does not know") && !slices.Contains(annotations, keyword) {
					t.Error(problem)
				}
			}
		}
	}
	walk(schema, "")
	for name := range c.defs {
		if !used[name] {
			t.Errorf("the definition %s is not used", name)
		}
	}
	for name := range used {
		if _, ok := c.defs[name]; !ok {
			t.Errorf("the definition %s is not there", name)
		}
	}
}
