package sets

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/cut"
)

const (
	// connectTimeout bounds one call of a master.
	connectTimeout = 5 * time.Second
	// hashDigits is the number of hex digits of a plan's hash by which instances name it.
	hashDigits = 16
	// maxComplaint bounds what is read of a master's error.
	maxComplaint = 300
)

// worker is where one worker listens, as its master is told.
type worker struct {
	Member  int    `json:"member"`
	Network string `json:"network"`
	Address string `json:"address"`
}

// workers is the body of PUT /v1/workers.
type workers struct {
	Plan    string   `json:"plan"`
	Workers []worker `json:"workers"`
}

// Dial connects to a master's network and address, as [net.Dialer.DialContext].
type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

// Connect tells a set's master where its workers are: PUT /v1/workers at the master's own address.
// The error holds the beginning of the master's answer.
func Connect(ctx context.Context, dial Dial, master cluster.Instance, members []cluster.Instance) error {
	hash, err := planHash(&master.InstanceSpec)
	if err != nil {
		return err
	}
	body := workers{Plan: hash, Workers: []worker{}}
	for _, in := range members {
		body.Workers = append(body.Workers, worker{in.Member, in.Network, in.Address})
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("tell %s its workers: %w", master.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://instance/v1/workers", bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("tell %s its workers: %w", master.ID, err)
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, master.Network, master.Address)
	}}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("tell %s its workers: %w", master.ID, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		complaint, _ := io.ReadAll(io.LimitReader(answer.Body, maxComplaint)) // The status says enough.
		return fmt.Errorf("tell %s its workers: it answers %s: %s", master.ID, answer.Status, strings.TrimSpace(string(complaint)))
	}
	return nil
}

// planHash returns the name of a set's plan. The error says why the plan cannot be the set's.
func planHash(spec *cluster.InstanceSpec) (string, error) {
	plan, err := cut.ReadPlan(strings.NewReader(spec.Plan))
	if err != nil {
		return "", err
	}
	if plan.Members != spec.Config.Parts {
		return "", fmt.Errorf("the plan is of %d members, and the config of %d", plan.Members, spec.Config.Parts)
	}
	return plan.Hash()[:hashDigits], nil
}
