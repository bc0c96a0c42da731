package origin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/faas-infer/faas-infer/model/source"
)

// hubEndpoint is the address of Hugging Face's hub.
const hubEndpoint = "https://huggingface.co"

// lookHub asks the hub for a file, or for all below a folder of a repository.
func (c *Client) lookHub(ctx context.Context, u source.URI, with Credentials) (*Finding, error) {
	endpoint := first(u.Endpoint, hubEndpoint)
	file := func(revision, name string) remote {
		address := endpoint + "/" + u.Repository + "/resolve/" + url.PathEscape(revision) + "/" + escape(name)
		return remote{client: c, secret: TokenSecret, linked: true, request: func(ctx context.Context) (*http.Request, error) {
			return with.get(ctx, address)
		}}
	}
	if !u.Folder() {
		o, err := file(u.Revision, u.Path).look(ctx, u.Sum)
		if err != nil {
			return nil, err
		}
		o.Original = u.Name()
		return &Finding{Tag: o.Tag, Objects: []*Object{o}}, nil
	}
	var at struct{ SHA string }
	if _, err := c.json(ctx, with, endpoint+"/api/models/"+u.Repository+"/revision/"+url.PathEscape(u.Revision), &at); err != nil {
		return nil, err
	}
	if at.SHA == "" {
		return nil, Fatal{fmt.Errorf("%s does not say which commit %s is", endpoint, u.Revision)}
	}
	return c.listHub(ctx, u, with, endpoint, at.SHA, file)
}

// hubFile is an entry of the hub's list of a folder.
type hubFile struct {
	Type, Path, OID string
	Size            int64
	LFS             struct{ OID string }
}

// nextLink is the address of the next page in a Link header.
var nextLink = regexp.MustCompile(`<([^>]+)>; *rel="next"`)

// listHub finds all files below a folder at one commit, so that they belong together.
func (c *Client) listHub(ctx context.Context, u source.URI, with Credentials, endpoint, commit string, file func(revision, name string) remote) (*Finding, error) {
	var objects []*Object
	var lines []string
	next := endpoint + "/api/models/" + u.Repository + "/tree/" + commit + "/" + escape(strings.TrimSuffix(u.Path, "/")) + "?recursive=true"
	for pages := 0; next != "" && len(objects) <= MaxFiles; pages++ {
		if pages == maxPages {
			return nil, errPages
		}
		var page []hubFile
		a, err := c.json(ctx, with, next, &page)
		if err != nil {
			return nil, err
		}
		for _, f := range page {
			name, err := below(u.Path, f.Path)
			if err != nil {
				return nil, err
			}
			if name == "" || f.Type != "file" || path.Base(name) == ".gitattributes" {
				continue
			}
			o := &Object{Name: name, Original: path.Base(name), Size: f.Size}
			if isDigest(f.LFS.OID, 64) {
				o.Sum = f.LFS.OID
			}
			o.Open = file(commit, f.Path).opener(o)
			objects, lines = append(objects, o), append(lines, name+" "+first(f.LFS.OID, f.OID))
		}
		next = ""
		if link := nextLink.FindStringSubmatch(a.Header.Get("Link")); link != nil {
			if to, err := a.Request.URL.Parse(link[1]); err == nil && to.Host == a.Request.URL.Host {
				next = to.String()
			}
		}
	}
	return folder(objects, lines)
}

// json reads an answer of the hub's interface.
func (c *Client) json(ctx context.Context, with Credentials, address string, into any) (*answer, error) {
	r, err := with.get(ctx, address)
	if err != nil {
		return nil, Fatal{err}
	}
	a, text, err := c.text(r, TokenSecret)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, Fatal{fmt.Errorf("%s does not answer as the hub does: %w", r.URL.Host, err)}
	}
	return a, nil
}
