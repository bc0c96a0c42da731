package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/faas-infer/faas-infer/model/source"
)

// The media types of manifests and indexes that registries have.
var manifestTypes = []string{
	"application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json",
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
}

// The annotations of a layer that name its file: of ORAS, and of ModelPack.
const (
	titleAnnotation  = "org.opencontainers.image.title"
	packAnnotation   = "org.cncf.model.filepath"
	unpackAnnotation = "io.deis.oras.content.unpack"
)

// artefact is a manifest or an index of a registry.
type artefact struct {
	Manifests []struct {
		Digest   string
		Platform *struct{ OS, Architecture string }
	}
	Layers []layer
	Config struct{ MediaType string }
}

// layer is a file of an artefact, or a folder in an archive.
type layer struct {
	MediaType, Digest string
	Size              int64
	Annotations       map[string]string
}

// registry is a repository of a registry.
type registry struct {
	client     *Client
	base       string
	repository string
	// login is "name:password", "" for none. token is what the registry has given for it.
	login, token string
}

// lookArtefact asks a registry for the files of an artefact.
func (c *Client) lookArtefact(ctx context.Context, u source.URI, with Credentials) (*Finding, error) {
	host := u.Host
	if registryName(host) == dockerHub {
		host = dockerHubServer
	}
	g := &registry{client: c, base: "https://" + host, repository: u.Repository, login: with.logins[registryName(u.Host)]}
	if onThisMachine(u.Host) { // As other clients of registries do.
		g.base = "http://" + u.Host
	}
	digest, m, err := g.manifest(ctx, u.Revision)
	if err == nil && len(m.Manifests) > 0 {
		digest, err = chosen(m)
		if err == nil {
			digest, m, err = g.manifest(ctx, digest)
		}
	}
	if err != nil {
		return nil, err
	}
	found := &Finding{Tag: digest}
	for _, l := range m.Layers {
		o, err := g.object(l)
		if err != nil {
			return nil, err
		}
		if o != nil {
			found.Objects = append(found.Objects, o)
		}
	}
	if len(found.Objects) == 0 {
		return nil, Fatal{fmt.Errorf("the artefact has no layer with a model: each needs the annotation "+
			"%s or %s with the name of its file; a container image belongs into the function's image "+
			"instead", titleAnnotation, packAnnotation)}
	}
	if len(found.Objects) > MaxFiles {
		return nil, Fatal{fmt.Errorf("the artefact has %d files, and at most %d are "+
			"taken", len(found.Objects), MaxFiles)}
	}
	return found, nil
}

// dockerHub is the name of Docker's registry, and dockerHubServer the host that answers.
const dockerHub, dockerHubServer = "docker.io", "registry-1.docker.io"

// registryName returns the one name of a registry that has several.
func registryName(host string) string {
	switch host = strings.ToLower(host); host {
	case "index.docker.io", dockerHubServer:
		return dockerHub
	}
	return host
}

// onThisMachine reports whether a registry is one of this machine, which has no certificate.
func onThisMachine(host string) bool {
	address := url.URL{Host: host}
	ip, err := netip.ParseAddr(address.Hostname())
	return address.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// chosen returns the digest of an index' manifest for this platform, or of the only one for none.
func chosen(index artefact) (digest string, err error) {
	var others []string
	for _, m := range index.Manifests {
		switch p := m.Platform; {
		case p == nil || p.OS == "" || p.OS == "unknown":
			digest = first(digest, m.Digest)
		case p.OS == runtime.GOOS && p.Architecture == runtime.GOARCH:
			return m.Digest, nil
		default:
			others = append(others, p.OS+"/"+p.Architecture)
		}
	}
	if digest == "" {
		return "", Fatal{fmt.Errorf("the index has %s, and nothing for %s/%s", strings.Join(others, ", "+
			""), runtime.GOOS, runtime.GOARCH)}
	}
	return digest, nil
}

// manifest reads a manifest or an index, and verifies it if it is named by its digest.
func (g *registry) manifest(ctx context.Context, name string) (digest string, m artefact, err error) {
	a, text, err := g.text(ctx, "/manifests/"+name, strings.Join(manifestTypes, ", "))
	if err != nil {
		return "", m, err
	}
	digest = "sha256:" + Hash(string(text))
	if strings.HasPrefix(name, "sha256:") && name != digest {
		return "", m, Fatal{fmt.Errorf("%s sent a manifest with the digest %s instead of "+
			"%s", a.Request.URL.Host, digest, name)}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return "", m, Fatal{fmt.Errorf("%s does not answer as a registry does: %w", a.Request.URL.Host, err)}
	}
	return digest, m, nil
}

// text reads a small answer, after a login if the registry asks for one.
func (g *registry) text(ctx context.Context, below, accept string) (*answer, []byte, error) {
	for again := false; ; again = true {
		r, err := g.request(ctx, below)
		if err != nil {
			return nil, nil, Fatal{err}
		}
		r.Header.Set("Accept", accept)
		a, text, err := g.client.text(r, RegistrySecret)
		if a == nil || a.StatusCode != http.StatusUnauthorized || again {
			return a, text, err
		}
		if failed := g.logIn(ctx, a.Header.Get("WWW-Authenticate")); failed != nil {
			return nil, nil, failed
		}
	}
}

// request makes a request of the repository with the token or the login.
func (g *registry) request(ctx context.Context, below string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.base+"/v2/"+g.repository+below, nil)
	if err != nil {
		return nil, err
	}
	switch name, password, _ := strings.Cut(g.login, ":"); {
	case g.token != "":
		r.Header.Set("Authorization", "Bearer "+g.token)
	case g.login != "":
		r.SetBasicAuth(name, password)
	}
	return r, nil
}

