package origin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/model/source"
)

const (
	// MaxFiles is the maximum number of files of a folder or an artefact.
	MaxFiles = 1000
	// lookAttempts is how often a server is asked before its answer counts as final.
	lookAttempts = 3
	// lookPause is the pause before the second time. It doubles.
	lookPause = 100 * time.Millisecond
)

// Look asks a server what a URI names, again if the server fails.
func (c *Client) Look(ctx context.Context, u source.URI, with Credentials) (found *Finding, err error) {
	pause := lookPause
	for attempt := 1; ; attempt++ {
		found, err = c.lookOnce(ctx, u, with)
		if stop := new(Fatal); err == nil || errors.As(err, stop) || attempt == lookAttempts || ctx.Err() != nil {
			return found, err
		}
		if !backoff.Wait(ctx, pause) {
			return nil, ctx.Err()
		}
		pause *= 2
	}
}

func (c *Client) lookOnce(ctx context.Context, u source.URI, with Credentials) (*Finding, error) {
	switch u.Scheme {
	case source.File:
		return c.lookFile(u)
	case source.S3, source.GS:
		return c.lookBucket(ctx, u, with)
	case source.HF:
		return c.lookHub(ctx, u, with)
	case source.OCI:
		return c.lookArtefact(ctx, u, with)
	}
	address := u.Scheme + "://" + u.Host + u.Path
	if u.Query != "" {
		address += "?" + u.Query
	}
	file := remote{client: c, secret: TokenSecret, request: func(ctx context.Context) (*http.Request, error) {
		return with.get(ctx, address)
	}}
	o, err := file.look(ctx, u.Sum)
	if err != nil {
		return nil, err
	}
	o.Original = u.Name()
	return &Finding{Tag: o.Tag, Objects: []*Object{o}}, nil
}

// get makes a request with the token, if there is one.
func (w Credentials) get(ctx context.Context, address string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err == nil && w.Token != "" {
		r.Header.Set("Authorization", "Bearer "+w.Token)
	}
	return r, err
}

// folder is the finding of the files below a prefix. listed has a line for each.
func folder(objects []*Object, listed []string) (*Finding, error) {
	if len(objects) == 0 {
		return nil, Fatal{errors.New("there is no file below this prefix")}
	}
	if len(objects) > MaxFiles {
		return nil, Fatal{fmt.Errorf("it has %d files, and at most %d are taken; name a folder that has "+
			"the model only", len(objects), MaxFiles)}
	}
	return &Finding{Tag: Hash(listed...), Objects: objects}, nil
}

// below returns the name of a file below a prefix, "" for what is no file there. It refuses a name that leads
// out of it.
func below(prefix, name string) (string, error) {
	short, ok := strings.CutPrefix(name, prefix)
	if !ok || short == "" || strings.HasSuffix(short, "/") {
		return "", nil
	}
	if short != path.Clean(short) || strings.HasPrefix(short, "../") || short == ".." || strings.HasPrefix(short, "/") || strings.ContainsAny(short, "\\\x00") {
		return "", Fatal{fmt.Errorf("it has a file %q, whose name leads out of the folder; rename it", name)}
	}
	return short, nil
}
