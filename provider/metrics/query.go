package metrics

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The only series that can be queried: OpenFaaS's count of invocations, with the name and
// labels of OpenFaaS's gateway.
const (
	invocations   = "gateway_function_invocation_total"
	labelName     = "__name__"
	labelFunction = "function_name"
	labelCode     = "code"
)

// maxQuery is the most bytes of a query. It bounds the work for one query.
const maxQuery = 4096

// Query is a parsed instant query in the part of Prometheus's language that OpenFaaS
// uses: a selector, or sum over one with "by".
type Query struct {
	metric   string
	matchers []matcher
	isSum    bool
	by       []string
}

// matcher is one condition in braces.
type matcher struct {
	label string
	holds func(value string) bool
}

// Sample is one element of the answer.
type Sample struct {
	Metric map[string]string
	Value  float64
}

// ParseQuery reads a query such as
//
//	sum(gateway_function_invocation_total{function_name=~".*.openfaas-fn"}) by (function_name)
//
// The error is a sentence for the author of the query.
func ParseQuery(text string) (*Query, error) {
	if len(text) > maxQuery || !utf8.ValidString(text) {
		return nil, fmt.Errorf("the query must be UTF-8 text of at most %d bytes", maxQuery)
	}
	p := &queryParser{rest: text}
	q := p.query()
	if p.space(); p.err == nil && p.rest != "" {
		p.fail("the end")
	}
	return q, p.err
}

// Evaluate answers the query from the counts in m. An unknown metric gives no samples, as
// in Prometheus.
func (q *Query) Evaluate(m *Metrics) []Sample {
	out := []Sample{}
	if q.metric != invocations {
		return out
	}
	groups := map[string]int{}
	for _, i := range m.Invocations() {
		labels := map[string]string{labelName: invocations, labelFunction: i.Function, labelCode: strconv.Itoa(i.Code)}
		if !q.selects(labels) {
			continue
		}
		if !q.isSum {
			out = append(out, Sample{Metric: labels, Value: float64(i.Count)})
			continue
		}
		group, key := q.group(labels)
		at, ok := groups[key]
		if !ok {
			at = len(out)
			groups[key] = at
			out = append(out, Sample{Metric: group})
		}
		out[at].Value += float64(i.Count)
	}
	return out
}

func (q *Query) selects(labels map[string]string) bool {
	return !slices.ContainsFunc(q.matchers, func(m matcher) bool { return !m.holds(labels[m.label]) })
}

// group returns the labels that a sum keeps, and the same as a map key.
func (q *Query) group(labels map[string]string) (map[string]string, string) {
	kept, key := map[string]string{}, ""
	for _, name := range q.by {
		if value, ok := labels[name]; ok {
			kept[name] = value
		}
		key += labels[name] + "\x00"
	}
	return kept, key
}

// queryParser reads a query from the left. It stops reading after the first error.
type queryParser struct {
	rest string
	err  error
}

func (p *queryParser) fail(wanted string) {
	if p.err == nil {
		p.err = fmt.Errorf("this endpoint understands queries like sum(%s{%s=~\"…\"}) by (%s); it expected %s before %q",
			invocations, labelFunction, labelFunction, wanted, p.rest)
	}
}

func (p *queryParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// take reads token if it comes next, and reports whether it did.
func (p *queryParser) take(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok && p.err == nil {
		p.rest = rest
	}
	return ok && p.err == nil
}

// want reads token, and fails if it does not come next.
func (p *queryParser) want(token string) {
	if !p.take(token) {
		p.fail(strconv.Quote(token))
	}
}

var identifier = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)

func (p *queryParser) identifier() string {
	p.space()
	name := identifier.FindString(p.rest)
	if name == "" {
		p.fail("a name")
	}
	if p.err != nil {
		return ""
	}
	p.rest = p.rest[len(name):]
	return name
}

func (p *queryParser) query() *Query {
	q := &Query{metric: p.identifier()}
	if q.metric != "sum" {
		q.matchers = p.matchers()
		return q
	}
	q.isSum = true
	before := p.take("by")
	if before {
		q.by = p.labels()
	}
	p.want("(")
	q.metric = p.identifier()
	q.matchers = p.matchers()
	p.want(")")
	if !before && p.take("by") {
		q.by = p.labels()
	}
	return q
}

func (p *queryParser) labels() []string {
	var out []string
	p.want("(")
	for p.err == nil && !p.take(")") {
		out = append(out, p.identifier())
		if !p.take(",") {
			p.want(")")
			break
		}
	}
	return out
}

func (p *queryParser) matchers() []matcher {
	var out []matcher
	if !p.take("{") {
		return nil
	}
	for p.err == nil && !p.take("}") {
		out = append(out, p.matcher())
		if !p.take(",") {
			p.want("}")
			break
		}
	}
	return out
}

func (p *queryParser) matcher() matcher {
	m := matcher{label: p.identifier()}
	for _, operator := range []string{"=~", "!~", "!=", "="} {
		if !p.take(operator) {
			continue
		}
		value := p.quoted()
		if p.err != nil {
			return m
		}
		equal := func(s string) bool { return s == value }
		if strings.HasSuffix(operator, "~") {
			// Prometheus's patterns match whole values.
			pattern, err := regexp.Compile("^(?s:" + value + ")$")
			if err != nil {
				p.err = fmt.Errorf("the pattern of %s does not parse: %w", m.label, err)
				return m
			}
			equal = pattern.MatchString
		}
		m.holds = equal
		if operator[0] == '!' {
			m.holds = func(s string) bool { return !equal(s) }
		}
		return m
	}
	p.fail("one of =, !=, =~, !~")
	return m
}

// quoted reads a string in double quotes, single quotes or backquotes.
func (p *queryParser) quoted() string {
	p.space()
	if p.rest == "" || !strings.ContainsRune("\"'`", rune(p.rest[0])) {
		p.fail("a quoted string")
		return ""
	}
	quote := p.rest[0]
	if quote == '`' {
		value, rest, ok := strings.Cut(p.rest[1:], "`")
		if !ok {
			p.fail("a closed string")
			return ""
		}
		p.rest = rest
		return value
	}
	var value []byte
	rest := p.rest[1:]
	for rest != "" && rest[0] != quote {
		c, multibyte, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			p.fail("a string with valid escapes")
			return ""
		}
		if c < utf8.RuneSelf || !multibyte {
			value = append(value, byte(c))
		} else {
			value = utf8.AppendRune(value, c)
		}
		rest = tail
	}
	if rest == "" {
		p.fail("a closed string")
		return ""
	}
	p.rest = rest[1:]
	return string(value)
}
