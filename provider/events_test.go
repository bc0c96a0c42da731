package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The route answers the decisions that the query asks for, and those of the server itself are among them.
func TestEvents(t *testing.T) {
	l := decisions.NewLog()
	r := newRig(t, func(o *Options) { o.Decisions = l })
	events := func(query string) Events {
		t.Helper()
		w := r.do("GET", "/system/events"+query, "")
		var out Events
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 || out.Events == nil {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		return out
	}
	events("")
	r.deploy(t, nil)
	r.deploy(t, func(d *types.FunctionDeployment) { d.Image = "other:v2" })
	r.do("POST", "/system/scale-function/mnist", `{"replicas":2}`)
	r.controller.refuse = web.Refuse(400, "model <b>/tmp/x/model.onnx</b> has no batch dimension")
	r.do("POST", "/system/functions", deployment(nil))
	r.controller.refuse = nil
	l.Add(r.now(), "f.team", decisions.Start, decisions.Fields{Instances: 1})
	r.do("DELETE", "/system/functions", `{"functionName":"mnist"}`)
	all := events("")
	var got []string
	for _, e := range all.Events {
		got = append(got, fmt.Sprint(e.ID, " ", e.Function, ".", e.Namespace, " ", e.Kind, ": ", e.Text))
	}
	want := `1 mnist.openfaas-fn deploy: Deployed image mnist:latest as revision 1.
2 mnist.openfaas-fn update: Updated to image other:v2 as revision 2.
3 mnist.openfaas-fn scale: Set the number of instances to keep to 2.
4 mnist.openfaas-fn reject: Refused to deploy image mnist:latest: model <b>…/model.onnx</b> has no batch dimension.
5 f.team start: Started an instance.
6 mnist.openfaas-fn delete: Removed the function.`
	if text := strings.Join(got, "\n"); text != want || all.Next != 6 {
		t.Errorf("next %d\n%s", all.Next, text)
	}
	for query, n := range map[string]int{
		"?function=mnist": 5, "?function=mnist.openfaas-fn": 5, "?function=mnist&namespace=team": 0, "?namespace=team": 1, "?since=4": 2,
		"?since=6": 0, "?since=99": 6, "?limit=2": 2, "?limit=0": 1, "?since=2&function=mnist&limit=5000": 3,
	} {
		if found := events(query); len(found.Events) != n || found.Next != 6 {
			t.Errorf("%s: %d events, next %d", query, len(found.Events), found.Next)
		}
	}
	for _, query := range []string{"?since=-1", "?since=x", "?limit=1.5", "?function=mnist.", "?function=mnist.a&namespace=b", "?since=99999999999999999999"} {
		wantSentence(t, r.do("GET", "/system/events"+query, ""), 400)
	}
	if w := r.do("POST", "/system/events", ""); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// The route of uploads passes bodies on, and says what to do where there is nobody who takes them.
func TestUploadRoute(t *testing.T) {
	wantSentence(t, newRig(t, nil).do("POST", "/system/upload?name=a", "x"), 501, "--payload-secret", "image function")
	r := newRig(t, func(o *Options) {
		o.Upload = func(w http.ResponseWriter, r *http.Request) error {
			_, err := fmt.Fprint(w, r.URL.Query().Get("name"), readAll(t, r.Body))
			return err
		}
	})
	if w := r.do("POST", "/system/upload?name=a", strings.Repeat("x", maxSystemBody+1)); w.Code != 200 || w.Body.Len() != maxSystemBody+2 {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
	if w := r.do("GET", "/system/upload?name=a", ""); w.Code != 405 {
		t.Errorf("GET: %d", w.Code)
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSentence(t, r.do("POST", "/system/upload?name=a", "x"), 503)
}
