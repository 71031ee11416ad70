package rego

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

var errSchema = errors.New("no JSON schema that can be read")

// errElsewhere ends the call, as errTooMuch does.
var errElsewhere = errors.New("the schema refers to one that is elsewhere")

const (
	// maxSchemaErrors is the maximum number of mistakes in a document.
	maxSchemaErrors = 10_000
	// schemaWork is the cost of validating a value by a schema.
	schemaWork = 1000
	// shownWork is the cost of writing a value, by its size.
	shownWork = 1000
)

// document returns the JSON value in an argument of a builtin: a text of it, an object or a list.
func document(c *call, v any) (any, error) {
	switch v := v.(type) {
	case string:
		if !stdjson.Valid([]byte(v)) {
			return nil, errors.New("invalid JSON string")
		}
		return parseValue(c, v)
	case object, []any:
		raw, err := toJSON(v, c.limit)
		if err != nil {
			return nil, err
		}
		return parseValue(c, string(raw))
	}
	return nil, errors.New("wrong type, expected string or object")
}

// jsonVerifySchema returns whether a schema is valid, and the reason if it is not.
func jsonVerifySchema(c *call, args []any) (any, error) {
	_, err := newSchema(c, args[0])
	if errors.Is(err, errTooMuch) || errors.Is(err, errElsewhere) {
		return nil, err
	}
	if err != nil {
		return []any{false, "jsonschema: " + err.Error()}, nil
	}
	return []any{true, nil}, nil
}

// jsonMatchSchema returns whether a document matches a schema, and its mistakes.
func jsonMatchSchema(c *call, args []any) (any, error) {
	doc, err := document(c, args[0])
	if err != nil {
		return nil, err
	}
	s, err := newSchema(c, args[1])
	if err != nil {
		return nil, err
	}
	r := &outcome{}
	if err := s.validate(s.root, doc, location{}, r); err != nil {
		return nil, err
	}
	mistakes := []any{}
	for _, m := range r.mistakes {
		mistakes = append(mistakes, newObject(object{{"error", m.field + ": " + m.text}, {"type", m.kind}, {"field", m.field}, {"desc", m.text}}))
	}
	return []any{len(mistakes) == 0, mistakes}, nil
}

// schema is a JSON schema of drafts 4, 6 and 7, read as by the library in OPA. A schema that does
// not name its draft may use the keywords of all of them.
type schema struct {
	call *call
	root any
	// draft is the number of the draft, 0 for all drafts.
	draft int
	// ids maps ids to the schemas that have them.
	ids map[string]any
	// checked holds the references that were followed in the check.
	checked  map[string]bool
	patterns map[string]*expression
	// mistakes is the number of mistakes found, and bytes their total length.
	mistakes, bytes int
}

var drafts = map[string]int{
	"http://json-schema.org/draft-04/schema": 4, "http://json-schema.org/draft-06/schema": 6, "http://json-schema.org/draft-07/schema": 7,
}

func newSchema(c *call, v any) (*schema, error) {
	root, err := document(c, v)
	if err != nil {
		return nil, err
	}
	s := &schema{call: c, root: root, ids: map[string]any{}, checked: map[string]bool{}, patterns: map[string]*expression{}}
	if o, ok := root.(object); ok {
		if name, ok := o.get("$schema"); ok {
			text, ok := name.(string)
			if !ok {
				return nil, errSchema
			}
			s.draft = drafts[strings.TrimSuffix(text, "#")]
		}
	}
	s.identify(root)
	return s, s.check(root)
}

// identify records the schemas that have an id.
func (s *schema) identify(v any) {
	for _, e := range elements(v) {
		s.identify(e)
	}
	o, _ := v.(object)
	for _, e := range o {
		if id, ok := e.value.(string); ok && (e.key == "$id" || e.key == "id") {
			s.ids[strings.TrimSuffix(id, "#")] = o
			if _, fragment, found := strings.Cut(id, "#"); found && fragment != "" {
				s.ids["#"+fragment] = o
			}
		}
		s.identify(e.value)
	}
}

