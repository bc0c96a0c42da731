package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// unused is a function with a model by its URI. Nothing of it runs before its first request.
const unused = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: digits, namespace: openfaas-fn}
spec:
  image: nobody/has-this:v1
  readOnlyRootFilesystem: true
  limits: {cpu: 300m}
  annotations:
    com.openfaas.slo.latency: 20s
    com.openfaas.infer.model: %q
    com.openfaas.infer.canary: "50"
`

// pods returns the pods of the function digits.
func (f *fixture) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	text := f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", ofDigits, "-o", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// cpu is what a pod asks for of a CPU, may use, and has as its node reports, and what its mark says, in millicores.
type cpu struct{ asks, may, has, mark int64 }

func cpuOf(pod *corev1.Pod) cpu {
	c := podspec.Container(pod).Resources
	of := cpu{asks: c.Requests.Cpu().MilliValue(), may: c.Limits.Cpu().MilliValue(), mark: int64(podspec.StartingCPU(pod))}
	if s := podspec.Status(pod); s != nil && s.Resources != nil {
		of.has = s.Resources.Limits.Cpu().MilliValue()
	}
	return of
}

// The provider is killed while the first pod of a function has more CPU to start with. The next one takes that back. Later
// the next revision's model is slow to come. The present revision is scaled meanwhile.
func TestStartsAndDownloadsInterrupted(t *testing.T) {
	f := shared(t)
	server := serveModel(t, f, "mnist")
	arguments := []string{"--lease", "starts", "--model-image", f.base, "--model-sources", "127.0.0.1", "--state", t.TempDir()}
	url := f.provider(t, "first", arguments...)
	f.kubectl(t, fmt.Sprintf(unused, server.URL+"/model.onnx"), "apply", "-f", "-")
	c := canaries{fixture: f, url: url}
	await(t, "the deployment", func() error {
		if got := c.condition(t, "Accepted"); !strings.HasPrefix(got, "True Deployed") {
			return errors.New(got)
		}
		return nil
	})

	go func() { _, _ = newClients(url).ask(t.Context(), "digits", blackPicture) }() // Its provider is killed.
	var stopped []int
	await(t, "the first instance", func() error {
		if stopped = testcluster.Processes("digits"); len(stopped) == 0 {
			return errors.New("it does not run")
		}
		return nil
	})
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // It may have ended.
	}
	f.killProvider()
	all := f.pods(t)
	if len(all) != 1 {
		t.Fatalf("there are %d pods", len(all))
	}
	has := cpuOf(&all[0])
	if has.asks != 900 || has.may != 900 || has.mark != 900 {
		t.Fatalf("the pod has %+v", has)
	}
	t.Logf("when the provider was killed the pod had %+v", has)

	c.url = f.provider(t, "next", arguments...)
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	began := time.Now()
	await(t, "the pod to have the CPU of its config", func() error {
		if all = f.pods(t); len(all) != 1 {
			return fmt.Errorf("there are %d pods", len(all))
		}
		if has = cpuOf(&all[0]); has.asks >= 900 || has != (cpu{has.asks, has.asks, has.asks, 0}) {
			return fmt.Errorf("it has %+v", has)
		}
		return nil
	})
	t.Logf("the pod has %+v %v after the next provider was there", has, time.Since(began).Round(time.Millisecond))
	if _, err := newClients(c.url).ask(t.Context(), "digits", blackPicture); err != nil {
		t.Error(err)
	}

	// The head and the first bytes come, and then nothing.
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(server.size))
		_, _ = w.Write(make([]byte, 1<<10))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer slow.Close()
	f.kubectl(t, fmt.Sprintf(unused, slow.URL+"/model.onnx"), "apply", "-f", "-")
	c.awaitsDownload(t)
	began = time.Now()
	f.kubectl(t, "", "-n", "openfaas-fn", "scale", "function", "digits", "--replicas", "3")
	await(t, "three instances of the present revision", func() error {
		if n := len(f.pods(t)); n != 3 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	t.Logf("three pods are there %v after kubectl scale", time.Since(began).Round(time.Millisecond))
	c.awaitsDownload(t)
	slow.CloseClientConnections()
}

// awaitsDownload waits until the object says that the model is being downloaded.
func (c canaries) awaitsDownload(t *testing.T) {
	t.Helper()
	await(t, "the download", func() error {
		if got := c.condition(t, "Accepted"); !strings.HasPrefix(got, "False Downloading") {
			return errors.New(got)
		}
		return nil
	})
}
