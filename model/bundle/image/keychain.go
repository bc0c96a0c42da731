package image

import (
	"cmp"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// credential is the login for the registries that match host, and there only for
// images below path if that is set.
type credential struct {
	host, path string
	config     authn.AuthConfig
}

// keychain finds credentials as the kubelet does: the longest matching path first.
type keychain []credential

// NewKeychain is the keychain of image pull secrets. Each config is the value of a
// secret's key .dockerconfigjson. A registry that no secret names gets no
// credentials.
func NewKeychain(configs ...[]byte) (authn.Keychain, error) {
	var k keychain
	for _, text := range configs {
		var config struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if err := json.Unmarshal(text, &config); err != nil {
			// The decoder's error might quote a password.
			return nil, errors.New(".dockerconfigjson of a pull secret is not JSON with the key auths; make the secret with `kubectl create secret docker-registry`")
		}
		for pattern, auth := range config.Auths {
			k = append(k, newCredential(pattern, auth))
		}
	}
	k.sort()
	return k, nil
}

// sort puts first what fits the fewest images.
func (k keychain) sort() {
	slices.SortStableFunc(k, func(a, b credential) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(strings.Count(a.host, "*"), strings.Count(b.host, "*")), cmp.Compare(a.host, b.host))
	})
}

func newCredential(pattern string, config authn.AuthConfig) credential {
	host, below := split(pattern)
	return credential{host, below, config}
}

// fits reports whether the credential is for an image.
func (c credential) fits(r authn.Resource) bool {
	below := strings.TrimPrefix(strings.TrimPrefix(r.String(), r.RegistryStr()), "/")
	return hostFits(c.host, r.RegistryStr()) && (c.path == "" || below == c.path || strings.HasPrefix(below, c.path+"/"))
}

// split splits a key of auths, which may be a URL, into host and path.
func split(pattern string) (host, below string) {
	_, rest, isURL := strings.Cut(pattern, "://")
	if !isURL {
		rest = pattern
	}
	host, below, _ = strings.Cut(rest, "/")
	below = strings.Trim(below, "/")
	// Docker's own clients append the API's version.
	if below == "v1" || below == "v2" {
		below = ""
	}
	if host == "docker.io" {
		host = name.DefaultRegistry
	}
	return host, below
}

// Resolve implements [authn.Keychain].
func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	for _, c := range k {
		if c.fits(r) {
			return authn.FromConfig(c.config), nil
		}
	}
	return authn.Anonymous, nil
}

// hostFits reports whether a host matches a pattern. Each part of the pattern
// between dots may have wildcards.
func hostFits(pattern, host string) bool {
	parts, of := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(parts) != len(of) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(parts[i], of[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