// resolve returns the schema that a reference points to.
func (s *schema) resolve(reference string) (any, error) {
	s.call.work(10 * len(reference))
	if target, ok := s.ids[strings.TrimSuffix(reference, "#")]; ok && reference != "#" {
		return target, nil
	}
	base, fragment, _ := strings.Cut(reference, "#")
	from := s.root
	if base != "" {
		target, ok := s.ids[base]
		if !ok {
			return nil, fmt.Errorf("%w: %.200s", errElsewhere, reference)
		}
		from = target
	}
	if fragment == "" {
		return from, nil
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil || fragment[0] != '/' {
		return nil, errSchema
	}
	for key := range strings.SplitSeq(fragment[1:], "/") {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		var found bool
		switch container := from.(type) {
		case object:
			from, found = container.get(key)
		case []any:
			i, err := index(key, len(container))
			if found = err == nil && i < len(container); found {
				from = container[i]
			}
		}
		if !found {
			return nil, errSchema
		}
	}
	return from, nil
}

// Keywords of schemas, by the required type of their values.
var (
	schemaKeywords = []string{"additionalItems", "additionalProperties", "not"}
	laterSchemas   = []string{"propertyNames", "contains"} // Added by draft 6.
	latestSchemas  = []string{"if", "then", "else"}        // Added by draft 7.
	schemaLists    = []string{"allOf", "anyOf", "oneOf"}
	schemaMaps     = []string{"definitions", "properties", "patternProperties", "dependencies"}
	countKeywords  = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
	numberKeywords = []string{"minimum", "maximum", "multipleOf"}
	textKeywords   = []string{"title", "description", "pattern", "format", "$ref", "id", "$id"}
	typeNames      = []string{"array", "boolean", "integer", "number", "null", "object", "string"}
)

// keywords returns the keywords of the draft whose value is a schema.
func (s *schema) keywords() []string {
	list := slices.Clip(schemaKeywords)
	if s.draft == 0 || s.draft >= 6 {
		list = append(list, laterSchemas...)
	}
	if s.draft == 0 || s.draft >= 7 {
		list = append(list, latestSchemas...)
	}
	return list
}

// check returns the reason that a schema is not valid, nil if it is.
func (s *schema) check(v any) error {
	s.call.work(10 * schemaWork)
	o, ok := v.(object)
	if !ok {
		if _, isBool := v.(bool); isBool && s.draft != 4 {
			return nil
		}
		return errSchema
	}
	for _, name := range textKeywords {
		if v, ok := o.get(name); ok && !isOf[string](v) {
			return fmt.Errorf("%w: %s is no string", errSchema, name)
		}
	}
	if definitions, ok := o.get("definitions"); ok {
		m, ok := definitions.(object)
		if !ok {
			return fmt.Errorf("%w: definitions is no object", errSchema)
		}
		for _, e := range m {
			if err := s.check(e.value); err != nil {
				return err
			}
		}
	}
	if reference, ok := o.get("$ref"); ok {
		name := reference.(string)
		if s.checked[name] {
			return nil
		}
		s.checked[name] = true
		target, err := s.resolve(name)
		if err != nil {
			return err
		}
		return s.check(target)
	}
	for _, name := range countKeywords {
		if v, ok := o.get(name); ok {
			if n, err := count(v); err != nil || n < 0 {
				return fmt.Errorf("%w: %s is no integer from 0 on", errSchema, name)
			}
		}
	}
	for _, name := range numberKeywords {
		if v, ok := o.get(name); ok {
			r, err := rational(v)
			if err != nil {
				return err
			}
			if name == "multipleOf" && r.Sign() <= 0 {
				return fmt.Errorf("%w: multipleOf is not more than 0", errSchema)
			}
		}
	}
	for _, name := range []string{"exclusiveMinimum", "exclusiveMaximum"} {
		switch v, ok := o.get(name); {
		case !ok:
		case isOf[bool](v) && s.draft < 6:
			if _, ok := o.get(strings.ToLower(name[len("exclusive"):])); !ok {
				return fmt.Errorf("%w: %s without its number", errSchema, name)
			}
		case isOf[number](v) && s.draft != 4:
			if _, err := rational(v); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: %s is of another type", errSchema, name)
		}
	}
	if types, ok := o.get("type"); ok {
		list := elements(types)
		if isOf[string](types) {
			list = []any{types}
		} else if !isOf[[]any](types) {
			return fmt.Errorf("%w: type is no string or list of strings", errSchema)
		}
		for i, t := range list {
			name, _ := t.(string)
			if !slices.Contains(typeNames, name) || contains(list[:i], t) {
				return fmt.Errorf("has a primitive type that is NOT VALID -- given: /%s/ Expected valid values are:%v", name, typeNames)
			}
		}
	}
	if required, ok := o.get("required"); ok {
		s.call.work(sortWork(width(required)))
		list, ok := required.([]any)
		if _, err := stringsOf(list); err != nil || !ok || len(newSet(slices.Clone(list))) != len(list) {
			return fmt.Errorf("%w: required is no list of strings that differ", errSchema)
		}
	}
	if unique, ok := o.get("uniqueItems"); ok && !isOf[bool](unique) {
		return fmt.Errorf("%w: uniqueItems is no boolean", errSchema)
	}
	if enum, ok := o.get("enum"); ok {
		s.call.work(sortWork(width(enum)))
		list, ok := enum.([]any)
		if !ok || len(newSet(slices.Clone(list))) != len(list) {
			return fmt.Errorf("%w: enum is no list of values that differ", errSchema)
		}
	}
	if pattern, ok := o.get("pattern"); ok {
		if _, err := s.pattern(pattern.(string)); err != nil {
			return err
		}
	}
	return s.checkChildren(o)
}

// checkChildren checks the schemas nested in a schema.
func (s *schema) checkChildren(o object) error {
	var children []any
	for _, name := range s.keywords() {
		if v, ok := o.get(name); ok && (name != "additionalItems" && name != "additionalProperties" || !isOf[bool](v)) {
			children = append(children, v)
		}
	}
	for _, name := range schemaLists {
		if v, ok := o.get(name); ok {
			list, ok := v.([]any)
			if !ok {
				return fmt.Errorf("%w: %s is no list of schemas", errSchema, name)
			}
			children = append(children, list...)
		}
	}
	if items, ok := o.get("items"); ok {
		if list, ok := items.([]any); ok {
			children = append(children, list...)
		} else {
			children = append(children, items)
		}
	}
	for _, name := range schemaMaps[1:] {
		v, ok := o.get(name)
		if !ok {
			continue
		}
		m, ok := v.(object)
		if !ok {
			return fmt.Errorf("%w: %s is no object", errSchema, name)
		}
		for _, e := range m {
			if name == "patternProperties" {
				if _, err := s.pattern(e.key.(string)); err != nil {
					return err
				}
			}
			if list, ok := e.value.([]any); ok && name == "dependencies" {
				if _, err := stringsOf(list); err != nil {
					return fmt.Errorf("%w: a dependency is no string", errSchema)
				}
				continue
			}
			children = append(children, e.value)
		}
	}
	for _, child := range children {
		if err := s.check(child); err != nil {
			return err
		}
	}
	return nil
}

func (s *schema) pattern(text string) (*expression, error) {
	if e, ok := s.patterns[text]; ok {
		return e, nil
	}
	e, err := compile(s.call, text)
	if err == nil {
		s.patterns[text] = e
	}
	return e, err
}

func (s *schema) matches(pattern, text string) (bool, error) {
	e, err := s.pattern(pattern)
	if err != nil {
		return false, err
	}
	at, err := e.find(text, 0)
	return at != nil, err
}

// count returns the integer value of a keyword.
func count(v any) (int, error) {
	n, ok := v.(number)
	if !ok {
		return 0, errSchema
	}
	i, err := n.int64()
	return int(i), err
}

// rational returns the number given by a value, unless it has too many digits.
func rational(v any) (*big.Rat, error) {
	n, ok := v.(number)
	if !ok {
		return nil, errSchema
	}
	d, ok := n.scientific()
	if !ok {
		return nil, errSchema
	}
	if len(n) > maxDigits || d.exponent > maxDigits || d.exponent < -maxDigits {
		return nil, errTooMuch
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return nil, errSchema
	}
	return r, nil
}

// location is the place of a value in the document.
type location struct {
	path  string
	depth int
	// below reports whether it is below the root.
	below bool
}

// deeper returns the same place, one level deeper in the schemas.
func (l location) deeper() location {
	l.depth++
	return l
}

func (l location) child(key string) location {
	if l.below {
		key = l.path + "." + key
	}
	return location{key, l.depth + 1, true}
}

func (l location) field() string {
	if !l.below {
		return "(Root)"
	}
	return l.path
}

// mistake is a mistake in a value.
type mistake struct{ kind, field, text string }

// outcome is the result of validating a value.
type outcome struct {
	mistakes []mistake
	// score is higher the more parts of the schema the value matches.
	score int
}

func (r *outcome) merge(other *outcome) {
	r.mistakes = append(r.mistakes, other.mistakes...)
	r.score += other.score
}

func (s *schema) wrong(r *outcome, l location, kind, format string, args ...any) {
	m := mistake{kind, l.field(), fmt.Sprintf(format, args...)}
	s.mistakes++
	s.bytes += len(m.field) + len(m.text)
	s.call.work(len(m.text))
	r.mistakes = append(r.mistakes, m)
	r.score -= 2
}

// shown writes a value as encoding/json does after decoding it.
func (s *schema) shown(v any) string {
	s.call.work(shownWork * size(v))
	raw, err := toJSON(v, s.call.limit)
	if err != nil {
		return ""
	}
	var of any
	if stdjson.Unmarshal(raw, &of) != nil {
		return goJSON(raw)
	}
	out, _ := stdjson.Marshal(of)
	return string(out)
}

func shownNumber(r *big.Rat) string { return fmt.Sprint(new(big.Float).SetRat(r)) }

// apart validates a value by another schema, whose outcome does not yet count for the value.
func (s *schema) apart(schema, v any, l location) (*outcome, error) {
	r := &outcome{}
	return r, s.validate(schema, v, l.deeper(), r)
}

// into validates a value by another schema, and adds the outcome to r.
func (s *schema) into(r *outcome, schema, v any, l location) error {
	other, err := s.apart(schema, v, l)
	r.merge(other)
	return err
}

// validate adds the mistakes of a value by a schema to r.
func (s *schema) validate(schema, v any, l location, r *outcome) error {
	if s.call.work(schemaWork + len(l.path)); l.depth > maxValueDepth || s.mistakes > maxSchemaErrors || s.bytes > s.call.limit {
		return errTooMuch
	}
	if pass, ok := schema.(bool); ok {
		if !pass {
			s.wrong(r, l, "false", "False always fails validation")
		}
		return nil
	}
	o := schema.(object)
	if reference, ok := o.get("$ref"); ok {
		target, err := s.resolve(reference.(string))
		if err != nil {
			return err
		}
		return s.validate(target, v, l.deeper(), r)
	}
	if !s.rightType(o, v, l, r) {
		return nil
	}
	steps := []func(o object, v any, l location, r *outcome) error{s.combine}
	switch v.(type) {
	case []any:
		steps = append(steps, s.list, s.common)
	case object:
		steps = append(steps, s.members, s.common, s.properties)
	case nil:
		steps = append(steps, s.common)
	default:
		steps = append(steps, s.number, s.common, s.text)
	}
	for _, step := range steps {
		if err := step(o, v, l, r); err != nil {
			return err
		}
	}
	r.score++
	return nil
}

// rightType reports whether a value has a type allowed by the schema.
func (s *schema) rightType(o object, v any, l location, r *outcome) bool {
	types, ok := o.get("type")
	if !ok {
		return true
	}
	list := elements(types)
	if isOf[string](types) {
		list = []any{types}
	}
	given := ""
	switch v := v.(type) {
	case nil:
		given = "null"
	case bool:
		given = "boolean"
	case string:
		given = "string"
	case []any:
		given = "array"
	case object:
		given = "object"
	case number:
		given = "number"
		if d, ok := v.scientific(); ok && d.exponent >= int64(len(d.digits)) {
			given = "integer"
		}
	}
	if len(list) == 0 || contains(list, given) || given == "integer" && contains(list, "number") {
		return true
	}
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = name.(string)
	}
	expected := names[0]
	if len(names) > 1 {
		expected = "[" + strings.Join(names, ",") + "]"
	}
	s.wrong(r, l, "invalid_type", "Invalid type. Expected: %s, given: %s", expected, given)
	return false
}

