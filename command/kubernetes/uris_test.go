package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	sourceorigin "github.com/faas-infer/faas-infer/model/source/origin"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/children"
	"github.com/faas-infer/faas-infer/provider/store"
)

// A replica that does not lead gives up no instance that waits for its model, although it sees nothing of the leader's
// download.
func TestFollowersWaitForTheLeader(t *testing.T) {
	name := strings.Repeat("a", 64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"name":%q,"needs":"index"}`, name)
	}))
	defer server.Close()
	o := client.ElectionOptions{Config: &rest.Config{}, Namespace: "n", Name: "n", Identity: "n"}
	election, err := client.NewElection(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &uris{platform: &platform{election: election}}
	ctx, cancel := context.WithCancel(t.Context())
	signs := 0
	err = u.feed(ctx, server.Client(), cluster.InstanceSpec{}, server.URL, func(int64) {
		if signs++; signs == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || signs != 2 {
		t.Errorf("after %d signs: %v", signs, err)
	}
}

// A content that is gone is downloaded from where the latest revision of its function has it.
func TestLatestRevisionOfAContent(t *testing.T) {
	u := &uris{}
	if p, _ := u.find("c", "f.n"); p != nil {
		t.Error("an unknown content")
	}
	all := []provider.Function{{Name: "f.n", Revision: 1}, {Name: "g.n", Revision: 7}, {Name: "f.n", Revision: 2}}
	for _, f := range all {
		u.keep("c", revision{Function: &f, entry: "e"}, nil)
	}
	for function, want := range map[string]uint64{"f.n": 2, "g.n": 7} {
		if _, r := u.find("c", function); r.Function.Revision != want || r.entry != "e" {
			t.Errorf("%s: %+v", function, r)
		}
	}
	if _, r := u.find("c", "f-candidate.n"); r.Function == nil {
		t.Error("a candidate's content is unknown")
	}
}

// An instance's spec says which content it gets, also to a provider that has just started.
func TestContentOf(t *testing.T) {
	name := strings.Repeat("a", 64)
	for model, want := range map[string]string{
		inContent("onnx/model.onnx", name):     name,
		"/bundle/model.onnx@sha256:" + name:    "",
		"/bundle/model.onnx":                   "",
		podspec.ContentPath + "/a@b.onnx@else": "",
	} {
		spec := cluster.InstanceSpec{Artefact: cluster.Artefact{Model: model}}
		if got := contentOf(spec); got != want {
			t.Errorf("%s: %q", model, got)
		}
	}
	spec := cluster.InstanceSpec{Artefact: cluster.Artefact{Model: inContent("net@2/model.onnx", name)}}
	if got := fileOf(spec); got != podspec.ContentPath+"/net@2/model.onnx" || contentOf(spec) != name {
		t.Errorf("the file is %s", got)
	}
}

// The image of a function whose model has a URI is not read.
func TestImageOfAURIIsNotRead(t *testing.T) {
	d := types.FunctionDeployment{Service: "f", Image: "nobody/has-this", Annotations: &map[string]string{
		"com.openfaas.slo.latency": "1s", "com.openfaas.infer.model": "https://models.example.com/m.onnx"}}
	brought, err := new(images).brought(t.Context(), d)
	if !isURI(d) || brought != nil || err != nil {
		t.Errorf("%v, %v", brought, err)
	}
	(*d.Annotations)["com.openfaas.infer.model"] = "m.onnx"
	if isURI(d) {
		t.Error("a file is taken for a URI")
	}
}

// Who may write a function's status chooses neither another image nor files outside of the content.
func TestPlausibleContents(t *testing.T) {
	u := &uris{image: "registry.example.com/faas-infer/base:v2"}
	good := func() v1alpha1.ResolvedImage {
		return v1alpha1.ResolvedImage{Reference: "registry.example.com/faas-infer/base:v1", Directory: podspec.ContentPath,
			Entry: "sha256-1", Content: strings.Repeat("a", 64), Models: []v1alpha1.ResolvedModel{{File: "m.onnx", Hash: "h"}}}
	}
	if !u.plausible(good()) {
		t.Error("an earlier version of the image is refused")
	}
	for what, change := range map[string]func(*v1alpha1.ResolvedImage){
		"another image":     func(r *v1alpha1.ResolvedImage) { r.Reference = "registry.example.com/other/base:v2" },
		"no image":          func(r *v1alpha1.ResolvedImage) { r.Reference = "" },
		"another directory": func(r *v1alpha1.ResolvedImage) { r.Directory = "/etc" },
		"no content":        func(r *v1alpha1.ResolvedImage) { r.Content = "../x" },
		"no entry":          func(r *v1alpha1.ResolvedImage) { r.Entry = "" },
		"a file outside":    func(r *v1alpha1.ResolvedImage) { r.Models[0].File = "../m.onnx" },
		"no hash":           func(r *v1alpha1.ResolvedImage) { r.Models[0].Hash = "" },
		"no model":          func(r *v1alpha1.ResolvedImage) { r.Models = nil },
	} {
		r := good()
		if change(&r); u.plausible(r) {
			t.Errorf("%s is plausible", what)
		}
	}
}

// noSecrets has none.
type noSecrets struct{}

func (noSecrets) Value(string, string) ([]byte, error) {
	return nil, errors.New("there are no secrets")
}

// A model of TensorFlow by URI is refused when it is deployed, and the refusal says what to do. Its content is sent to no
// node.
func TestTensorFlowByURIIsRefused(t *testing.T) {
	for _, file := range []string{"../../templates/tensorflow-infer/function/model.keras", "../../templates/tensorflow-serving/function/model/1/"} {
		dir, err := filepath.Abs("../../templates")
		if err != nil {
			t.Fatal(err)
		}
		sources, err := sourceorigin.ParseSources([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "/") {
			path += "/"
		}
		d := types.FunctionDeployment{Service: "f", Namespace: "fn", Image: "f:1", Annotations: &map[string]string{
			annotation.SLOLatency: "1s", annotation.InferModel: "file://" + path,
		}}
		in, err := annotation.Parse(d)
		if err != nil {
			t.Fatal(err)
		}
		u := &uris{image: "base:1", downloads: bundles.NewDownloads(
			bundles.DownloadOptions{Dir: t.TempDir(), MaxBytes: 1 << 30, Sources: sources}, noSecrets{},
			func(string) ([]store.Function, error) { return nil, nil })}
		u.platform = &platform{ctx: t.Context(), images: &images{}}
		u.models = &imageModels{local: &children.Models{}}
		_, _, err = u.listModels(t.Context(), &provider.Function{Name: "f.fn", Revision: 1, Deployment: d, Inference: in})
		wrong := new(annotation.Error)
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "faas-infer model convert") {
			t.Errorf("%s: %v", file, err)
		}
		if len(u.contents) > 0 {
			t.Errorf("%s: it keeps the content", file)
		}
		u.platform.watching.Wait()
	}
}
