// Package source reads the URIs that name models: https, http, s3, gs, oci, hf, file and pvc. It decides what a
// URI means and which are refused. It opens nothing; package fetch brings what a URI names to this machine.
// Begin reading at [Parse].
package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// The schemes of URIs.
const (
	HTTPS = "https"
	HTTP  = "http"
	S3    = "s3"
	GS    = "gs"
	OCI   = "oci"
	HF    = "hf"
	File  = "file"
	PVC   = "pvc"
)

// Schemes lists the schemes that [Parse] knows, as the documents do.
func Schemes() []string { return []string{HTTPS, HTTP, S3, GS, OCI, HF, File, PVC} }

const (
	// maxURI is the maximum length of a URI in bytes. Presigned ones have some 1,500.
	maxURI = 4096
	// sumKey begins the fragment that has the content's hash, and sumDigits is its length.
	sumKey    = "sha256="
	sumDigits = 64
	// DefaultRevision is the revision of a repository of the hub that a URI does not name.
	DefaultRevision = "main"
	// defaultTag is the tag of an artefact that a URI does not name.
	defaultTag = "latest"
)

// URI is where a model is. The zero value is none.
type URI struct {
	// Scheme is one of [Schemes].
	Scheme string
	// Host is the host, with its port if the URI has one, of https, http and oci; the bucket of s3 and gs; the
	// claim of pvc. It is "" for the others.
	Host string
	// Repository is owner/name of hf, and the repository of oci.
	Repository string
	// Revision is the revision of hf, and the tag or the digest (sha256:…) of oci.
	Revision string
	// Path is the file, or the folder if it ends in "/" or is "": the path of https and http with its leading "/",
	// the key of s3 and gs, the file of hf and pvc, and the absolute path of file.
	Path string
	// Query is the query of https and http as it is written, without "?".
	Query string
	// Endpoint is the address of the server of s3, gs and hf, such as https://minio.example.com:9000, "" for the
	// public one. Region is that of s3, "" for the server's default.
	Endpoint, Region string
	// Sum is the SHA-256 of the file in lower-case hexadecimal digits, "" if the URI does not say.
	Sum string
}

// Is reports whether the text is meant as a URI, and not as the path of a file in a bundle.
func Is(text string) bool { return strings.Contains(text, "://") }

// Folder reports whether the URI names all files below a prefix.
func (u URI) Folder() bool {
	switch u.Scheme {
	case S3, GS, HF, File, PVC:
		return u.Path == "" || strings.HasSuffix(u.Path, "/")
	}
	return false
}

// Name is the last part of the path, "" for a folder and an artefact.
func (u URI) Name() string {
	if u.Folder() || u.Scheme == OCI {
		return ""
	}
	return path.Base(u.Path)
}

// String returns the URI without its query, which may be a credential, and without its sum.
func (u URI) String() string {
	switch u.Scheme {
	case "":
		return ""
	case HTTPS, HTTP:
		return u.Scheme + "://" + u.Host + u.Path
	case OCI:
		separator := ":"
		if strings.Contains(u.Revision, ":") {
			separator = "@"
		}
		return u.Scheme + "://" + u.Host + "/" + u.Repository + separator + u.Revision
	case HF:
		return u.Scheme + "://" + u.Repository + "@" + u.Revision + "/" + u.Path
	case File:
		return u.Scheme + "://" + u.Path
	}
	return u.Scheme + "://" + u.Host + "/" + u.Path
}

// Key identifies what the URI names: two URIs with one key name one thing. It has the query, and not the sum.
func (u URI) Key() string {
	return u.String() + "\n" + u.Query + "\n" + u.Endpoint + "\n" + u.Region
}