// combine validates by combined schemas.
func (s *schema) combine(o object, v any, l location, r *outcome) error {
	if any, ok := o.get("anyOf"); ok && width(any) != 0 {
		var best *outcome
		valid := false
		for _, schema := range elements(any) {
			other, err := s.apart(schema, v, l)
			if err != nil {
				return err
			}
			if valid = len(other.mistakes) == 0; valid {
				break
			}
			if best == nil || other.score > best.score {
				best = other
			}
		}
		if !valid {
			s.wrong(r, l, "number_any_of", "Must validate at least one schema (anyOf)")
			r.merge(best)
		}
	}
	if one, ok := o.get("oneOf"); ok && width(one) != 0 {
		var best *outcome
		valid := 0
		for _, schema := range elements(one) {
			other, err := s.apart(schema, v, l)
			if err != nil {
				return err
			}
			if len(other.mistakes) == 0 {
				valid++
			} else if valid == 0 && (best == nil || other.score > best.score) {
				best = other
			}
		}
		if valid != 1 {
			s.wrong(r, l, "number_one_of", "Must validate one and only one schema (oneOf)")
		}
		if valid == 0 {
			r.merge(best)
		}
	}
	if all, ok := o.get("allOf"); ok {
		invalid := false
		for _, schema := range elements(all) {
			other, err := s.apart(schema, v, l)
			if err != nil {
				return err
			}
			invalid = invalid || len(other.mistakes) != 0
			r.merge(other)
		}
		if invalid {
			s.wrong(r, l, "number_all_of", "Must validate all the schemas (allOf)")
		}
	}
	if not, ok := o.get("not"); ok {
		other, err := s.apart(not, v, l)
		if err != nil {
			return err
		}
		if len(other.mistakes) == 0 {
			s.wrong(r, l, "number_not", "Must not validate the schema (not)")
		}
	}
	if err := s.dependencies(o, v, l, r); err != nil {
		return err
	}
	if err := s.conditions(o, v, l, r); err != nil {
		return err
	}
	r.score++
	return nil
}

