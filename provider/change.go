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
	defer text.Release()
	return web.ParseJSON(text.Content(), what, value)
}

// text reads a body of at most limit bytes, which the caller must release. It refuses
// while the provider shuts down.
func (c changes) text(w http.ResponseWriter, r *http.Request, limit int64) (web.Body, error) {
	if c.inFlight.Closed() {
		return web.Body{}, errDraining
	}
	text, err := c.bodies.ReadText(w, r, limit)
	if err != nil {
		web.CloseAfter(w, r)
	}
	return text, err
}
