package usage

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genai"
)

// What JSON costs beside the texts in it, in thousandths of a token. It is
// less than what the punctuation would cost as text, since tokenizers join
// neighbours such as `","`.
const (
	bracesCost  = 1000       // of an object or an array
	keyCost     = 1000       // quotes, colon and comma of an object's member
	elementCost = 500        // the comma of an array's element
	stringCost  = 400        // the quotes of a string
	wordCost    = token      // true, false, null
	timeCost    = 24 * token // 2006-01-02T15:04:05Z, a token for each digit
	unseenCost  = 4 * token  // a value that is not looked at
)

// The walk over a value ends at a depth, and when its work is used up: looking
// at a value takes valueWork, ranging over a map by reflection mapWork more,
// reading a text textWork and its length. Both bounds are out of reach of what
// a provider accepts as a request; they stop the walk over a value that
// contains itself. What is left then is counted without being looked at. A
// tokenizer, which is slower, is asked for the first maxExact bytes of texts.
const (
	maxDepth  = 64
	maxWork   = 16 << 20
	valueWork = 64
	mapWork   = 512
	textWork  = 8
	maxExact  = 1 << 20
)

// enter reports whether one more value may be looked at. If not, it has been
// counted.
func (m *meter) enter(depth int) bool {
	if depth > maxDepth || m.work <= 0 {
		m.add(unseenCost)
		return false
	}
	m.work -= valueWork
	return true
}

// value adds any value as the JSON that it becomes. What encoding/json decodes
// into is read directly, everything else by reflection.
func (m *meter) value(v any, depth int) {
	switch v := v.(type) {
	case map[string]any:
		if !m.enter(depth) {
			return
		}
		m.add(bracesCost)
		for key, element := range v {
			m.key(key)
			m.value(element, depth+1)
		}
	case []any:
		if !m.enter(depth) {
			return
		}
		m.add(bracesCost)
		for _, element := range v {
			m.add(elementCost)
			m.value(element, depth+1)
		}
	case string:
		m.quoted(v)
	case float64:
		if m.enter(depth) {
			m.float(v, 64)
		}
	case json.Number:
		walkText(m, string(v))
	case *genai.Schema:
		m.schema(v, depth)
	default:
		m.reflected(reflect.ValueOf(v), depth)
	}
}

// schema adds a schema in the API's own form.
func (m *meter) schema(s *genai.Schema, depth int) {
	if s == nil || !m.enter(depth) {
		return
	}
	m.add(bracesCost)
	m.member("type", string(s.Type))
	m.member("title", s.Title)
	m.member("description", s.Description)
	m.member("format", s.Format)
	m.member("pattern", s.Pattern)
	m.list("enum", s.Enum)
	m.list("required", s.Required)
	m.list("propertyOrdering", s.PropertyOrdering)
	if len(s.Properties) > 0 {
		m.key("properties")
		m.add(bracesCost)
		for name, property := range s.Properties {
			m.key(name)
			m.schema(property, depth+1)
		}
	}
	if s.Items != nil {
		m.key("items")
		m.schema(s.Items, depth+1)
	}
	if len(s.AnyOf) > 0 {
		m.key("anyOf")
		m.add(bracesCost)
		for _, option := range s.AnyOf {
			m.add(elementCost)
			m.schema(option, depth+1)
		}
	}
	m.count("minItems", s.MinItems)
	m.count("maxItems", s.MaxItems)
	m.count("minLength", s.MinLength)
	m.count("maxLength", s.MaxLength)
	m.count("minProperties", s.MinProperties)
	m.count("maxProperties", s.MaxProperties)
	m.bound("minimum", s.Minimum)
	m.bound("maximum", s.Maximum)
	if s.Nullable != nil {
		m.key("nullable")
		m.add(wordCost)
	}
	if s.Default != nil {
		m.key("default")
		m.value(s.Default, depth+1)
	}
	if s.Example != nil {
		m.key("example")
		m.value(s.Example, depth+1)
	}
}