func (s *schema) dependencies(o object, v any, l location, r *outcome) error {
	dependencies, _ := o.get("dependencies")
	members, ok := v.(object)
	if !ok {
		return nil
	}
	m, _ := dependencies.(object)
	for _, e := range m {
		if _, ok := members.get(e.key); !ok {
			continue
		}
		list, ok := e.value.([]any)
		if !ok {
			if err := s.validate(e.value, v, l.deeper(), r); err != nil {
				return err
			}
		}
		for _, name := range list {
			if _, ok := members.get(name); !ok {
				s.wrong(r, l, "missing_dependency", "Has a dependency on %s", name)
			}
		}
	}
	return nil
}

func (s *schema) conditions(o object, v any, l location, r *outcome) error {
	condition, ok := o.get("if")
	if !ok || s.draft != 0 && s.draft < 7 {
		return nil
	}
	other, err := s.apart(condition, v, l)
	if err != nil {
		return err
	}
	keyword, format := "then", `Must validate "then" as "if" was valid`
	if len(other.mistakes) != 0 {
		keyword, format = "else", `Must validate "else" as "if" was not valid`
	}
	if schema, ok := o.get(keyword); ok {
		other, err := s.apart(schema, v, l)
		if err != nil {
			return err
		}
		if len(other.mistakes) != 0 {
			s.wrong(r, l, "condition_"+keyword, "%s", format)
			r.merge(other)
		}
	}
	return nil
}

