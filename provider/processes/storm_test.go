package processes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// storm does in random order what users, clients and the machine may do.
type storm struct {
	*rig
	random *rand.Rand
	wait   sync.WaitGroup
	// bounds are the minimum and maximum of each deployed function.
	bounds map[string][2]int
}

func (s *storm) step() {
	name := fmt.Sprintf("f%d", s.random.IntN(4))
	_, deployed := s.bounds[name]
	switch n := s.random.IntN(20); {
	case n < 2:
		least := s.random.IntN(4)
		most := max(1, least) + s.random.IntN(4)
		s.deploy(name, fmt.Sprintf("image%d", s.random.IntN(2)), between(least, most),
			func(f *provider.Function) { f.Inference.Requests.CPU = s.random.IntN(3) * 100 })
		s.bounds[name] = [2]int{least, most}
	case !deployed:
	case n < 3:
		if err := s.Remove(s.t.Context(), full(name)); err != nil {
			s.t.Error(err)
		}
		delete(s.bounds, name)
	case n < 5:
		if err := s.Scale(full(name), uint64(s.random.IntN(5))); err != nil {
			s.t.Error(err)
		}
	case n < 7:
		s.backend.Mu.Lock()
		for _, in := range s.backend.Running {
			s.backend.Exit(in, "killed by signal 9")
			break
		}
		s.backend.Mu.Unlock()
	case n < 17:
		s.wait.Go(func() { s.invoke(name, "x") }) // Anything may be the answer.
	default:
		time.Sleep(time.Duration(s.random.IntN(2000)) * time.Millisecond)
	}
}

// After any storm every function has the instances that it should have, and nothing is
// left over.
func TestStorm(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			s := &storm{rig: newRig(t), random: rand.New(rand.NewPCG(seed, 1)), bounds: map[string][2]int{}}
			s.open()
			s.run()
			defer s.close()
			var mu sync.Mutex
			fate := rand.New(rand.NewPCG(seed, 2))
			s.backend.Behave = func(int, cluster.InstanceSpec) behaviour {
				mu.Lock()
				defer mu.Unlock()
				how := behaviour{AnswerAfter: time.Duration(fate.IntN(500)) * time.Millisecond, ReadyAfter: time.Duration(1+fate.IntN(300)) * time.Millisecond}
				switch fate.IntN(10) {
				case 0:
					how.Refuse = errors.New("no")
				case 1:
					how.ReadyAfter, how.ExitAfter, how.ExitReason = -1, 50*time.Millisecond, "exit status 1"
				case 2:
					how.Deaf = true
				}
				return how
			}
			for range 400 {
				s.step()
			}
			s.wait.Wait()
			s.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{} })
			time.Sleep(2 * time.Minute)
			total := 0
			for name, bounds := range s.bounds {
				if _, err := s.invoke(name, "x"); err != nil {
					t.Errorf("seed %d: %s: %v", seed, name, err)
				}
				time.Sleep(time.Minute)
				status, _ := s.Status(full(name))
				if status.Replicas != status.AvailableReplicas || status.Replicas < uint64(bounds[0]) || status.Replicas > uint64(bounds[1]) {
					t.Errorf("seed %d: %s, which is to have %v replicas, shows %+v: %s", seed, name, bounds, status, s.describe(name).Problem)
				}
				total += int(status.Replicas)
			}
			if n := len(s.backend.living()); n != total {
				t.Errorf("seed %d: %d instances live, %d are wanted", seed, n, total)
			}
		})
	}
}
