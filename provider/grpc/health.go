package grpc

import "google.golang.org/protobuf/encoding/protowire"

// The statuses of gRPC's health checks.
const (
	serving    = 1
	notServing = 2
)

// only reads the only message of a call and returns its field 1 as a string.
func (c *call) only() (string, error) {
	held, message, err := c.receive(maxQuestion)
	if err != nil {
		return "", err
	}
	defer free(&held)
	names, err := namesOf(message, 1)
	if err != nil {
		return "", err
	}
	return names[0], nil
}

func serverLive(c *call) error {
	if _, err := c.only(); err != nil {
		return err
	}
	return c.reply(appendNumber(nil, 1, protowire.EncodeBool(true)))
}

func serverReady(c *call) error {
	if _, err := c.only(); err != nil {
		return err
	}
	return c.reply(appendNumber(nil, 1, protowire.EncodeBool(c.server.options.Ready() == nil)))
}

func serverMetadata(c *call) error {
	if _, err := c.only(); err != nil {
		return err
	}
	m := appendString(appendString(nil, 1, "faas-infer"), 2, c.server.options.Version)
	return c.reply(appendString(m, 3, "classification"))
}

// health returns the status of the provider as a HealthCheckResponse.
func (c *call) health() []byte {
	status := uint64(serving)
	if c.server.options.Ready() != nil {
		status = notServing
	}
	return appendNumber(nil, 1, status)
}

// healthCheck answers for the provider's services together, and for "".
func healthCheck(c *call) error {
	service, err := c.only()
	if err != nil {
		return err
	}
	if service != "" && service != inference {
		return &status{code: notFound, text: "there is no service of this name; ModelReady tells about functions"}
	}
	return c.reply(c.health())
}

// healthWatch sends the status, and once more when the provider shuts down. Then it ends.
func healthWatch(c *call) error {
	if err := healthCheck(c); err != nil {
		return err
	}
	if err := c.flush(); err != nil {
		return err
	}
	select {
	case <-c.r.Context().Done():
		return c.r.Context().Err()
	case <-c.server.options.Shut:
		return c.reply(c.health())
	}
}
