package kubernetes_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// shadowed deploys the test's model with the annotation com.openfaas.infer.shadow.
const shadowed = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: %s, namespace: openfaas-fn}
spec:
  image: functions/shadowed:latest
  readOnlyRootFilesystem: true
  requests: {cpu: 400m}
  limits: {cpu: 400m}
  annotations: {com.openfaas.slo.latency: 10s, com.openfaas.infer.max-batch: "1", com.openfaas.infer.shadow: "%s"}
  labels: {com.openfaas.scale.min: "1", com.openfaas.scale.max: "1"}
`

// elements is the size of the model's answer in bytes.
const elements = 4 * 1000

// sampleRow returns the body and the header of a request with a row for the model of [shadowed].
func sampleRow(t *testing.T) (body []byte, header http.Header) {
	t.Helper()
	m, err := zoo.Make("resnet-20", 1)
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := m.SampleInputs(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	body, length, err := load.EncodeBinary(inputs)
	if err != nil {
		t.Fatal(err)
	}
	return body, http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
}

// A body in a pod gets a shadow in a pod beside it under load, which maps the same copy of the model. Every
// answer is the whole model's to the last bit, also while shadows and the body are deleted. The next provider
// takes the pair over, and nothing is left after the deletion. The shadow is the only way to serve more: the quota is as
// high as it may be, and a second instance is not allowed.
func TestShadows(t *testing.T) {
	f := shared(t)
	f.shareCopies(t, "resnet-20", "functions/shadowed:latest", 10*time.Second)
	state := t.TempDir() // With the operators' times, which both providers need.
	url := f.provider(t, "first", "--copies", "openfaas-fn", "--state", state, "--lease-duration", "5s")
	body, header := sampleRow(t)
	ask := func(name string) (answer []byte, err error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/function/"+name+".openfaas-fn", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header = header
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, err
		}
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		if err == nil && (got.StatusCode != http.StatusOK || len(text) < elements) {
			err = fmt.Errorf("%d %.300s", got.StatusCode, text)
		}
		if err != nil {
			return nil, err
		}
		return text[len(text)-elements:], nil
	}
	answered := func(name string) (answer []byte) {
		t.Helper()
		await(t, "an answer of "+name, func() (err error) {
			answer, err = ask(name)
			return err
		})
		return answer
	}
	f.kubectl(t, fmt.Sprintf(shadowed, "whole", "off"), "apply", "-f", "-")
	want := answered("whole")
	f.kubectl(t, "", "-n", "openfaas-fn", "delete", "function", "whole")

	f.kubectl(t, fmt.Sprintf(shadowed, "pairs", "auto"), "apply", "-f", "-")
	if got := answered("pairs"); !bytes.Equal(got, want) {
		t.Error("alone, the body's answer differs")
	}
	profiled := func() {
		t.Helper()
		await(t, "the layers' profile", func() error {
			if plan := f.plan(t, url); !strings.Contains(plan, "holds the blocks") {
				return errors.New(plan)
			}
			return nil
		})
	}
	profiled()
	if plan := f.plan(t, url); !strings.Contains(plan, "they start where that is the cheapest") {
		t.Errorf("auto is described as %s", plan)
	}
	answered("pairs")    // By the instance that may have shadows.
	fastest := time.Hour // Where others take the cores meanwhile, the mean would be too little load later.
	for range 10 {
		began := time.Now()
		answered("pairs")
		fastest = min(fastest, time.Since(began))
	}
	rate := 1.4 / fastest.Seconds()
	const loaded = 9 * time.Second
	under := func(d time.Duration, during func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			during(ctx)
		}()
		r, err := load.Run(t.Context(), load.Options{Duration: d, Seed: 1, Targets: []load.Target{{
			Name: "pairs", URL: url + "/function/pairs.openfaas-fn", Rate: rate, Header: header, Body: load.Cycle(body),
			Verify: func(_ int, answer []byte) error {
				if len(answer) < elements || !bytes.Equal(answer[len(answer)-elements:], want) {
					return errors.New("the answer differs from the whole model's")
				}
				return nil
			},
		}}})
		<-done
		if err != nil {
			t.Fatal(err)
		}
		x := r.Targets[0]
		t.Logf("of %d requests at %.1f/s %d were answered, %d refused %v; p50 %v, max %v; the shadows computed %s rows",
			x.Requests, rate, x.Good, x.Refused, x.Codes, x.Latency.P50, x.Latency.Max, f.rows(t, url))
		if x.Wrong > 0 || x.Failed > 0 || x.Dropped > 0 {
			t.Errorf("%d wrong, %d without an answer, %d not sent: %v", x.Wrong, x.Failed, x.Dropped, x.FirstError)
		}
		for code, n := range x.Codes {
			if code != http.StatusOK && code != http.StatusServiceUnavailable && code != http.StatusTooManyRequests {
				t.Errorf("%d requests were answered with %d", n, code)
			}
		}
	}
	deleted := 0
	under(loaded, func(ctx context.Context) {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(2500 * time.Millisecond):
			}
			for _, name := range f.pairPods(t, "shadow") {
				if _, err := f.Kubectl(context.WithoutCancel(ctx), "", "-n", "openfaas-fn", "delete", "pod", name, "--grace-period=0", "--force"); err == nil {
					deleted++
				}
			}
		}
	})
	t.Logf("%d shadows deleted; %s", deleted, f.plan(t, url))
	if deleted < 2 {
		t.Errorf("%d shadows were there to delete", deleted)
	}
	first := f.pairPods(t, "body")
	under(6*time.Second, func(ctx context.Context) {
		<-time.After(time.Second)
		if _, err := f.Kubectl(context.WithoutCancel(ctx), "", "-n", "openfaas-fn", "delete", "pod", first[0], "--grace-period=0", "--force"); err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(moment); f.pair(first[0]) != nil && time.Now().Before(end); {
		under(3*time.Second, func(context.Context) {}) // Without load nobody needs a shadow.
	}
	if f.rows(t, url) == "" { // Shadows that are killed every 2.5 s need not have computed any.
		t.Error("no shadow computed a row")
	}
	if err := f.pair(first[0]); err != nil {
		t.Errorf("there is no pair with another body than %s: %v", first[0], err)
	}

	before := f.pairPods(t, "shadow")
	f.killProvider()
	url = f.provider(t, "second", "--copies", "openfaas-fn", "--state", state, "--lease-duration", "5s")
	profiled()
	// It leads when the lease of the first one has ended, and counts from its first question to the body.
	for end := time.Now().Add(moment); f.rows(t, url) == "" && time.Now().Before(end); {
		under(4*time.Second, func(context.Context) {})
	}
	if after := f.pairPods(t, "shadow"); f.rows(t, url) == "" || strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("after the provider's restart there are the shadows %v instead of %v, and they computed %q rows", after, before, f.rows(t, url))
	}
	t.Logf("the shadow's pod: %s", f.started(t))
	f.kubectl(t, "", "-n", "openfaas-fn", "delete", "function", "pairs")
	await(t, "the pods to go", func() error {
		pods, err := f.Kubectl(t.Context(), "", "-n", "openfaas-fn", "get", "pods", "-o", "name")
		if err == nil && pods != "" {
			err = errors.New(pods)
		}
		return err
	})
}

// started says when the shadow's pod was made, and when it was ready.
func (f *fixture) started(t *testing.T) string {
	t.Helper()
	text, err := f.Kubectl(t.Context(), "", "-n", "openfaas-fn", "get", "pods", "-l", "faas-infer.dev/pair=shadow", "-o",
		`jsonpath={range .items[*]}made {.metadata.creationTimestamp}, ready {.status.conditions[?(@.type=="Ready")].lastTransitionTime}{"\n"}{end}`)
	if err != nil {
		t.Log(err)
	}
	return text
}

// plan returns what the description of the pairs says.
func (f *fixture) plan(t *testing.T, url string) string {
	t.Helper()
	text, err := get(t.Context(), http.MethodGet, url+"/system/function/pairs?namespace=openfaas-fn", "")
	if err != nil {
		t.Log(err)
	}
	return text
}

// rows returns the number of rows that shadows computed, "" for none.
func (f *fixture) rows(t *testing.T, url string) string {
	t.Helper()
	text, err := get(t.Context(), http.MethodGet, url+"/metrics", "")
	if err != nil {
		t.Log(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "faas_infer_shadow_rows_total{"); ok {
			_, value, _ = strings.Cut(value, "} ")
			if value = strings.TrimSpace(value); value != "0" {
				return value
			}
		}
	}
	return ""
}

// pairPods lists the pods with a role in a pair that do not end.
func (f *fixture) pairPods(t *testing.T, role string) (names []string) {
	t.Helper()
	text, err := f.Kubectl(context.WithoutCancel(t.Context()), "", "-n", "openfaas-fn", "get", "pods", "-l", "faas-infer.dev/pair="+role, "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	if err != nil {
		t.Log(err)
	}
	for line := range strings.Lines(text) {
		if name, ending, _ := strings.Cut(strings.TrimSpace(line), " "); name != "" && ending == "" {
			names = append(names, name)
		}
	}
	return names
}

// pair returns an error unless there is one body, which is not the one before, and its shadow, which has less
// memory and its body's label.
func (f *fixture) pair(before string) error {
	text, err := f.Kubectl(context.Background(), "", "-n", "openfaas-fn", "get", "pods", "-l", "faas-infer.dev/pair", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.faas-infer\.dev/pair} {.metadata.labels.faas-infer\.dev/body} {.spec.containers[0].resources.requests.memory}{"\n"}{end}`)
	if err != nil {
		return err
	}
	var body, whole, of string
	var part resource.Quantity
	for line := range strings.Lines(text) {
		switch field := strings.Split(strings.TrimSpace(line), " "); {
		case len(field) != 4:
			return errors.New(text)
		case field[1] == "body":
			body, whole = field[0], field[3]
		default:
			of, part = field[2], resource.MustParse(field[3])
		}
	}
	if all := resource.MustParse(cmp.Or(whole, "0")); strings.Count(text, "\n") != 2 || body == before || of != body || part.Cmp(all) >= 0 {
		return errors.New(text)
	}
	return nil
}
