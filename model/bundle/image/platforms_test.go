package image

import (
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// An image says on which platforms it runs: its own, or those of its index without attestations.
func TestPlatforms(t *testing.T) {
	host, _ := serve(t)
	one := platform(t, baseImage(t))
	push(t, host+"/one:v1", one)
	r, err := Resolve(t.Context(), host+"/one:v1", nil)
	if err != nil || !slices.Equal(r.Platforms, []string{"linux/amd64"}) {
		t.Errorf("%+v, %v", r, err)
	}
	on := func(system, architecture string) mutate.IndexAddendum {
		return mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: architecture}}}
	}
	index := mutate.AppendManifests(empty.Index, on("linux", "arm64"), on("linux", "amd64"), on("unknown", "unknown"), mutate.IndexAddendum{Add: one})
	ref, err := name.ParseReference(host + "/many:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	r, err = Resolve(t.Context(), host+"/many:v1", nil)
	if err != nil || !slices.Equal(r.Platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("%+v, %v", r, err)
	}
}

// Registries at private addresses may use plain HTTP, those of IPv6 too.
func TestPrivateRegistries(t *testing.T) {
	for registry, want := range map[string]string{
		"[fd00:89::5]:5000": "http", "[fd00:89::5]": "http", "10.0.0.5:5000": "http",
		"[2001:db8:89::5]:5000": "https", "203.0.113.5:5000": "https", "registry.example.com": "https",
	} {
		r, err := newSettings(nil).parse(registry + "/team/name:tag")
		if err != nil {
			t.Errorf("%s: %v", registry, err)
			continue
		}
		if got := r.Context().Scheme(); got != want || r.Context().RegistryStr() != registry || r.Identifier() != "tag" {
			t.Errorf("%s: %s, %v", registry, got, r)
		}
	}
}