// challenge is a parameter of WWW-Authenticate.
var challenge = regexp.MustCompile(`(realm|service|scope)="([^"]*)"`)

// logIn gets the token that a registry asks for.
func (g *registry) logIn(ctx context.Context, asked string) error {
	if !strings.HasPrefix(strings.ToLower(asked), "bearer ") {
		return nil // The answer says that the login is wrong or missing.
	}
	said := map[string]string{}
	for _, m := range challenge.FindAllStringSubmatch(asked, -1) {
		said[m[1]] = m[2]
	}
	to, err := url.Parse(said["realm"])
	if err != nil || to.Scheme != source.HTTPS && !strings.HasPrefix(g.base, source.HTTP+"://") {
		return Fatal{errors.New("its registry asks for a login at an address that is not https://")}
	}
	query := to.Query()
	query.Set("service", said["service"])
	query.Set("scope", first(said["scope"], "repository:"+g.repository+":pull"))
	to.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return Fatal{err}
	}
	if name, password, is := strings.Cut(g.login, ":"); is {
		r.SetBasicAuth(name, password)
	}
	_, text, err := g.client.text(r, RegistrySecret)
	if err != nil {
		return err
	}
	var given struct {
		Token       string
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return Fatal{fmt.Errorf("%s does not answer a login as registries do: %w", to.Host, err)}
	}
	g.token = first(given.Token, given.AccessToken)
	return nil
}

// The media types of ModelPack's layers that are no part of the model.
var leftOut = regexp.MustCompile(`^application/vnd\.cncf\.model\.(doc|code|dataset)\.`)

// object returns the file of a layer, nil for one that is no part of a model.
func (g *registry) object(l layer) (*Object, error) {
	name := first(l.Annotations[packAnnotation], l.Annotations[titleAnnotation])
	packed := l.Annotations[unpackAnnotation] == "true" || strings.HasPrefix(l.MediaType, "application/vnd.cncf.model.") && strings.Contains(l.MediaType, ".tar")
	if name == "" && !packed || leftOut.MatchString(l.MediaType) {
		return nil, nil
	}
	sum, is := strings.CutPrefix(l.Digest, "sha256:")
	if !is || !isDigest(sum, 64) || l.Size < 0 {
		return nil, Fatal{fmt.Errorf("a layer has the digest %q; it must be sha256: with 64 digits", l.Digest)}
	}
	short, err := below("", strings.TrimPrefix(path.Clean("/"+name), "/"))
	if err != nil || strings.Contains(name, "..") {
		return nil, Fatal{fmt.Errorf("a layer has the file %q, whose name leads out of the model", name)}
	}
	o := &Object{Name: first(short, "layer-"+sum[:12]), Original: path.Base(name), Size: l.Size, Sum: sum, Packed: packed}
	o.Open = remote{client: g.client, secret: RegistrySecret, renew: g.logIn, request: func(ctx context.Context) (*http.Request, error) {
		return g.request(ctx, "/blobs/"+l.Digest)
	}}.opener(o)
	return o, nil
}