// common validates by the keywords that apply to values of all types.
func (s *schema) common(o object, v any, l location, r *outcome) error {
	if constant, ok := o.get("const"); ok && (s.draft == 0 || s.draft >= 6) {
		s.call.work(10 * size(constant))
		if compare(constant, v) != 0 {
			s.wrong(r, l, "const", "%s does not match: %s", l.field(), s.shown(constant))
		}
	}
	if enum, ok := o.get("enum"); ok {
		s.call.work(10 * size(enum))
		if list := elements(enum); !contains(list, v) {
			shown := make([]string, len(list))
			for i, e := range list {
				shown[i] = s.shown(e)
			}
			s.wrong(r, l, "enum", "%s must be one of the following: %s", l.field(), strings.Join(shown, ", "))
		}
	}
	if format, ok := o.get("format"); ok {
		if text, isText := v.(string); isText {
			right, err := s.isFormat(format.(string), text)
			if err != nil {
				return err
			}
			if !right {
				s.wrong(r, l, "format", "Does not match format '%s'", format)
			}
		}
	}
	r.score++
	return nil
}

// list validates a list.
func (s *schema) list(o object, v any, l location, r *outcome) error {
	list := v.([]any)
	each := func(schema any, i int) error { return s.into(r, schema, list[i], l.child(strconv.Itoa(i))) }
	if items, ok := o.get("items"); ok {
		schemas, several := items.([]any)
		for i := range list {
			schema := items
			if several && i >= len(schemas) {
				break
			} else if several {
				schema = schemas[i]
			}
			if err := each(schema, i); err != nil {
				return err
			}
		}
		if several && len(schemas) != 0 && len(schemas) < len(list) {
			additional, ok := o.get("additionalItems")
			if allowed, isBool := additional.(bool); isBool && !allowed {
				s.wrong(r, l, "array_no_additional_items", "No additional items allowed on array")
			} else if ok && !isBool {
				for i := len(schemas); i < len(list); i++ {
					if err := each(additional, i); err != nil {
						return err
					}
				}
			}
		}
	}
	s.bounds(o, "Items", len(list), func(kind string, n int) {
		s.wrong(r, l, "array_"+kind+"_items", "Array must have at "+mostOrLeast[kind]+" %d items", n)
	})
	if unique, ok := o.get("uniqueItems"); ok && unique == true {
		s.call.work(sortWork(len(list)) + 10*size(v))
		last := map[string]int{}
		for i, item := range list {
			key := s.shown(item)
			if before, ok := last[key]; ok {
				s.wrong(r, l, "unique", "array items[%d,%d] must be unique", before, i)
			}
			last[key] = i
		}
	}
	if wanted, ok := o.get("contains"); ok && (s.draft == 0 || s.draft >= 6) {
		var best *outcome
		found := false
		for i, item := range list {
			other, err := s.apart(wanted, item, l.child(strconv.Itoa(i)))
			if err != nil {
				return err
			}
			if found = len(other.mistakes) == 0; found {
				break
			}
			if best == nil || other.score > best.score {
				best = other
			}
		}
		if !found {
			s.wrong(r, l, "contains", "At least one of the items must match")
			if best != nil {
				r.merge(best)
			}
		}
	}
	r.score++
	return nil
}

