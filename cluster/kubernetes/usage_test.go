package kubernetes

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/client-go/rest"
	metrics "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/faas-infer/faas-infer/cluster"
)

const usageAnswer = `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[
 {"metadata":{"name":"m-1","namespace":"n"},"containers":[
  {"name":"m","usage":{"cpu":"250m","memory":"10Mi"}},{"name":"s","usage":{"cpu":"50m","memory":"1Mi"}}]}]}`

func TestMeter(t *testing.T) {
	asked, gone := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if gone || r.URL.Path != "/apis/metrics.k8s.io/v1beta1/pods" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, usageAnswer)
	}))
	defer server.Close()
	client, err := metrics.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	now := time.Unix(0, 0)
	m := newUsageMeter(client, zerolog.New(&log), func() time.Time { return now })
	for range 3 {
		if got := m.Of(t.Context(), "n", "m-1"); got != (cluster.Resources{CPU: 300, Memory: 11 << 20}) {
			t.Errorf("usage %+v", got)
		}
	}
	if got := m.Of(t.Context(), "other", "m-1"); got != (cluster.Resources{}) || asked != 1 {
		t.Errorf("another's %+v, after %d questions", got, asked)
	}
	gone, now = true, now.Add(usageHolds)
	for range 3 {
		if got := m.Of(t.Context(), "n", "m-1"); got != (cluster.Resources{}) {
			t.Errorf("without a metrics server %+v", got)
		}
		now = now.Add(usagePause)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || asked != 4 {
		t.Errorf("said %d times, asked %d times", n, asked)
	}
	gone = false
	if got := m.Of(t.Context(), "n", "m-1"); got.CPU != 300 {
		t.Errorf("it is back: %+v", got)
	}
	if got := newUsageMeter(nil, zerolog.Nop(), time.Now).Of(t.Context(), "n", "m-1"); got != (cluster.Resources{}) {
		t.Errorf("no client: %+v", got)
	}
}