// Parse reads a URI. The error is the end of a sentence about it: what it must be.
func Parse(text string) (URI, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	switch {
	case !ok || !slices.Contains(Schemes(), scheme):
		return URI{}, fmt.Errorf("it must begin with %s://", strings.Join(Schemes(), "://, "))
	case len(text) > maxURI:
		return URI{}, fmt.Errorf("it must have at most %d characters", maxURI)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd || r == '\\' }):
		return URI{}, errors.New(`it must have no spaces, control characters or backslashes; write a space in a name as %20`)
	}
	rest, fragment, tagged := strings.Cut(rest, "#")
	u := URI{Scheme: scheme}
	if tagged {
		sum, is := strings.CutPrefix(fragment, sumKey)
		if _, err := hex.DecodeString(sum); !is || err != nil || len(sum) != sumDigits {
			return URI{}, errors.New("what follows # must be sha256= and the 64 hexadecimal digits that sha256sum prints for the file")
		}
		u.Sum = strings.ToLower(sum)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if err := u.setQuery(query); err != nil {
		return URI{}, err
	}
	if err := u.setPlace(rest); err != nil {
		return URI{}, err
	}
	switch {
	case u.Sum != "" && u.Scheme == OCI:
		return URI{}, errors.New("an artefact has a digest instead of #sha256=; write it as oci://HOST/REPOSITORY@sha256:…")
	case u.Sum != "" && u.Folder():
		return URI{}, errors.New("#sha256= is for a file, and this is a folder; name a file, or an archive of the folder")
	}
	return u, nil
}

// setPlace reads what stands between the scheme and the query.
func (u *URI) setPlace(rest string) error {
	if strings.Contains(strings.SplitN(rest, "/", 2)[0], "@") && u.Scheme != HF && u.Scheme != OCI {
		return errors.New("it must have no name or password, because everybody sees annotations; put them into a secret of the function")
	}
	switch u.Scheme {
	case HTTPS, HTTP:
		return u.setWeb(rest)
	case OCI:
		return u.setArtefact(rest)
	case HF:
		return u.setHub(rest)
	case File:
		return u.setFile(rest)
	}
	return u.setBucket(rest)
}

// setWeb reads HOST/PATH of https and http.
func (u *URI) setWeb(rest string) error {
	host, below, _ := strings.Cut(rest, "/")
	if err := checkHost(host); err != nil {
		return err
	}
	if below == "" || strings.HasSuffix(below, "/") {
		return errors.New("it must name a file; a folder of files needs s3, gs or hf, or an archive such as model.zip")
	}
	if _, err := url.PathUnescape(below); err != nil {
		return errors.New("% in it must be followed by two hexadecimal digits")
	}
	u.Host, u.Path = strings.ToLower(host), "/"+below
	return nil
}

// bucketName is what S3 and Google Storage take for a bucket, and Kubernetes for a claim.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,61}[a-z0-9]$|^[a-z0-9]$`)

// setBucket reads BUCKET/KEY of s3 and gs, and CLAIM/PATH of pvc.
func (u *URI) setBucket(rest string) error {
	bucket, key, _ := strings.Cut(rest, "/")
	if !bucketName.MatchString(bucket) || strings.Contains(bucket, "..") {
		what := "bucket"
		if u.Scheme == PVC {
			what = "claim"
		}
		return fmt.Errorf("what follows %s:// must be the name of a %s: lower-case letters, digits, '-' and '.'", u.Scheme, what)
	}
	key, err := decode(key)
	u.Host, u.Path = bucket, key
	return err
}

// hubName is one part of a repository's name on the hub.
var hubName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)

// setHub reads OWNER/NAME[@REVISION]/FILE of hf.
func (u *URI) setHub(rest string) error {
	owner, rest, _ := strings.Cut(rest, "/")
	name, file, _ := strings.Cut(rest, "/")
	name, revision, pinned := strings.Cut(name, "@")
	if !hubName.MatchString(owner) || !hubName.MatchString(name) {
		return errors.New("it must be hf://OWNER/NAME/FILE, or hf://OWNER/NAME@REVISION/FILE")
	}
	if !pinned {
		revision = DefaultRevision
	}
	if !hubName.MatchString(revision) {
		return errors.New("what follows @ must be a branch, a tag or a commit of the repository")
	}
	file, err := decode(file)
	u.Repository, u.Revision, u.Path = owner+"/"+name, revision, file
	return err
}

