package provider

import (
	"net/http"

	"github.com/faas-infer/faas-infer/provider/web"
)

// changes reads the bodies of routes that change something.
type changes struct {
	bodies   *web.BodyReader
	inFlight *web.Gate
}

// read parses a body as JSON into value. what names the object that the route expects,
// for the error.
func (c changes) read(w http.ResponseWriter, r *http.Request, what string, value any) error {
	text, err := c.text(w, r, maxSystemBody)
	if err != nil {
		return err
	}
	return web.ParseJSON(text, what, value)
}

// text reads a body of at most limit bytes. It refuses while the provider shuts down.
func (c changes) text(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if c.inFlight.Closed() {
		return nil, errDraining
	}
	c.bodies.Limit(w)
	text, err := web.ReadText(w, r, limit)
	if err != nil {
		// Do not wait for the rest of the body.
		w.Header().Set("Connection", "close")
		return nil, err
	}
	web.Unlimit(w)
	return text, nil
}
