package peer

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/faas-infer/faas-infer/provider/web"
)

// errNotTaken is wrapped where a replica has certainly not executed a request, so
// that the next one may.
var errNotTaken = errors.New("not taken")

// A replica may have executed a request, and does not say so: errDied is where it broke
// the connection off, errMute where it has not answered in all the time that it had.
var (
	errDied = &web.Error{Status: http.StatusBadGateway, Text: "the replicas of the provider that had this request died with it, one after the other"}
	errMute = &web.Error{Status: http.StatusBadGateway, Text: "the replica of the provider that had this request has not answered; the request may have been executed"}
)

// unconnected is an error of connecting: nothing was sent.
type unconnected struct{ error }

// Unwrap returns what was found.
func (u unconnected) Unwrap() error { return u.error }

// dial marks the errors of connecting.
func (g *Group) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	c, err := g.options.Dial(ctx, network, address)
	if err != nil {
		return nil, unconnected{err}
	}
	return c, nil
}
