package gillis

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/instances"
)

// A member of a set gets its number, and in a pod the plan: it cuts its part out of the model in its image.
// Other instances have no role.
func TestArgumentsOfMembers(t *testing.T) {
	member := cluster.InstanceSpec{ID: "s-2-x", Set: "s", Member: 2, Config: cluster.Config{Parts: 3}, Artefact: cluster.Artefact{Plan: `{"model":"m"}`}}
	whole := member
	whole.Set = ""
	for _, c := range []struct {
		spec         cluster.InstanceSpec
		listen, want string
	}{
		{member, "unix:///run/s", "instance member --part 2"},
		{member, "tcp://:8080", `instance --part 2 --plan {"model":"m"}`},
		{whole, "tcp://:8080", "instance"},
	} {
		if got := strings.Join(instances.Arguments(c.spec, c.listen), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.listen, got, c.want)
		}
	}
}
