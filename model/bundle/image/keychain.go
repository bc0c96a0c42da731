package image

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// credential is who one is at the registry, or below the part of it, that the
// pattern names.
type credential struct {
	host, path string
	config     authn.AuthConfig
}

// keychain finds credentials as the kubelet does: the longest path that fits
// first.
type keychain []credential

// NewKeychain is the keychain of image pull secrets: each config is the value of a
// secret's key .dockerconfigjson. A registry that none of them names is asked
// without credentials.
func NewKeychain(configs ...[]byte) (authn.Keychain, error) {
	var k keychain
	for _, text := range configs {
		var config struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if err := json.Unmarshal(text, &config); err != nil {
			// The text has passwords in it, and the error might quote them.
			return nil, fmt.Errorf(".dockerconfigjson of a pull secret is not JSON with the key auths, as `kubectl create secret docker-registry` makes it")
		}
		for pattern, auth := range config.Auths {
			host, below := split(pattern)
			k = append(k, credential{host, below, auth})
		}
	}
	slices.SortStableFunc(k, func(a, b credential) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(strings.Count(a.host, "*"), strings.Count(b.host, "*")), cmp.Compare(a.host, b.host))
	})
	return k, nil
}

// split takes a key of auths, which may be a URL, into host and path.
func split(pattern string) (host, below string) {
	_, rest, isURL := strings.Cut(pattern, "://")
	if !isURL {
		rest = pattern
	}
	host, below, _ = strings.Cut(rest, "/")
	below = strings.Trim(below, "/")
	// Docker's own clients write the first version of its API.
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
	below := strings.TrimPrefix(strings.TrimPrefix(r.String(), r.RegistryStr()), "/")
	for _, c := range k {
		if hostFits(c.host, r.RegistryStr()) && (c.path == "" || below == c.path || strings.HasPrefix(below, c.path+"/")) {
			return authn.FromConfig(c.config), nil
		}
	}
	return authn.Anonymous, nil
}

// hostFits reports whether a pattern, of which each part may have wildcards, is
// of a host.
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