var mostOrLeast = map[string]string{"min": "least", "max": "most"}

// bounds calls wrong if a count violates the keywords for it.
func (s *schema) bounds(o object, of string, n int, wrong func(kind string, n int)) {
	for _, kind := range []string{"min", "max"} {
		if v, ok := o.get(kind + of); ok {
			bound, _ := count(v)
			if kind == "min" && n < bound || kind == "max" && n > bound {
				wrong(kind, bound)
			}
		}
	}
}

// members validates an object, except the members named by the schema.
func (s *schema) members(o object, v any, l location, r *outcome) error {
	members := v.(object)
	s.call.work(schemaWork / 2 * len(members))
	s.bounds(o, "Properties", len(members), func(kind string, n int) {
		s.wrong(r, l, "array_"+kind+"_properties", "Must have at "+mostOrLeast[kind]+" %d properties", n)
	})
	required, _ := o.get("required")
	for _, name := range elements(required) {
		if _, ok := members.get(name); ok {
			r.score++
		} else {
			s.wrong(r, l, "required", "%s is required", name)
		}
	}
	properties, _ := o.get("properties")
	named, _ := properties.(object)
	patterns, _ := o.get("patternProperties")
	patterned, _ := patterns.(object)
	additional, hasAdditional := o.get("additionalProperties")
	for _, e := range members {
		key := e.key.(string)
		_, known := named.get(key)
		for _, p := range patterned {
			matches, err := s.matches(p.key.(string), key)
			if err != nil {
				return err
			}
			if !matches {
				continue
			}
			known = true
			if err := s.into(r, p.value, e.value, l.child(key)); err != nil {
				return err
			}
		}
		if known || !hasAdditional {
			continue
		}
		if allowed, isBool := additional.(bool); !isBool {
			if err := s.into(r, additional, e.value, l.child(key)); err != nil {
				return err
			}
		} else if !allowed {
			s.wrong(r, l, "additional_property_not_allowed", "Additional property %s is not allowed", key)
		}
	}
	if names, ok := o.get("propertyNames"); ok && (s.draft == 0 || s.draft >= 6) {
		for _, e := range members {
			other, err := s.apart(names, e.key, l)
			if err != nil {
				return err
			}
			if len(other.mistakes) != 0 {
				s.wrong(r, l, "invalid_property_name", `Property name of "%s" does not match`, e.key)
				r.merge(other)
			}
		}
	}
	r.score++
	return nil
}

