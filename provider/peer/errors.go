package peer

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/faas-infer/faas-infer/provider/web"
)

// errNotTaken says that a replica has certainly not executed a request, so another may.
var errNotTaken = errors.New("not taken")

// A replica may have executed a request without answering. errDied: it broke off the connection.
// errNoAnswer: it did not answer in time.
var (
	errDied     = &web.Error{Status: http.StatusBadGateway, Text: "the replica of the provider that had this request died before it answered; the request may have been executed"}
	errNoAnswer = &web.Error{Status: http.StatusBadGateway, Text: "the replica of the provider that had this request has not answered; the request may have been executed"}
)

// connectError says that connecting failed, so nothing was sent.
type connectError struct{ error }

// Unwrap returns the cause.
func (u connectError) Unwrap() error { return u.error }

// errAnswerTooLarge: the answer is larger than maxReply.
var errAnswerTooLarge = &web.Error{Status: http.StatusBadGateway, Text: "the answer of the replica of the provider that had this request is larger than 1 GiB"}

// dial connects to another replica. Its errors are of type connectError.
func (g *Group) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := g.options.Dial(ctx, network, address)
	if err == nil && g.options.Secure != nil {
		c, err = g.options.Secure(ctx, c)
	}
	if err != nil {
		return nil, connectError{err}
	}
	return c, nil
}