// reflected adds a value of any type, as encoding/json would write it from its
// exported fields and their tags. Methods such as MarshalJSON are not called:
// they may not return. Pointers are followed without adding to the depth.
func (m *meter) reflected(v reflect.Value, depth int) {
	if !m.enter(depth) {
		return
	}
	for (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && !v.IsNil() {
		if !m.enter(depth) {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid, reflect.Pointer, reflect.Interface, reflect.Bool:
		m.add(wordCost)
	case reflect.String:
		m.quoted(v.String())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		m.integer(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		m.unsigned(v.Uint())
	case reflect.Float32, reflect.Float64:
		m.float(v.Float(), v.Type().Bits())
	case reflect.Map:
		m.work -= mapWork
		m.add(bracesCost)
		for i := v.MapRange(); i.Next(); {
			if i.Key().Kind() == reflect.String {
				m.key(i.Key().String())
			} else {
				m.add(keyCost)
				m.reflected(i.Key(), depth+1)
			}
			m.reflected(i.Value(), depth+1)
		}
	case reflect.Slice:
		if v.Type() == rawMessage {
			walkText(m, v.Bytes())
			return
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			m.addTokens(int64(v.Len())) // base64: 4/3 characters, 3/4 of a token each
			return
		}
		m.elements(v, depth)
	case reflect.Array:
		m.elements(v, depth)
	case reflect.Struct:
		if v.Type() == timeType {
			m.add(timeCost)
			return
		}
		m.add(bracesCost)
		m.fields(v, depth)
	}
}

var (
	rawMessage = reflect.TypeFor[json.RawMessage]()
	timeType   = reflect.TypeFor[time.Time]()
)

// elements adds a slice or an array. Its length may be anything, if its
// elements have no size, so the rest is counted at once when work runs out.
func (m *meter) elements(v reflect.Value, depth int) {
	m.add(bracesCost)
	for i, n := 0, v.Len(); i < n; i++ {
		if m.work <= 0 {
			m.add(satMul(int64(n-i), unseenCost))
			return
		}
		m.add(elementCost)
		m.reflected(v.Index(i), depth+1)
	}
}

// fields adds the fields of a struct, those of embedded structs as its own.
func (m *meter) fields(v reflect.Value, depth int) {
	if !m.enter(depth) {
		return
	}
	t := v.Type()
	for i := range t.NumField() {
		field, value := t.Field(i), v.Field(i)
		tag := field.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if field.Anonymous && name == "" {
			if value.Kind() == reflect.Pointer {
				value = value.Elem() // of nil: no value, which has no kind
			}
			if value.Kind() == reflect.Struct {
				m.fields(value, depth+1)
				continue
			}
		}
		if !field.IsExported() || tag == "-" || !value.IsValid() || omitted(value, options) {
			continue
		}
		if name == "" {
			name = field.Name
		}
		m.key(name)
		m.reflected(value, depth+1)
	}
}

// omitted reports whether a field with these tag options is left out.
func omitted(v reflect.Value, options string) bool {
	if options == "" {
		return false
	}
	if strings.Contains(options, "omitempty") {
		switch v.Kind() {
		case reflect.Map, reflect.Slice, reflect.Array, reflect.String:
			return v.Len() == 0
		case reflect.Struct:
		default:
			return v.IsZero()
		}
	}
	return strings.Contains(options, "omitzero") && v.IsZero()
}

// walkText adds a text that was met while walking a value.
func walkText[T string | []byte](m *meter, s T) {
	if m.work <= 0 {
		m.add(satMul(int64(len(s)), token/4))
		return
	}
	m.work -= textWork + len(s)
	if m.tokenizer != nil && len(s) > 0 && m.exactWork >= len(s) {
		m.exactWork -= len(s)
		if m.exact(string(s)) {
			return
		}
	}
	m.add(familyCost(m.family, s))
}

// key adds the key of a member, and what separates it from its value and from
// the next member.
func (m *meter) key(s string) {
	m.add(keyCost)
	walkText(m, s)
}

// quoted adds a string in quotes.
func (m *meter) quoted(s string) {
	m.add(stringCost)
	walkText(m, s)
}

// member adds a member that is a string, unless it is empty.
func (m *meter) member(key, value string) {
	if value != "" {
		m.key(key)
		m.quoted(value)
	}
}

// list adds a member that is a list of strings, unless it is empty.
func (m *meter) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	m.key(key)
	m.add(bracesCost)
	for _, s := range values {
		m.add(elementCost)
		m.quoted(s)
	}
}

// count adds a member that is an integer, unless it is nil.
func (m *meter) count(key string, n *int64) {
	if n != nil {
		m.key(key)
		m.integer(*n)
	}
}

// bound adds a member that is a number, unless it is nil.
func (m *meter) bound(key string, f *float64) {
	if f != nil {
		m.key(key)
		m.float(*f, 64)
	}
}

func (m *meter) integer(n int64) {
	var buf [24]byte
	m.add(familyCost(m.family, strconv.AppendInt(buf[:0], n, 10)))
}

func (m *meter) unsigned(n uint64) {
	var buf [24]byte
	m.add(familyCost(m.family, strconv.AppendUint(buf[:0], n, 10)))
}

func (m *meter) float(f float64, bits int) {
	var buf [32]byte
	m.add(familyCost(m.family, strconv.AppendFloat(buf[:0], f, 'g', -1, bits)))
}