// properties validates the members named by the schema.
func (s *schema) properties(o object, v any, l location, r *outcome) error {
	members := v.(object)
	properties, _ := o.get("properties")
	named, _ := properties.(object)
	for _, p := range named {
		if value, ok := members.get(p.key); ok {
			if err := s.validate(p.value, value, l.child(p.key.(string)), r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *schema) text(o object, v any, l location, r *outcome) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	s.bounds(o, "Length", utf8.RuneCountInString(text), func(kind string, n int) {
		s.wrong(r, l, map[string]string{"min": "string_gte", "max": "string_lte"}[kind],
			"String length must be %s than or equal to %d", map[string]string{"min": "greater", "max": "less"}[kind], n)
	})
	if pattern, ok := o.get("pattern"); ok {
		matches, err := s.matches(pattern.(string), text)
		if err != nil {
			return err
		}
		if !matches {
			s.wrong(r, l, "pattern", "Does not match pattern '%s'", pattern)
		}
	}
	r.score++
	return nil
}

func (s *schema) number(o object, v any, l location, r *outcome) error {
	if !isOf[number](v) {
		return nil
	}
	n, err := rational(v)
	if err != nil {
		return err
	}
	if of, ok := o.get("multipleOf"); ok {
		of, _ := rational(of)
		if !new(big.Rat).Quo(n, of).IsInt() {
			s.wrong(r, l, "multiple_of", "Must be a multiple of %s", shownNumber(of))
		}
	}
	for _, b := range []struct {
		name, word, kind string
		sign             int
	}{{"Maximum", "less", "number_lt", 1}, {"Minimum", "greater", "number_gt", -1}} {
		bound, ok := o.get(strings.ToLower(b.name))
		exclusive, _ := o.get("exclusive" + b.name)
		if excludes, _ := exclusive.(bool); ok && !excludes {
			if bound, _ := rational(bound); n.Cmp(bound) == b.sign {
				s.wrong(r, l, b.kind+"e", "Must be %s than or equal to %s", b.word, shownNumber(bound))
			}
		}
		if exclusive == true {
			exclusive = bound
		}
		if isOf[number](exclusive) {
			if bound, _ := rational(exclusive); n.Cmp(bound) != -b.sign {
				s.wrong(r, l, b.kind, "Must be %s than %s", b.word, shownNumber(bound))
			}
		}
	}
	r.score++
	return nil
}

// Formats defined by regular expressions, none of which can take long.
var formatExpressions = map[string]*regexp.Regexp{
	"uuid":                  regexp.MustCompile(`^(?i)[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}$`),
	"json-pointer":          regexp.MustCompile(`^(?:/(?:[^~/]|~0|~1)*)*$`),
	"relative-json-pointer": regexp.MustCompile(`^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~0|~1)*)*)$`),
	"hostname":              regexp.MustCompile(`^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*$`),
	"uri-template":          regexp.MustCompile(`^([^{]*({[^}]*})?)*$`),
}

// formatLayouts maps formats that are times to their layouts.
var formatLayouts = map[string][]string{
	"date":      {time.DateOnly},
	"time":      {time.TimeOnly, "15:04:05Z07:00"},
	"date-time": {time.TimeOnly, "15:04:05Z07:00", time.DateOnly, time.RFC3339, time.RFC3339Nano},
}

// formatWork is the cost of matching a byte of a text with a format.
const formatWork = 1000

// isFormat reports whether a text has a format. Every text has an unknown format.
func (s *schema) isFormat(format, text string) (bool, error) {
	if len(text) > maxPattern {
		return false, errTooMuch
	}
	s.call.work(len(text) * formatWork)
	switch format {
	case "uuid", "json-pointer", "relative-json-pointer":
		return formatExpressions[format].MatchString(text), nil
	case "hostname":
		return len(text) < 256 && formatExpressions[format].MatchString(text), nil
	case "date", "time", "date-time":
		return slices.ContainsFunc(formatLayouts[format], func(layout string) bool {
			_, err := time.Parse(layout, text)
			return err == nil
		}), nil
	case "email", "idn-email":
		_, err := mail.ParseAddress(text)
		return err == nil, nil
	case "ipv4":
		return net.ParseIP(text) != nil && strings.Contains(text, "."), nil
	case "ipv6":
		return net.ParseIP(text) != nil && strings.Contains(text, ":"), nil
	case "uri", "iri", "uri-reference", "iri-reference", "uri-template":
		u, err := url.Parse(text)
		switch {
		case err != nil || strings.Contains(text, `\`):
			return false, nil
		case format == "uri" || format == "iri":
			return u.Scheme != "", nil
		case format == "uri-template":
			return formatExpressions[format].MatchString(u.Path), nil
		}
		return true, nil
	case "regex":
		_, err := compile(s.call, text)
		if errors.Is(err, errTooMuch) {
			return false, err
		}
		return err == nil, nil
	}
	return true, nil
}
