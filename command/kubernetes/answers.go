package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// answerPause is the time between two requests to a server that is not ready.
const answerPause = 500 * time.Millisecond

// NewAnswersCommand returns "faas-infer-kubernetes answers", which `helm test` runs.
func NewAnswersCommand() *cobra.Command {
	patience := time.Minute
	c := &cobra.Command{
		Use:   "answers URL...",
		Short: "Wait until servers answer 200, for the test of an installation",
		Long: `answers sends GET requests to each URL until it answers 200, or --timeout is over. The
chart's test runs it in a pod: helm test faas-infer --namespace openfaas.`,
		Example: "  faas-infer-kubernetes answers http://faas-infer.openfaas.svc:8081/readyz",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			for _, url := range urls {
				if err := awaitAnswer(ctx, url); err != nil {
					return fmt.Errorf("%s does not answer 200 within %v: %w", url, patience, err)
				}
				fmt.Fprintln(cmd.OutOrStdout(), url, "answers")
			}
			return nil
		},
	}
	c.Flags().DurationVar(&patience, "timeout", patience, "how long all of them together may take")
	return c
}

// awaitAnswer asks until the answer is 200. When ctx ends it returns why the last one was not.
func awaitAnswer(ctx context.Context, url string) error {
	ticks := time.Tick(answerPause)
	for {
		err := askOnce(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-ticks:
		case <-ctx.Done():
			return err
		}
	}
}

func askOnce(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("the URL: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("the request: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil
}
