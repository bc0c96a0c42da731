package command

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// defaultDestination is where the redirector sends those who ask while nobody
// has told it where.
const defaultDestination = "https://google.com"

// NewFunctionCommand returns the function command: programs of the functions
// that come with the provider.
func NewFunctionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:    "function",
		Short:  "Programs of the functions that come with the provider",
		Hidden: true,
	}
	c.AddCommand(&cobra.Command{
		Use:   "redirector",
		Short: "Answer every request with a redirect",
		Long: `redirector listens at 127.0.0.1 and the port that PORT names, and answers every
request with 302 and the address that the variable destination holds.`,
		Example: `  PORT=8090 destination=https://example.com faas-infer function redirector`,
		Args:    cobra.NoArgs,
		RunE:    runRedirector,
	})
	return c
}

func runRedirector(c *cobra.Command, _ []string) error {
	port, err := strconv.ParseUint(os.Getenv("PORT"), 10, 16)
	if err != nil {
		return fmt.Errorf("PORT=%q: it is the number of the port to serve at", os.Getenv("PORT"))
	}
	destination := os.Getenv("destination")
	if destination == "" {
		destination = defaultDestination
	}
	if _, err := url.Parse(destination); err != nil {
		return fmt.Errorf("destination=%q: %w", destination, err)
	}
	l, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(port, 10)))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.RedirectHandler(destination, http.StatusFound), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	<-c.Context().Done()
	err = server.Close()
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