var (
	// repositoryName and tagName are those of the OCI distribution specification.
	repositoryName = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	tagName        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestName     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// setArtefact reads HOST/REPOSITORY[:TAG|@DIGEST] of oci.
func (u *URI) setArtefact(rest string) error {
	host, repository, _ := strings.Cut(rest, "/")
	if err := checkHost(host); err != nil {
		return err
	}
	revision := defaultTag
	if name, digest, pinned := strings.Cut(repository, "@"); pinned {
		if !digestName.MatchString(digest) {
			return errors.New("what follows @ must be a digest: sha256: and 64 lower-case hexadecimal digits")
		}
		name, _, _ = strings.Cut(name, ":") // The digest says more than the tag.
		repository, revision = name, digest
	} else if name, tag, tagged := strings.Cut(repository, ":"); tagged {
		repository, revision = name, tag
		if !tagName.MatchString(tag) {
			return errors.New("what follows the last : must be a tag: at most 128 letters, digits, '_', '.' and '-'")
		}
	}
	if !repositoryName.MatchString(repository) {
		return errors.New("it must be oci://HOST/REPOSITORY:TAG with a repository of lower-case letters, digits and '/', '.', '_' and '-' between them")
	}
	u.Host, u.Repository, u.Revision = strings.ToLower(host), repository, revision
	return nil
}

// setFile reads the path of file.
func (u *URI) setFile(rest string) error {
	if !strings.HasPrefix(rest, "/") {
		return errors.New("it must have an absolute path, as file:///srv/models/model.onnx")
	}
	below, err := decode(rest[1:])
	u.Path = "/" + below
	return err
}

// decode returns the text of a path with its escapes resolved. It refuses parts that lead elsewhere.
func decode(escaped string) (string, error) {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return "", errors.New("% in it must be followed by two hexadecimal digits")
	}
	if strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd || r == '\\' }) {
		return "", errors.New("its path must be text without control characters and backslashes")
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(plain, "/"), "/") {
		if plain != "" && (part == "" || part == "." || part == "..") {
			return "", errors.New("its path must have no empty part, and neither . nor ..")
		}
	}
	return plain, nil
}

// setQuery reads the options of the URI, which https and http pass on to their servers.
func (u *URI) setQuery(query string) error {
	if u.Scheme == HTTPS || u.Scheme == HTTP {
		u.Query = query
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("what follows ? must be options such as endpoint=https://minio.example.com")
	}
	known := map[string]*string{}
	switch u.Scheme {
	case S3:
		known = map[string]*string{"endpoint": &u.Endpoint, "region": &u.Region}
	case GS, HF:
		known = map[string]*string{"endpoint": &u.Endpoint}
	}
	for key, value := range values {
		into, is := known[key]
		if !is || len(value) != 1 {
			return fmt.Errorf("?%s is no option of %s://; s3 has endpoint and region, gs and hf have endpoint", key, u.Scheme)
		}
		*into = value[0]
	}
	if u.Region != "" && !tagName.MatchString(u.Region) {
		return errors.New("region must be a name such as eu-central-1")
	}
	if u.Endpoint == "" {
		return nil
	}
	u.Endpoint, err = ParseEndpoint(u.Endpoint)
	return err
}

// ParseEndpoint reads the address of a server: a URL of https or http without a path. The error is the end of a
// sentence about it.
func ParseEndpoint(text string) (string, error) {
	e, err := url.Parse(text)
	if err != nil || e.Scheme != HTTPS && e.Scheme != HTTP || e.User != nil || e.RawQuery != "" || e.Fragment != "" || strings.Trim(e.Path, "/") != "" {
		return "", errors.New("endpoint must be the address of a server, such as https://minio.example.com:9000")
	}
	return e.Scheme + "://" + strings.ToLower(e.Host), checkHost(e.Host)
}

// checkHost refuses what is no host with an optional port.
func checkHost(host string) error {
	parsed, err := url.Parse("//" + host)
	if host == "" || err != nil || parsed.User != nil || parsed.Host != host || parsed.Hostname() == "" || strings.ContainsAny(host, "/?#%") {
		return errors.New("it must have the name of a host after ://, such as models.example.com")
	}
	return nil
}
