package kubernetes_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// byURI is a function whose model has a URI, with a number of instances. Its image does not exist.
const byURI = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: %s, namespace: openfaas-fn}
spec:
  image: nobody/has-this:v1
  readOnlyRootFilesystem: true
  requests: {cpu: 300m}
  limits: {cpu: 300m}
  annotations: {com.openfaas.slo.latency: 20s, com.openfaas.infer.max-batch: "2", com.openfaas.infer.model: "%s"}
  labels: {com.openfaas.scale.min: "%d"}
`

// modelServer is a web server with one model. It counts the requests that got the file.
type modelServer struct {
	*httptest.Server
	file string
	sum  string
	size int64
	gets atomic.Int64
}

func serveModel(t *testing.T, f *fixture, zoo string) *modelServer {
	t.Helper()
	s := &modelServer{file: filepath.Join(t.TempDir(), "model.onnx")}
	if _, err := run(f.program("faas-infer"), "model", "make", zoo, "--out", s.file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	s.sum, s.size = hex.EncodeToString(sum[:]), int64(len(text))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+s.sum+`"`)
		counted := &countingWriter{ResponseWriter: w}
		http.ServeFile(counted, r, s.file)
		if counted.bytes > s.size/2 { // Who looks hangs up after the head.
			s.gets.Add(1)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

type countingWriter struct {
	http.ResponseWriter
	bytes int64
}

func (w *countingWriter) Write(text []byte) (int, error) {
	n, err := w.ResponseWriter.Write(text)
	w.bytes += int64(n)
	return n, err
}

// A function on a cluster has its model from a web server. The server sends it once, and the provider sends it once to
// the node, before a pod is there. All pods of the node share it, whatever their function is, and functions grow when
// neither the server nor the first provider is there any more.
func TestModelByURI(t *testing.T) {
	f := shared(t)
	root := f.shareCopies(t, "mnist", "functions/unused:latest", time.Hour)
	server := serveModel(t, f, copiedModel())
	state := t.TempDir()
	arguments := []string{"--lease", "uri", "--model-image", f.base, "--model-sources", "127.0.0.1", "--model-claims", "models=" + filepath.Dir(server.file), "--state", state}
	url := f.provider(t, "alone", arguments...)
	for what, uri := range map[string]string{
		"wrong sum":  server.URL + "/model.onnx#sha256=" + strings.Repeat("0", 64),
		"no address": "http://192.0.2.1/model.onnx#sha256=" + server.sum,
		"no claim":   "pvc://nothing/model.onnx",
	} {
		if status, text := f.deployByURI(t, url, "refused", uri); status != http.StatusBadRequest || !strings.Contains(text, "com.openfaas.infer.model") {
			t.Errorf("%s: %d %s", what, status, text)
		}
	}
	if status, text := f.deployByURI(t, url, "claimed", "pvc://models/model.onnx"); status != http.StatusAccepted {
		t.Errorf("a mounted claim: %d %s", status, text)
	}
	f.kubectl(t, "", "-n", "openfaas-fn", "delete", "function", "claimed")

	uri := server.URL + "/model.onnx"
	sent := server.gets.Load()

	// Without copies each pod gets the model. The times of such a first and second pod are for comparison.
	var all []instanceOf
	for n := 1; n <= 2; n++ {
		all = f.grown(t, "alone", uri, n, all)
		if !strings.Contains(all[n-1].log, "received the model") {
			t.Errorf("pod %d without copies says\n%s", n, all[n-1].log)
		}
	}
	f.kubectl(t, "", "-n", "openfaas-fn", "delete", "function", "alone")
	f.killProvider()
	agent := f.kubectl(t, "", "-n", "faas-infer-copies", "get", "pods", "-o", "jsonpath={.items[0].status.podIP}")
	_, err := get(t.Context(), http.MethodGet, "http://"+agent+":8080/models/openfaas-fn/"+server.sum+"/_/content", "")
	if err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("the agent answers who does not show its key: %v", err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(keyOfAgents+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments = append(arguments, "--copies", "openfaas-fn", "--copies-key", key)
	url = f.provider(t, "uri", arguments...)

	// The node has the model before the first pod is there.
	f.kubectl(t, fmt.Sprintf(byURI, "first", uri, 0), "apply", "-f", "-")
	await(t, "the model on the node", func() error {
		found, err := filepath.Glob(filepath.Join(root, "openfaas-fn", "model.*", "content-*.boot"))
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("there are %v", found)
		}
		return err
	})
	if pods := f.kubectl(t, "", "-n", "openfaas-fn", "get", "pods", "-l", "faas_function=first", "-o", "name"); pods != "" {
		t.Errorf("there are already the pods %s", pods)
	}
	all = nil
	for n := 1; n <= 2; n++ {
		all = f.grown(t, "first", uri, n, all)
		isOnNode(t, all[n-1])
	}
	if got := server.gets.Load() - sent; got != 1 {
		t.Errorf("the server has sent the model %d times", got)
	}
	await(t, "the status to have the content", func() error {
		if got := f.kubectl(t, "", "get", "function/first", "-n", "openfaas-fn", "-o", "jsonpath={.status.deployed.spec.resolved.entry}"); !strings.HasPrefix(got, "sha256-") {
			return errors.New(got)
		}
		return nil
	})
	if _, err := get(t.Context(), http.MethodGet, url+"/function/first/v2/models/first", ""); err != nil {
		t.Error(err)
	}

	// The next provider has the cache. There is no server any more, and nobody is asked: neither for another instance
	// nor for another function with the same model.
	f.killProvider()
	server.Close()
	url = f.provider(t, "next", arguments...)
	f.kubectl(t, "", "-n", "openfaas-fn", "scale", "function", "first", "--replicas", "3")
	var third instanceOf
	await(t, "the third instance", func() (err error) {
		third, err = f.newInstance(t, "first", all)
		return err
	})
	isOnNode(t, third)
	uri = server.URL + "/model.onnx#sha256=" + server.sum
	isOnNode(t, f.grown(t, "second", uri, 1, nil)[0])
	log := f.kubectl(t, "", "-n", "faas-infer-copies", "logs", "daemonset/faas-infer-copies")
	if got := strings.Count(log, "a model is on the node"); got != 1 {
		t.Errorf("the model was sent to the node %d times:\n%s", got, log)
	}
	for _, name := range []string{"first", "second"} {
		if _, err := get(t.Context(), http.MethodGet, url+"/function/"+name+"/v2/models/"+name, ""); err != nil {
			t.Error(err)
		}
	}
	if got := server.gets.Load() - sent; got != 1 {
		t.Errorf("the server has sent the model %d times", got)
	}
}

// isOnNode checks that an instance has found its model on the node, and was sent nothing.
func isOnNode(t *testing.T, in instanceOf) {
	t.Helper()
	if !strings.Contains(in.log, "the model is on the node") || strings.Contains(in.log, "received the model") {
		t.Errorf("the pod says\n%s", in.log)
	}
}

// arrival is the time in milliseconds that an instance has waited for its model, by its log.
func arrival(log string) float64 {
	for line := range strings.Lines(log) {
		var said struct {
			Message string  `json:"message"`
			Took    float64 `json:"took_ms"`
		}
		if json.Unmarshal([]byte(line), &said) == nil && said.Message == "received the model" {
			return said.Took
		}
	}
	return 0
}

// grown gives a function with a model by URI one more instance than those known, n in all.
func (f *fixture) grown(t *testing.T, name, uri string, n int, known []instanceOf) []instanceOf {
	t.Helper()
	began := time.Now()
	f.kubectl(t, fmt.Sprintf(byURI, name, uri, n), "apply", "-f", "-")
	var in instanceOf
	await(t, fmt.Sprintf("instance %d of %s", n, name), func() (err error) {
		in, err = f.newInstance(t, name, known)
		return err
	})
	t.Logf("instance %d of %s is ready %v after it was asked for, start %.0f ms, of which the model %.0f ms and its arrival %.0f ms",
		n, name, time.Since(began).Round(10*time.Millisecond), in.StartMS, in.LoadMS, arrival(in.log))
	return append(known, in)
}

// deployByURI deploys a function as faas-cli does.
func (f *fixture) deployByURI(t *testing.T, url, name, uri string) (status int, text string) {
	t.Helper()
	body := fmt.Sprintf(`{"service": %q, "image": "nobody/has-this:v1", "namespace": "openfaas-fn", "annotations": {"com.openfaas.slo.latency": "20s", "com.openfaas.infer.model": %q}}`, name, uri)
	answer, err := http.Post(url+"/system/functions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var b strings.Builder
	if err := answer.Write(&b); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, b.String()
}
