package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// newRedirectCommand returns "faas-infer redirect", the process of the built-in bundle
// theaxer/redirector.
func newRedirectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "redirect",
		Short: "Answer every HTTP request with a redirect",
		Long: `redirect is the process of the built-in bundle theaxer/redirector. It listens on
127.0.0.1 at the port that $PORT names and answers every request with 302 and the
address in $destination.`,
		Example: `  PORT=3000 destination=https://example.com faas-infer redirect`,
		Args:    cobra.NoArgs,
		Hidden:  true,
		RunE: func(c *cobra.Command, _ []string) error {
			port, destination := os.Getenv("PORT"), os.Getenv("destination")
			if port == "" {
				return errors.New("PORT is not set: set it to the port to listen on")
			}
			if destination == "" {
				return errors.New("destination is not set: set it to the address to redirect to")
			}
			l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				return fmt.Errorf("PORT: %w", err)
			}
			return redirect(c.Context(), l, destination)
		},
	}
}

// redirect serves until ctx ends, and then finishes the requests in flight.
func redirect(ctx context.Context, l net.Listener, destination string) error {
	server := &http.Server{Handler: http.RedirectHandler(destination, http.StatusFound), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(deadline)
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}
