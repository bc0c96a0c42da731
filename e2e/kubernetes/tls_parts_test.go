package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// twoReplicas is the provider's Service with two replicas outside of pods, at two ports of an address.
const twoReplicas = `apiVersion: v1
kind: Service
metadata: {name: faas-infer, namespace: openfaas}
spec: {ports: [{name: http, port: 8081}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: secure-0, namespace: openfaas, labels: {kubernetes.io/service-name: faas-infer}}
addressType: IPv4
ports: [{name: http, port: 8081}]
endpoints: [{addresses: [%[1]s], targetRef: {kind: Pod, namespace: openfaas, name: secure-0}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: secure-1, namespace: openfaas, labels: {kubernetes.io/service-name: faas-infer}}
addressType: IPv4
ports: [{name: http, port: 8083}]
endpoints: [{addresses: [%[1]s], targetRef: {kind: Pod, namespace: openfaas, name: secure-1}}]
`

// cutChain deploys the model of pushChain, which fits into no instance as a whole.
const cutChain = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: cut, namespace: openfaas-fn}
spec:
  image: functions/chain:latest
  limits: {memory: 304Mi}
  annotations: {com.openfaas.slo.latency: 10s, com.openfaas.infer.max-batch: "1", com.openfaas.infer.partition: auto}
  labels: {com.openfaas.scale.min: "1"}
