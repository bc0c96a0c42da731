package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// asked is how many functions get a request after a restart. They are spread evenly over
// the order of names.
const asked = 10

// Restart measures how soon a provider that was killed serves its functions again: so many
// inference functions, each with a bundle of its own. Those that are asked after the
// restart have an instance that outlived the provider; the others are at zero.
func Restart(ctx context.Context, o rig.Options, model string, functions int) (*report.Report, error) {
	s, err := rig.NewSubject(model)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	address, err := engine.FreeAddress()
	if err != nil {
		return nil, err
	}
	d, err := o.ProviderAt(ctx, address, s.Dir, "--nats-listen", "off")
	if err != nil {
		return nil, err
	}
	defer func() {
		if d != nil {
			d.Stop()
		}
	}()
	r := report.New("bench restart", time.Now())
	fmt.Fprintf(o.Log, "deploying %d functions\n", functions)
	began := time.Now()
	for i := range functions {
		if err := deployOwn(ctx, d, s, restarted(i)); err != nil {
			return nil, err
		}
	}
	r.Add("deploy_s", time.Since(began).Seconds(), "s", fmt.Sprintf("%d functions, one after the other", functions))
	if _, _, err := answers(ctx, s, d, functions); err != nil {
		return nil, err
	}
	r.Add("prepare_s", time.Since(began).Seconds(), "s", "until the last of them has answered a request")
	fmt.Fprintln(o.Log, "killing the provider and starting it again")
	_ = d.Process.Kill()
	<-d.Exited()
	began = time.Now()
	if d, err = o.ProviderAt(ctx, address, s.Dir, "--nats-listen", "off"); err != nil {
		return nil, err
	}
	healthy := time.Since(began)
	r.Add("healthy_s", healthy.Seconds(), "s", "from the start of the process until /healthz answers 200")
	shown := make(chan error, 1)
	var listed time.Duration
	go func() {
		err := awaitList(ctx, d, functions)
		listed = time.Since(began)
		shown <- err
	}()
	first, last, err := answers(ctx, s, d, functions)
	if err := errors.Join(err, <-shown); err != nil {
		return nil, err
	}
	r.Add("list_s", listed.Seconds(), "s", "until the list of functions is complete")
	r.Add("first_s", (healthy + first).Seconds(), "s", fmt.Sprintf("until the first of %d requests is answered", asked))
	r.Add("last_s", (healthy + last).Seconds(), "s", fmt.Sprintf("until all %d are", asked))
	cold, err := answer(ctx, s, d, restarted(1))
	r.Add("cold_s", (time.Since(began)).Seconds(), "s", fmt.Sprintf("until a function without an instance has answered, asked after the others (%.2f s)", cold.Seconds()))
	return r, err
}

// restarted is a function's name, and that of its image.
func restarted(i int) string { return fmt.Sprintf("function-%05d", i) }

// deployOwn deploys a function with a bundle of its own.
func deployOwn(ctx context.Context, d *rig.Deployed, s *rig.Subject, name string) error {
	if err := d.Bundle(s, name+":latest"); err != nil {
		return err
	}
	return d.Deploy(ctx, name, name+":latest", time.Second)
}

// answers sends a request to each of the asked functions at once. It returns the times
// until the first and until the last answer.
func answers(ctx context.Context, s *rig.Subject, d *rig.Deployed, functions int) (first, last time.Duration, err error) {
	began := time.Now()
	results := make(chan error, asked)
	for i := range asked {
		go func() {
			_, err := answer(ctx, s, d, restarted((i+1)*functions/asked-1))
			results <- err
		}()
	}
	for i := range asked {
		err = errors.Join(err, <-results)
		if last = time.Since(began); i == 0 {
			first = last
		}
	}
	return first, last, err
}

// answer sends one request to a function.
func answer(ctx context.Context, s *rig.Subject, d *rig.Deployed, name string) (time.Duration, error) {
	t, err := s.Target(d.URL + "/function/" + name)
	if err != nil {
		return 0, err
	}
	return rig.One(ctx, t)
}

// awaitList waits until the list of functions has all of them.
func awaitList(ctx context.Context, d *rig.Deployed, want int) error {
	for {
		status, text, err := rig.Get(ctx, http.DefaultClient, d.URL+"/system/functions")
		var functions []types.FunctionStatus
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal(text, &functions)
		}
		if err != nil || len(functions) == want {
			return err
		}
		if err := rig.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
