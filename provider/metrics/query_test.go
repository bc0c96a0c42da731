package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func counted() *Metrics {
	m := New(prometheus.NewRegistry())
	for name, codes := range map[string][]int{"mnist.openfaas-fn": {200, 200, 503}, "dssm.openfaas-fn": {200}, "mnist.team-a": {400}} {
		for _, code := range codes {
			m.Function(name).Begin()
			m.Function(name).ObserveRequest(code, time.Millisecond)
		}
	}
	return m
}

func TestQueries(t *testing.T) {
	m := counted()
	for query, want := range map[string]string{
		// What the stock gateway asks for the functions of a namespace.
		`sum(gateway_function_invocation_total{function_name=~".*.openfaas-fn"}) by (function_name)`:       "dssm.openfaas-fn= 1 mnist.openfaas-fn= 3",
		`sum(gateway_function_invocation_total{function_name=~".*", code=~".*"}) by (function_name, code)`: "dssm.openfaas-fn=200 1 mnist.openfaas-fn=200 2 mnist.openfaas-fn=503 1 mnist.team-a=400 1",
		"sum by(code)(gateway_function_invocation_total)":                                                  "=200 3 =503 1 =400 1",
		`sum(gateway_function_invocation_total)`:                                                           "= 5",
		`sum(gateway_function_invocation_total{code="200",})`:                                              "= 3",
		`gateway_function_invocation_total{function_name='mnist.team-a'}`:                                  "mnist.team-a=400 1",
		"gateway_function_invocation_total { code != `200` , function_name !~ \"mnist.*-fn\"}":             "mnist.team-a=400 1",
		`gateway_function_invocation_total{function_name="mnist"}`:                                         "",
		`gateway_function_invocation_total{function_name=~"mnist"}`:                                        "",
		`gateway_function_invocation_total{absent=""}`:                                                     "dssm.openfaas-fn=200 1 mnist.openfaas-fn=200 2 mnist.openfaas-fn=503 1 mnist.team-a=400 1",
		`gateway_function_invocation_total{code="\u0032\x300"}`:                                            "dssm.openfaas-fn=200 1 mnist.openfaas-fn=200 2",
		`sum(up) by (job)`: "",
		`up`:               "",
	} {
		q, err := ParseQuery(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		var got []string
		for _, s := range q.Evaluate(m) {
			got = append(got, fmt.Sprintf("%s=%s %g", s.Metric[labelFunction], s.Metric[labelCode], s.Value))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s\n got %s\nwant %s", query, strings.Join(got, " "), want)
		}
	}
}

var badQueries = []string{"", " ", "sum", "sum(", "sum(up", "sum(up))", "up{", "up{a}", "up{a=}", `up{a="}`, `up{a="b"`,
	`up{a="b" c="d"}`, `up{a=~"("}`, `up{a="\q"}`, "up{a=`b}", "rate(up[5m])", "1+1", "up up", "sum(up) by", "sum(up) by (a",
	"sum(up) by (a b)", "sum(up) by (,)", `{a="b"}`, "up\xff", strings.Repeat("u", maxQuery+1)}

func TestBadQueries(t *testing.T) {
	for _, query := range badQueries {
		if q, err := ParseQuery(query); err == nil {
			t.Errorf("ParseQuery(%q) = %+v, want an error", query, q)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	for _, q := range badQueries {
		f.Add(q)
	}
	f.Add(`sum(gateway_function_invocation_total{function_name=~".*", code!~'x\n'}) by (function_name, code)`)
	m := counted()
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseQuery(text)
		if err != nil {
			return
		}
		if samples := q.Evaluate(m); len(samples) > 4 {
			t.Fatalf("%d samples from 4 series", len(samples))
		}
	})
}
