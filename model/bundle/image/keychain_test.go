package image

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

func TestKeychain(t *testing.T) {
	k, err := NewKeychain(
		[]byte(`{"auths":{"https://index.docker.io/v1/":{"username":"hub","password":"p"},"*.example.com":{"username":"any"},"r.example.com":{"username":"host"}}}`),
		[]byte(`{"auths":{"r.example.com/team":{"username":"team"},"r.example.com/team/one":{"username":"one"},"other.io:5000":{"auth":"bzpw"}}}`), []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]string{
		"alpine": "hub", "docker.io/a/b": "hub", "x.example.com/a": "any", "a.b.example.com/a": "", "r.example.com/a": "host",
		"r.example.com/team/two": "team", "r.example.com/teams/two": "host", "r.example.com/team/one": "one", "other.io:5000/a": "o", "other.io/a": "",
	} {
		ref, err := name.ParseReference(image)
		if err != nil {
			t.Fatal(err)
		}
		auth, err := k.Resolve(ref.Context())
		if err != nil {
			t.Fatal(err)
		}
		config, err := authn.Authorization(t.Context(), auth)
		if err != nil || config.Username != want {
			t.Errorf("%s is asked as %q, %v, want %q", image, config.Username, err, want)
		}
	}
	if _, err := NewKeychain([]byte(`{"auths":"my password"}`)); err == nil || strings.Contains(err.Error(), "my password") {
		t.Errorf("nonsense: %v", err)
	}
}