`

// pushChain pushes the image functions/chain: products with matrices of some 190 MiB, each of which maps
// ones to ones.
func (f *fixture) pushChain(t *testing.T) {
	t.Helper()
	const width, size = 8, 4096
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	p := proto.Clone(m.Proto()).(*onnxpb.ModelProto)
	g := p.Graph
	at, out := g.Node[0].Input[0], g.Node[0].Output[0]
	for _, v := range []*onnxpb.ValueInfoProto{g.Input[0], g.Output[0]} {
		v.Type.GetTensorType().Shape.Dim[1].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: width}
	}
	g.Node = nil
	add := func(operator, into string, inputs ...string) {
		g.Node = append(g.Node, &onnxpb.NodeProto{OpType: new(operator), Name: new(into), Input: inputs, Output: []string{into}})
		at = into
	}
	product := func(name string, rows, columns int64, into string) {
		mean := binary.LittleEndian.AppendUint32(nil, math.Float32bits(1/float32(rows)))
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: new(name), Dims: []int64{rows, columns}, DataType: new(int32(onnxpb.TensorProto_FLOAT)), RawData: bytes.Repeat(mean, int(rows*columns))})
		add("MatMul", into, at, name)
	}
	product("widen", width, size, "wide")
	for i := range 3 {
		product(fmt.Sprintf("turn%d", i), size, size, fmt.Sprintf("turned%d", i))
		add("Relu", fmt.Sprintf("rectified%d", i), at)
	}
	product("narrow", size, width, out)
	if m, err = model.FromProto(p); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "chain.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", file, "--base", f.base, "--push", f.RegistryHost()+"/functions/chain:latest")
}

// answersInParts checks that a set answers as the whole model would.
func (f *fixture) answersInParts(t *testing.T) {
	t.Helper()
	await(t, "the cut model's answer", func() error {
		text, err := get(t.Context(), http.MethodPost, stockGateway+"/function/cut", `{"instances": [[1,1,1,1,1,1,1,1]]}`)
		if err != nil {
			return err
		}
		var got struct{ Predictions [][]float64 }
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Predictions) != 1 || len(got.Predictions[0]) != 8 {
			return fmt.Errorf("%s, %w", text, err)
		}
		for _, v := range got.Predictions[0] {
			if math.Abs(v-1) > 1e-3 {
				t.Fatalf("the parts answer %v instead of ones", got.Predictions)
			}
		}
		return nil
	})
	members := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function=cut", "-o",
		`jsonpath={range .items[*]}{.metadata.labels.faas-infer\.dev/member} {.spec.volumes[*].name}{"\n"}{end}`)
	if !strings.Contains(members, "master") || !strings.Contains(members, "worker") || strings.Count(members, "faas-infer-tls") != strings.Count(members, "\n")+1 {
		t.Errorf("the set's pods are\n%s", members)
	}
}

// handOn checks that each replica answers for a model, and one of them executes everything.
func (f *fixture) handOn(t *testing.T, c *certified, urls []string) {
	t.Helper()
	client := c.client(t, "")
	executed := func() (all []string) {
		for _, url := range urls {
			text, err := get(t.Context(), http.MethodGet, url+"/metrics", "")
			if err != nil {
				t.Fatal(err)
			}
			line, _ := lineWith(text, `faas_infer_batch_size_count{function="digits.openfaas-fn"`)
			all = append(all, line)
		}
		return all
	}
	before := executed()
	for _, url := range urls {
		for range 3 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.Replace(url, "http://", "https://", 1)+"/function/digits", strings.NewReader(blackPicture))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "predictions") {
				t.Errorf("%s answers %s %s, %v", url, answer.Status, text, err)
			}
		}
	}
	if after := executed(); (before[0] == after[0]) == (before[1] == after[1]) {
		t.Errorf("the replicas have executed %q before and %q after the requests: one must have executed all", before, after)
	}
}

// refuses checks what a pod of a function answers to others than the provider, and that its log says which
// certificates it refused.
func (f *fixture) refuses(t *testing.T, c *certified, function, pod, address string) {
	t.Helper()
	expired, stranger := t.TempDir(), newCertified(t)
	c.Issue(t, expired, mutualtest.Certificate{Names: []string{mutual.ProviderName}, Until: time.Now().Add(-time.Hour)})
	for _, x := range []struct {
		request, shown string
		status         int
		logged         string
	}{
		{"GET http", "", 200, ""}, {"POST http", "", 401, ""}, {"POST https", "", 401, ""}, {"POST https", c.instances, 401, ""},
		{"POST https", expired, 0, "certificate has expired"}, {"POST https", stranger.own, 0, "unknown authority"},
	} {
		method, scheme, _ := strings.Cut(x.request, " ")
		path := map[string]string{"GET": "/_/ready", "POST": "/"}[method]
		client := c.client(t, x.shown)
		client.Transport.(*http.Transport).TLSClientConfig.ServerName = mutual.InstanceName
		for tries := 0; ; tries++ {
			r, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+address+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(r)
			status, said := 0, ""
			if err == nil {
				text, _ := io.ReadAll(answer.Body)
				_ = answer.Body.Close()
				status, said = answer.StatusCode, string(text)
			}
			if status != x.status {
				t.Errorf("%s: %s with %q: %d %s %v, want %d", function, x.request, x.shown, status, said, err, x.status)
			}
			if x.logged == "" {
				break
			}
			log := f.kubectl(t, "", "logs", "-n", "openfaas-fn", pod)
			line, found := lineWith(log, x.logged)
			if found && strings.Contains(line, `"`+function+`"`) {
				break
			}
			if tries == 10 {
				t.Errorf("%s: the log has no line with %q: %s", function, x.logged, log)
				break
			}
			time.Sleep(500 * time.Millisecond) // A pod logs one of many refusals in a second.
		}
	}
}

// lineWith returns the last line of a text with a part.
func lineWith(text, part string) (line string, found bool) {
	for l := range strings.Lines(text) {
		if strings.Contains(l, part) {
			line, found = l, true
		}
	}
	return line, found
}

// pairs sends load to a body until its shadow has computed rows. Every answer is the one of the body alone.
func (f *fixture) pairs(t *testing.T, urls []string) {
	t.Helper()
	body, header := sampleRow(t)
	await(t, "the layers' profile", func() error {
		if plan := f.plan(t, stockGateway); !strings.Contains(plan, "holds the blocks") {
			return errors.New(plan)
		}
		return nil
	})
	computed := func() string { return f.rows(t, urls[0]) + f.rows(t, urls[1]) }
	var want []byte
	run := func(rate float64) load.TargetResult {
		t.Helper()
		r, err := load.Run(t.Context(), load.Options{Duration: 3 * time.Second, Seed: 1, Targets: []load.Target{{
			Name: "pairs", URL: stockGateway + "/function/pairs.openfaas-fn", Rate: rate, Header: header, Body: load.Cycle(body),
			Verify: func(_ int, answer []byte) error {
				if len(answer) < elements {
					return fmt.Errorf("the answer has %d bytes", len(answer))
				}
				if answer = answer[len(answer)-elements:]; want == nil {
					want = bytes.Clone(answer)
				}
				if !bytes.Equal(answer, want) {
					return errors.New("the answer differs")
				}
				return nil
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if x := r.Targets[0]; x.Wrong > 0 {
			t.Errorf("%d of %d answers are wrong: %v", x.Wrong, x.Requests, x.FirstError)
		}
		return r.Targets[0]
	}
	alone := run(2).Latency.P50
	for end := time.Now().Add(moment); computed() == "" && time.Now().Before(end); {
		run(min(100, 1.4/max(alone, time.Millisecond).Seconds())) // More than the body can do alone.
	}
	if computed() == "" {
		t.Errorf("the shadow computed no row: %s", f.plan(t, stockGateway))
	}
}

// distrusts checks that a provider of another authority gets no answer of the pods at first, and says why. The
// kubelet brings its certificate into the pods within seconds, and then they answer. A provider that was slower
// than that says nothing, so it is another one's turn.
func (f *fixture) distrusts(t *testing.T) {
	t.Helper()
	for range 4 {
		if f.isDistrusted(t, "digits", "echo") {
			return
		}
	}
	t.Error("four providers of other authorities got answers before a refusal")
}

// isDistrusted starts a provider of a new authority and asks functions until it has said of all that their
// pods do not know the authority. It returns false if a pod answered before.
func (f *fixture) isDistrusted(t *testing.T, names ...string) bool {
	t.Helper()
	c := newCertified(t)
	url := strings.Replace(f.provider(t, "stranger", append(c.flags(), "--service", "")...), "http://", "https://", 1)
	defer f.killProvider()
	client := c.client(t, "")
	file := f.providerLog
	says := func(parts ...string) bool {
		log, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		return slices.ContainsFunc(strings.Split(string(log), "\n"), func(line string) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		})
	}
	answers := func(name string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/function/"+name, strings.NewReader(blackPicture))
		if err != nil {
			return false
		}
		answer, err := client.Do(r)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	await(t, "its lead", func() error {
		if !says(`"leading":true`) {
			return errors.New("it does not say that it leads")
		}
		return nil
	})
	early := make(chan bool, len(names))
	for _, name := range names {
		go func() {
			for end := time.Now().Add(moment); time.Now().Before(end) && t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
				answered := answers(name)
				if refused := says(`"function":"`+name+`.openfaas-fn"`, "TLS with ", "unknown authority"); refused || answered {
					early <- !refused
					return
				}
			}
			early <- true
		}()
	}
	distrusted := true
	for range names {
		if <-early {
			distrusted = false
		}
	}
	return distrusted
}
