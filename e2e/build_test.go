package e2e

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/openfaas/faas-provider/types"
	"github.com/openfaas/go-sdk/builder"
)

// write writes a file and makes its directories.
func write(t *testing.T, text string, mode os.FileMode, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// closing closes the bodies of refusals and so their connections. The builder's client
// leaves them open.
type closing struct{ http.RoundTripper }

func (c closing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = answer.Body.Close()
	}
	return answer, err
}

// An archive that faas-cli's own code packs becomes a bundle under the image's name. It has
// a script that runs for each request. A second build of the same name takes effect in
// redeployed functions.
func TestRemoteBuilder(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	secret, source := filepath.Join(p.dir, "payload-secret"), filepath.Join(p.dir, "source")
	write(t, "of the builder\n", 0o600, secret)
	d := p.provider(t, suite.binary, "--payload-secret", secret)
	at, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	pack := func(script string) string {
		t.Helper()
		write(t, "name: greeter\nprocess: ./handler.sh\nmode: streaming\n", 0o644, source, "function", "bundle.yaml")
		write(t, "#!/bin/sh\n"+script+"\n", 0o755, source, "function", "handler.sh")
		file := filepath.Join(p.dir, "req.tar")
		if err := builder.MakeTar(file, source, &builder.BuildConfig{Image: "registry.example.com/team/greeter:1.0"}); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c, forBuilds := client(t), client(t)
	forBuilds.Transport, forBuilds.Timeout = closing{forBuilds.Transport}, 0 // A timeout would wait for the body, too.
	right := builder.NewFunctionBuilder(at, forBuilds, builder.WithHmacAuth("of the builder"))
	wrong := builder.NewFunctionBuilder(at, forBuilds, builder.WithHmacAuth("of somebody else"))
	if result, err := wrong.Build(pack("echo wrong")); err == nil || result.Status == builder.BuildSuccess {
		t.Errorf("built with a wrong signature: %+v, %v", result, err)
	}
	f := types.FunctionDeployment{Service: "greeter", Image: "registry.example.com/team/greeter:1.0", Namespace: defaultNamespace}
	if a := d.put(t, http.MethodPost, f); a.status != http.StatusBadRequest {
		t.Errorf("an image that was not built was deployed: %d %s", a.status, a.body)
	}
	for _, greeting := range []string{"hello", "good morning"} {
		result, err := right.Build(pack("read name; echo " + greeting + ", $name"))
		if err != nil || result.Status != builder.BuildSuccess || result.Image != f.Image {
			t.Fatalf("%+v, %v", result, err)
		}
		d.deploy(t, f)
		d.await(t, patience, greeting, func() bool {
			a := do(t, c, http.MethodPost, d.function("greeter"), []byte("Ada\n"))
			return a.body == greeting+", Ada\n"
		})
	}
	// The bundle is a directory that a person can look into.
	text := readAll(filepath.Join(p.bundles, "registry.example.com", "team", "greeter", "1.0", "handler.sh"))
	wantWords(t, text, "good morning")
	d.stop(t)
}
